//go:build unix

package invoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests run small shell scripts on this machine.

// newHost calls a shell script that finds the output directory in $out.
func newHost(t *testing.T, script string, host Host, opts ...Option) (*Runner, Invocation) {
	t.Helper()
	inv := newInvocation(t)
	path := filepath.Join(filepath.Dir(inv.Config), "tool.sh")
	require.NoError(t, os.WriteFile(path, []byte("config=$2; out=$4\n"+script), 0o600))
	if host.Clock == nil {
		host.Clock = realClock{}
	}
	r, err := New("sh '"+path+"'", append([]Option{WithHost(host), WithRoot(t.TempDir())}, opts...)...)
	require.NoError(t, err)
	return r, inv
}

const leaveGood = `
printf '{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": ["trace_pack.jsonl"]}' > "$out/manifest.json"
printf '{"step": 1}\n' > "$out/trace_pack.jsonl"
`

func TestHostRun(t *testing.T) {
	t.Setenv("EVALBOX_TEST_SECRET", "x")
	var live bytes.Buffer
	r, inv := newHost(t, leaveGood+`pwd; env | sort; cat; printf 'a\377\r\n' >&2; exit 0`, Host{Stdout: &live, Stderr: io.Discard}, WithEnv(map[string]string{"B": "2"}))
	seed := int64(5)
	inv.Seed = &seed
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	require.Equal(t, EngineHost, res.Engine)
	require.Equal(t, []string{"--config", inv.Config, "--output", inv.OutputDir, "--seed", "5"}, res.Command[2:])
	require.Contains(t, res.Unenforced, "network")
	require.Contains(t, res.Stdout, r.root+"\n")
	require.Contains(t, res.Stdout, "B=2\n")
	require.Contains(t, res.Stdout, "PATH=/usr/local/sbin:")
	require.NotContains(t, res.Stdout, "EVALBOX_TEST_SECRET", "nothing of the caller's environment")
	require.Equal(t, "a\ufffd\r\n", res.Stderr)
	require.Equal(t, res.Stdout, live.String())
	require.Zero(t, *res.ExitCode)
	require.Positive(t, res.DurationSeconds)
	require.True(t, res.OutputComplete)
	report, err := res.Verify(t.Context(), VerifyOptions{})
	require.NoError(t, err)
	require.True(t, report.OK, report.Problems)

	plan, err := r.Plan(t.Context(), newInvocation(t))
	require.NoError(t, err)
	require.Equal(t, EngineHost, plan.Engine)
	require.Nil(t, plan.Spec)
	require.NotEmpty(t, plan.Unenforced)
}

func TestHostEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		code   int
		signal int
		text   string
	}{
		"code":      {"echo out; echo err >&2; exit 3", 3, 0, "exited with code 3"},
		"signal":    {"echo out; echo err >&2; kill -9 $$", 137, 9, "ended by signal 9"},
		"143":       {"echo out; echo err >&2; exit 143", 143, 0, "exited with code 143"},
		"no result": {"echo out; echo err >&2", 0, 0, "required artifact missing: "},
		"a fifo":    {`echo out; echo err >&2; mkfifo "$out/manifest.json"`, 0, 0, "manifest.json (is a named pipe)"},
		"a link":    {`echo out; echo err >&2; ln -s /etc/passwd "$out/manifest.json"`, 0, 0, "manifest.json (is a symbolic link)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, inv := newHost(t, test.script, Host{})
			res, err := r.Run(t.Context(), inv)
			var failed *InvocationError
			require.ErrorAs(t, err, &failed)
			require.ErrorContains(t, err, test.text)
			require.Equal(t, test.code, *failed.ExitCode)
			require.Equal(t, test.signal, res.Signal)
			require.Equal(t, "out\n", failed.Stdout)
			require.Equal(t, "err\n", failed.Stderr)
		})
	}
}

func TestHostCannotExecute(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o600))
	for command, why := range map[string]string{
		"/nonexistent/tool":   "no such file",
		"no-such-program-xyz": "no such program",
		"./plain":             "permission denied",
		"''":                  "is empty",
		".":                   "no such program",
	} {
		r, err := New(command, WithHost(Host{Clock: realClock{}}), WithRoot(dir))
		require.NoError(t, err)
		_, err = r.Run(t.Context(), newInvocation(t))
		var failed *InvocationError
		require.ErrorAs(t, err, &failed, command)
		require.Equal(t, ReasonCannotExecute, failed.Reason)
		require.Nil(t, failed.ExitCode)
		require.Contains(t, failed.Stderr, why, command)
		require.Empty(t, failed.Stdout)
	}
	// A PATH of one's own is looked through, but not what it means relative to a folder.
	require.NoError(t, os.Chmod(filepath.Join(dir, "plain"), 0o700))
	_, err := findProgram("plain", dir, []string{"PATH=.:relative:" + dir})
	require.NoError(t, err)
	_, err = findProgram("plain", dir, []string{"PATH=."})
	require.ErrorContains(t, err, "no such program")
	_, err = findProgram("plain", dir, nil)
	require.ErrorContains(t, err, "no such program")
	_, err = Host{Clock: realClock{}}.place(call{words: []string{"x"}})
	require.NoError(t, err)
}

