//go:build unix

package invoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
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

// TestVerifyOpensFolders: what is no directory is not opened, and so never waited for.
func TestVerifyOpensFolders(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := Verify(t.Context(), pipe, VerifyOptions{})
	require.Equal(t, KindNotDirectory, kindOf(t, err))
	require.EqualError(t, err, pipe+": is not a directory (a named pipe)")
}

func TestHostRun(t *testing.T) {
	t.Setenv("EVALBOX_TEST_SECRET", "x")
	// Nothing of what this process would read is the tool's.
	stdin, write, err := os.Pipe()
	require.NoError(t, err)
	_, err = write.WriteString("EVALBOX_TEST_SECRET")
	require.NoError(t, errors.Join(err, write.Close()))
	was := os.Stdin
	os.Stdin = stdin
	t.Cleanup(func() { os.Stdin = was; _ = stdin.Close() })
	require.Equal(t, defaultGrace, policy.Default().Grace)
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
	require.NoError(t, os.WriteFile(filepath.Join(dir, "garbage"), []byte("\x01\x02garbage"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "orphan"), []byte("#!/no/such/interpreter\n"), 0o700))
	for command, want := range map[string]struct {
		why string
		// there says that the program is there; planned, that only starting it tells.
		there, planned bool
	}{
		"/nonexistent/tool":   {why: "no such file"},
		"no-such-program-xyz": {why: "no such program"},
		"./plain":             {why: "permission denied", there: true},
		"''":                  {why: "is empty"},
		".":                   {why: "no such program"},
		"./.":                 {why: "is a folder", there: true},
		"./plain/x":           {why: "not a directory", there: true},
		"./garbage":           {why: "exec format error", there: true, planned: true},
		"./orphan":            {why: "no such file", planned: true},
	} {
		r, err := New(command, WithHost(Host{Clock: realClock{}}), WithRoot(dir))
		require.NoError(t, err)
		_, err = r.Plan(t.Context(), newInvocation(t))
		require.Equal(t, want.planned, err == nil, command)
		require.Equal(t, want.there && !want.planned, errors.Is(err, ErrNotExecutable), command)
		_, err = r.Run(t.Context(), newInvocation(t))
		why := want.why
		require.Equal(t, want.there, errors.Is(err, ErrNotExecutable), command)
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
	t.Chdir(dir)
	_, err = findProgram("plain", dir, []string{"PATH=.:" + filepath.Base(dir) + "/../."})
	require.ErrorContains(t, err, "no such program")
	_, err = findProgram("plain", dir, nil)
	require.ErrorContains(t, err, "no such program")
	_, err = Host{Clock: realClock{}}.place(call{words: []string{"x"}})
	require.NoError(t, err)
}

// TestStartFailure: whose fault it is that a program was not started.
func TestStartFailure(t *testing.T) {
	for err, want := range map[syscall.Errno]struct {
		reason Reason
		there  bool
	}{
		syscall.ENOENT: {ReasonCannotExecute, false},
		syscall.EACCES: {ReasonCannotExecute, true}, syscall.ENOEXEC: {ReasonCannotExecute, true}, syscall.E2BIG: {ReasonCannotExecute, true},
		syscall.ETXTBSY: {ReasonCannotExecute, true}, syscall.ENOTDIR: {ReasonCannotExecute, true},
		syscall.EAGAIN: {ReasonEngine, false}, syscall.ENOMEM: {ReasonEngine, false}, syscall.EMFILE: {ReasonEngine, false},
	} {
		reason, failure := startFailure(&os.PathError{Op: "fork/exec", Path: "x", Err: err})
		require.Equal(t, want.reason, reason, err)
		require.ErrorIs(t, failure, err)
		require.Equal(t, want.there, errors.Is(failure, ErrNotExecutable), err)
	}
}

// TestHostStale: a file from before is no artifact of the run, by whatever name or way.
func TestHostStale(t *testing.T) {
	for name, test := range map[string]struct {
		script, listed string
		kind           Kind
		text           string
	}{
		"again the same": {`cp "$out/old/d.bin" "$out/copy"; cp "$out/copy" "$out/old/d.bin"`, "old/d.bin", KindStale, "was there before the run"},
		"a link to it":   {`ln -s old "$out/new"`, "new/d.bin", KindNotRegular, "lies behind a symbolic link"},
		"another name":   {`ln "$out/old/d.bin" "$out/n.bin"`, "n.bin", KindStale, "by another name"},
		"moved":          {`mv "$out/old/d.bin" "$out/m.bin"`, "m.bin", KindStale, "by another name"},
		"the folder":     {`mv "$out/old" "$out/moved"`, "moved/d.bin", KindStale, "by another name"},
		"a copy":         {`cp "$out/old/d.bin" "$out/c.bin"`, "c.bin", "", ""},
		"inside":         {`echo > "$out/x"`, "/work/output/x", KindOutside, "must be the path of a file"},
		"by its path":    {`echo > "$out/x"`, "$out/x", "", ""},
	} {
		script := test.script + "\n" + `printf '{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": ["%s"]}' "` + test.listed + `" > "$out/manifest.json"
echo '{"step": 1}' > "$out/trace_pack.jsonl"`
		r, inv := newHost(t, script, Host{})
		require.NoError(t, os.Mkdir(filepath.Join(inv.OutputDir, "old"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(inv.OutputDir, "old/d.bin"), []byte("old"), 0o600))
		res, err := r.Run(t.Context(), inv)
		require.NoError(t, err, name)
		report, err := res.Verify(t.Context(), VerifyOptions{})
		require.NoError(t, err, name)
		if test.kind == "" {
			require.True(t, report.OK, "%s: %v", name, report.Problems)
			continue
		}
		require.Len(t, report.Problems, 1, name)
		require.Equal(t, test.kind, report.Problems[0].Kind, name)
		require.ErrorContains(t, report.Problems[0], test.text, name)
	}
	// Nor is the manifest one.
	r, inv := newHost(t, leaveGood+`mv "$out/old" "$out/manifest.json"`, Host{})
	require.NoError(t, os.WriteFile(filepath.Join(inv.OutputDir, "old"), []byte(goodManifest), 0o600))
	res, err := r.Run(t.Context(), inv)
	require.ErrorContains(t, err, "manifest.json (was there before the run, by another name)")
	require.Empty(t, res.ManifestPath)
}

// TestHostReplacedOutput: what counts is what the output directory's name stands for.
func TestHostReplacedOutput(t *testing.T) {
	r, inv := newHost(t, leaveGood+`mv "$out" "$out.away"; mkfifo "$out"`, Host{})
	_, err := r.Run(t.Context(), inv)
	require.ErrorContains(t, err, "(the output directory is gone)")
}

// stampOfAll tells everything of the files in a folder that changing them would change.
const stampOfAll = `find . -type f | sort | while read -r f; do stat -c '%n %a %s %y %i %u %g' "$f"; sha256sum "$f"; done`

// TestHostChangesNothing: the files of a tool are after the run and its verification what
// they were when the tool ended, and so are those that it started from (M3-01).
func TestHostChangesNothing(t *testing.T) {
	r, inv := newHost(t, leaveGood+`mkdir "$out/d"; echo x > "$out/d/x"; chmod 440 "$out/d/x"; cd "$out"; `+stampOfAll, Host{})
	require.NoError(t, os.WriteFile(filepath.Join(r.root, "tool.py"), []byte("pass"), 0o640))
	root, config := contents(t, r.root), contents(t, filepath.Dir(inv.Config))
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	report, err := res.Verify(t.Context(), VerifyOptions{})
	require.NoError(t, err)
	require.True(t, report.OK, report.Problems)
	after := exec.Command("sh", "-c", stampOfAll)
	after.Dir = inv.OutputDir
	text, err := after.Output()
	require.NoError(t, err)
	require.Contains(t, res.Stdout, "./d/x 440 2 ")
	require.Equal(t, res.Stdout, string(text))
	require.Equal(t, root, contents(t, r.root))
	require.Equal(t, config[inv.Config], contents(t, filepath.Dir(inv.Config))[inv.Config])
}

// TestHostProfile: what a profile demands must be there (MI-05).
func TestHostProfile(t *testing.T) {
	r, inv := newHost(t, leaveGood, Host{}, WithProfile(Profile{Artifacts: []Declared{{Path: "model.bin"}, {Path: "more", Optional: true}}}))
	_, err := r.Run(t.Context(), inv)
	require.ErrorContains(t, err, "required artifact missing: "+inv.OutputDir+"/model.bin")
}

// stuck is a reader that takes nothing until it is told to.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

// TestHostStuckReader: whoever watches does not hold up the tool, and the tool is not
// blamed for it.
func TestHostStuckReader(t *testing.T) {
	reader := make(stuck)
	defer close(reader)
	r, inv := newHost(t, leaveGood+`head -c 20000000 /dev/zero | tr '\0' x`, Host{Stdout: reader}, WithTimeout(time.Minute))
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	require.True(t, res.OutputComplete)
	require.EqualValues(t, 20000000, res.StdoutBytes)
	require.Equal(t, []string{"the reader of the live output is stuck: the rest was not shown"}, res.Warnings)
}

// slow is a reader that takes its time, but takes everything.
type slow struct{ taken int }

func (s *slow) Write(p []byte) (int, error) {
	runtime.Gosched()
	s.taken += len(p)
	return len(p), nil
}

// untiring is a clock of somebody who waits for a reader as long as it takes.
type untiring struct{ realClock }

func (c untiring) After(d time.Duration) <-chan time.Time {
	if d == drain {
		return nil
	}
	return c.realClock.After(d)
}

// TestHostSlowReader: a slow reader gets everything.
func TestHostSlowReader(t *testing.T) {
	var reader slow
	r, inv := newHost(t, leaveGood+`head -c 20000000 /dev/zero | tr '\0' x`, Host{Stdout: &reader, Clock: untiring{}}, WithTimeout(time.Minute))
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
	require.Equal(t, 20000000, reader.taken)
	require.Empty(t, res.Warnings)
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
	_, err := r.Run(t.Context(), inv)
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
	r, inv := newHost(t, leaveGood+`echo before; setsid sh -c 'echo > "$0/gone"; sleep 6' "$out" & while [ ! -e "$out/gone" ]; do sleep 0.05; done`,
		Host{Grace: 100 * time.Millisecond})
	res, err := r.Run(t.Context(), inv)
	require.NoError(t, err)
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
