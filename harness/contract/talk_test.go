package contract

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// talkBox runs a program with its streams.
type talkBox struct {
	*fakeBox
	talks func(ctx context.Context, req sandbox.Request, in io.Reader, out io.Writer) result.Result
}

func (b *talkBox) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	var rest []sandbox.RunOption
	var streams sandbox.IO
	for _, opt := range opts {
		if io, ok := opt.(sandbox.IO); ok {
			streams = io
		} else {
			rest = append(rest, opt)
		}
	}
	if b.runErr == nil {
		res := b.talks(ctx, req, streams.Stdin, streams.Stdout)
		b.program = func(sandbox.Request, string) result.Result { return res }
	}
	return b.fakeBox.Run(ctx, req, rest...)
}

// ask says hello, and answers with the line that comes back.
func ask(_ context.Context, _ Effective, in io.Writer, out io.Reader) Answer {
	if _, err := io.WriteString(in, "hello\n"); err != nil {
		return Answer{Err: err, Unsent: true}
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return Answer{Err: errors.New("the server went away"), Unsent: true}
	}
	return Answer{Value: line}
}

// talkHarness calls a program with the adapter A.
func talkHarness(t *testing.T, a Adapted, talks func(ctx context.Context, req sandbox.Request, in io.Reader, out io.Writer) result.Result) (*Harness, *talkBox) {
	t.Helper()
	if a.Talk == nil {
		a.Talk = ask
	}
	h, box := adaptedHarness(t, fakeAdapters{"A": a}, nil)
	talking := &talkBox{box, talks}
	h, err := New(talking, h.Options)
	require.NoError(t, err)
	return h, talking
}

// greets answers the first line, and reads until its input ends.
func greets(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadString('\n')
	if err == nil {
		_, err = io.WriteString(out, "you said "+line+"and more that nobody reads\n")
	}
	if err == nil {
		_, err = io.Copy(io.Discard, lines)
	}
	return err
}

func TestTalk(t *testing.T) {
	h, box := talkHarness(t, Adapted{}, func(_ context.Context, req sandbox.Request, in io.Reader, out io.Writer) result.Result {
		assert.True(t, req.Stdin)
		assert.NoError(t, greets(in, out))
		return result.Result{Status: result.StatusExited, ExitCode: 3} // how it ends does not matter
	})
	o := carriedOut(t, h, of(through("A")))
	require.True(t, o.Success, o.Error)
	require.Empty(t, o.Error)
	require.Equal(t, "you said hello\n", o.Call.Value)
	require.Equal(t, 3, *o.Call.Code)
	require.Empty(t, o.Differences)
	require.Equal(t, trial.Passed, o.Verdict)
	require.Equal(t, CheckDone, state(o, "outputs_validated"))
	require.Len(t, box.ran, 1)

	// What the contract expects beside the exit code counts.
	c := through("A")
	c.Outputs.OutputFiles = []string{"/work/final/a"}
	o = carriedOut(t, h, of(c))
	require.False(t, o.Success)
	require.Contains(t, o.Error, "/work/final/a")
	require.Nil(t, o.Call.Value)
	require.Equal(t, CheckFailed, state(o, "outputs_validated"))
}

// A program that ends before it answers was not reached: it may be started again.
func TestTalkDies(t *testing.T) {
	n := 0
	h, box := talkHarness(t, Adapted{Retry: Retry{MaxAttempts: 2}}, func(_ context.Context, _ sandbox.Request, in io.Reader, out io.Writer) result.Result {
		if n++; n == 1 {
			return result.Result{Status: result.StatusExited, ExitCode: 1, Stderr: "no such module"}
		}
		assert.NoError(t, greets(in, out))
		return result.Result{Status: result.StatusExited}
	})
	o := carriedOut(t, h, of(through("A")))
	require.True(t, o.Success, o.Error)
	require.Len(t, box.ran, 2)
	require.Equal(t, 1, *o.Call.Attempts[0].Code)
	require.NotEmpty(t, o.Call.Attempts[0].Error)

	n = 0
	h.Rules.Adapters = fakeAdapters{"A": {Talk: ask}}
	o = carriedOut(t, h, of(through("A")))
	require.False(t, o.Success)
	require.Equal(t, 1, *o.Call.Code)
	require.Contains(t, o.Error, "exit code")
	require.Equal(t, CheckFailed, state(o, "outputs_validated"))
	require.Equal(t, trial.Failed, o.Verdict)
}