// child is a process that shrugs SIGTERM off, and writes its number to $out/child first.
const child = `sh -c 'trap "" TERM; echo $$ > "$0/child"; while :; do sleep 0.1; done' "$out" & while [ ! -s "$out/child" ]; do sleep 0.05; done
`

// goneChild waits for the end of the child.
func goneChild(t *testing.T, inv Invocation) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(inv.OutputDir, "child"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		return
	}
	require.Contains(t, string(stat), ") Z ", "the child outlives the tool")
}

// TestHostTimeLimit: the whole group is ended, SIGTERM first, and what was printed until
// then is kept.
func TestHostTimeLimit(t *testing.T) {
	r, inv := newHost(t, child+`trap 'echo asked; exit 0' TERM; echo partial; echo warning >&2; while :; do sleep 0.1; done`,
		Host{Grace: 300 * time.Millisecond}, WithTimeout(500*time.Millisecond))
	began := time.Now()
	_, err := r.Run(t.Context(), inv)
	require.Less(t, time.Since(began), 15*time.Second)
	var late *TimeoutError
	require.ErrorAs(t, err, &late)
	var failed *InvocationError
	require.ErrorAs(t, err, &failed)
	require.EqualError(t, err, "the tool timed out after 0.5 seconds")
	require.Nil(t, failed.ExitCode, "it exited with 0, but after the limit")
	require.True(t, failed.Result.TimedOut)
	require.Equal(t, "partial\nasked\n", failed.Stdout)
	require.True(t, strings.HasPrefix(failed.Stderr, "warning\n"), failed.Stderr) // the shell may tell of its child
	require.True(t, failed.Result.OutputComplete)
	goneChild(t, inv)
}

// TestHostLeftBehind: what a tool leaves running is ended with it.
func TestHostLeftBehind(t *testing.T) {
	r, inv := newHost(t, child+leaveGood, Host{Grace: 200 * time.Millisecond})
	_, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	goneChild(t, inv)
}

// TestHostEscaped: a process that left the group cannot be found, but does not hold us up.
func TestHostEscaped(t *testing.T) {
	r, inv := newHost(t, leaveGood+`echo before; setsid sleep 6 & sleep 0.3`, Host{Grace: 100 * time.Millisecond})
	began := time.Now()
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 5*time.Second)
	require.False(t, res.OutputComplete)
	require.Equal(t, "before\n", res.Stdout)
	require.Len(t, res.Warnings, 1)
}

func TestHostCanceled(t *testing.T) {
	stop := errors.New("enough")
	kill := make(chan struct{})
	close(kill)
	ctx, cancel := context.WithCancelCause(t.Context())
	ready := writerFunc(func() { cancel(stop) })
	r, inv := newHost(t, child+`trap "" TERM; echo ready; while :; do sleep 0.1; done`, Host{Stdout: ready, Kill: kill, Grace: time.Hour})
	_, err := r.Run(ctx, inv)
	require.ErrorIs(t, err, stop)
	var failed *InvocationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, ReasonCanceled, failed.Reason)
	require.Equal(t, "ready\n", failed.Stdout)
	goneChild(t, inv)

	// Before the start nothing is started.
	r, inv = newHost(t, `echo > "$out/started"`, Host{})
	_, err = r.Run(ctx, inv)
	require.ErrorIs(t, err, stop)
	require.NoFileExists(t, filepath.Join(inv.OutputDir, "started"))
}

// writerFunc hears of the first output.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return 0, errors.New("enough was heard")
}

// TestHostFlood: output without end costs bounded memory, and the flag says so.
func TestHostFlood(t *testing.T) {
	r, inv := newHost(t, leaveGood+`echo begin; head -c 300000000 /dev/zero | tr '\0' x; echo; echo end`, Host{CaptureStdout: 1000})
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	require.True(t, res.StdoutTruncated)
	require.False(t, res.StderrTruncated)
	require.EqualValues(t, 300000000+len("begin\n\nend\n"), res.StdoutBytes)
	require.Less(t, len(res.Stdout), 2000)
	require.True(t, strings.HasPrefix(res.Stdout, "begin\n"))
	require.True(t, strings.HasSuffix(res.Stdout, "end\n"))
}