// A program that runs out of time was reached: its code is 143.
func TestTalkHangs(t *testing.T) {
	h, box := talkHarness(t, Adapted{Retry: Retry{MaxAttempts: 3}}, func(_ context.Context, _ sandbox.Request, in io.Reader, _ io.Writer) result.Result {
		_, err := bufio.NewReader(in).ReadString('\n')
		assert.NoError(t, err)
		return result.Result{Status: result.StatusTimedOut, TimedOut: true, ExitCode: -1}
	})
	o := carriedOut(t, h, of(through("A")))
	require.Equal(t, "timed_out", o.Status)
	require.Equal(t, "Execution timed out after 30s", o.Error)
	require.Equal(t, 143, *o.Call.Code)
	require.Len(t, box.ran, 1, "143 is not listed")
	require.Nil(t, o.Call.Value)
}

// A program that goes on after its input has ended is ended. Its answer counts.
func TestTalkLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := talkHarness(t, Adapted{}, func(ctx context.Context, _ sandbox.Request, in io.Reader, out io.Writer) result.Result {
			assert.NoError(t, greets(in, out))
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), errLingers)
			return result.Result{Status: result.StatusCanceled, ExitCode: 137, StartedAt: "2026-01-01T12:00:00Z"}
		})
		o := carriedOut(t, h, of(through("A")))
		require.True(t, o.Success, o.Error)
		require.Equal(t, "you said hello\n", o.Call.Value)
		require.Contains(t, o.Warnings, "the program did not end when its input ended, and was ended")
		require.Equal(t, StatusAnswered, o.Status)
		require.Nil(t, o.ExitCode, "that of our signal is not its own")
		require.Nil(t, o.Call.Code)
		require.Equal(t, "none", o.Fault)
		require.Equal(t, trial.Passed, o.Verdict)
	})
}

// What a program says is not an answer if it did not start, and a box that fails ends the talk.
func TestTalkDoesNotBegin(t *testing.T) {
	h, box := talkHarness(t, Adapted{Retry: Retry{MaxAttempts: 3}}, func(context.Context, sandbox.Request, io.Reader, io.Writer) result.Result {
		return result.Result{Status: result.StatusStartFailed, ExitCode: 127}
	})
	o := carriedOut(t, h, of(through("A")))
	require.False(t, o.Started)
	require.Equal(t, 127, *o.Call.Code)
	require.Contains(t, o.Error, "Command not found")
	require.Len(t, box.ran, 1, "127 is not listed")

	box.runErr = errFake
	o, err := h.Run(t.Context(), of(through("A")))
	require.ErrorIs(t, err, errFake)
	require.Equal(t, StatusFailed, o.Status)
	requireWire(t, o)
}

// The files of an adapter are mounted while the program runs, and removed afterwards.
func TestFilesOfAnAdapter(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	h, box := adaptedHarness(t, fakeAdapters{"A": {Files: map[string]string{"main.py": "print(1)", "src/lib.rs": "x"}, FilesDir: "/host/driver"}}, nil)
	look := func(req sandbox.Request) {
		mount := req.Mounts[len(req.Mounts)-1]
		assert.Equal(t, "/host/driver", mount.Target)
		text, err := os.ReadFile(filepath.Join(mount.Source, "src/lib.rs"))
		assert.NoError(t, err)
		assert.Equal(t, "x", string(text))
		info, err := os.Stat(mount.Source)
		assert.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "the user of the container reads it")
	}
	box.program = func(req sandbox.Request, _ string) result.Result {
		look(req)
		return result.Result{Status: result.StatusExited, Stdout: "1"}
	}
	o := carriedOut(t, h, of(through("A")))
	require.True(t, o.Success, o.Error)
	box.runErr = errFake
	_, err := h.Run(t.Context(), of(through("A")))
	require.ErrorIs(t, err, errFake)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, box.ran, 2)
	require.NotEqual(t, box.ran[0].Mounts[1].Source, box.ran[1].Mounts[1].Source)
}
