package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines makes the program's stdout readable line by line while it runs. Unread lines are
// buffered and do not block the program.
func lines(c *container) (next func() string) {
	found := make(chan string, 1000)
	var begun []byte
	c.stdout = io.MultiWriter(&c.outText, writer(func(p []byte) {
		begun = append(begun, p...)
		for {
			line, rest, whole := bytes.Cut(begun, []byte("\n"))
			if !whole {
				return
			}
			found <- string(line)
			begun = rest
		}
	}))
	return func() string {
		c.t.Helper()
		select {
		case line := <-found:
			return line
		case <-c.ctx.Done():
			require.FailNow(c.t, "no line came", "%s%s", c.outText.String(), c.errText.String())
			return ""
		}
	}
}

// TestLook asks init again and again what it sees, while it waits for its job.
func TestLook(t *testing.T) {
	c := newContainer(t, "-s", publicDir(t))
	first := c.ready()
	for range 3 {
		again, err := c.Look(c.ctx, c.stdin)
		require.NoError(t, err)
		require.Equal(t, first.Stats, again.Stats) // mounts of the machine may come and go
		require.Equal(t, first.Interfaces, again.Interfaces)
	}
	c.begin(sh("echo hello"))
	requireExit(t, c, c.end(), 0)
	require.Equal(t, "hello\n", c.outText.String())
	require.Zero(t, c.bye())

	// A look with a payload is not one.
	c = newContainer(t)
	c.ready()
	c.send(newFrame(typeLook, []byte("x")))
	require.Equal(t, 125, c.wait())
}

// TestInputWithoutStdin checks that a job without stdin reads /dev/null even if input is sent.
func TestInputWithoutStdin(t *testing.T) {
	c := newContainer(t)
	c.begin(sh("cat; exit 1"))
	in := InputWriter(c.stdin)
	_, err := in.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, in.Close())
	requireExit(t, c, c.end(), 1)
	require.Empty(t, c.outText.String())
	require.Equal(t, 1, c.bye())
}

// TestStopBeforeTheSoftSignal checks that the soft signal does not come after another one.
func TestStopBeforeTheSoftSignal(t *testing.T) {
	c := newContainer(t)
	next := lines(c)
	job := sh("trap '' TERM; echo begun; while :; do sleep 0.01; done")
	job.Timeout, job.SoftLead, job.SoftSignal, job.Grace = time.Hour, time.Hour-2*time.Second, syscall.SIGUSR1, 3*time.Second
	c.begin(job)
	require.Equal(t, "begun", next())
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	report := c.end()
	require.Equal(t, StopTerm, report.Stop)
	require.Equal(t, 9, report.Value, "the grace period ended it")
	require.Zero(t, report.SoftAfter)
}

// TestOrphanLimit checks that without a controller at most the orphan limit remains.
func TestOrphanLimit(t *testing.T) {
	const waits = "trap 'exit 0' USR1; echo begun; while :; do sleep 0.01; done"
	const minute = time.Minute
	for name, test := range map[string]struct {
		timeout, orphan, lead time.Duration
		stop                  Stop
		soft                  bool
	}{
		"shortens":             {minute, 400 * time.Millisecond, 0, StopOrphan, false},
		"no time limit":        {0, 400 * time.Millisecond, 0, StopOrphan, false},
		"longer than the rest": {2 * time.Second, minute, 0, StopDeadline, false},
		"soft signal":          {minute, 800 * time.Millisecond, 600 * time.Millisecond, StopNone, true},
		"soft signal at once":  {minute, 10 * time.Second, 20 * time.Second, StopNone, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			next := lines(c)
			job := sh(waits)
			job.Timeout, job.OrphanLimit, job.SoftLead, job.SoftSignal = test.timeout, test.orphan, test.lead, syscall.SIGUSR1
			c.begin(job)
			require.Equal(t, "begun", next())
			require.NoError(t, c.stdin.Close())
			report := c.end()
			require.True(t, report.Abandoned)
			require.Equal(t, test.stop, report.Stop)
			require.Equal(t, test.soft, report.SoftAfter > 0)
			require.Less(t, report.Wall, minute)
			if !test.soft {
				require.GreaterOrEqual(t, report.Wall, min(test.orphan, max(test.timeout, 400*time.Millisecond)))
			}
		})
	}
	t.Run("with a controller", func(t *testing.T) {
		job := sh("sleep 0.5; exit 3")
		job.OrphanLimit = time.Millisecond
		c, report := run(t, job)
		requireExit(t, c, report, 3)
		require.False(t, report.Abandoned)
	})
}

// TestDeadlineVariable checks the value and that it replaces every other one of that name.
func TestDeadlineVariable(t *testing.T) {
	for name, env := range map[string][]string{"alone": nil, "of the job": {"OF_INIT=job", "A=1"}} {
		t.Run(name, func(t *testing.T) {
			job := python("import os, time\nprint(os.environb.get(b'OF_INIT').decode(), os.environ.get('OF_BOTH'), time.time())")
			job.Timeout, job.DeadlineVar, job.Env = time.Hour, "OF_INIT", env
			c, report := run(t, job)
			requireExit(t, c, report, 0)
			var deadline, clock float64
			var other string
			_, err := fmt.Sscan(c.outText.String(), &deadline, &other, &clock)
			require.NoError(t, err, c.outText.String())
			require.Equal(t, "init", other)
			require.Regexp(t, `^\d{10,}\.\d{3} `, c.outText.String())
			require.InDelta(t, float64(report.Started.Add(time.Hour).UnixMilli())/1000, deadline, 0.002)
			require.Less(t, deadline, clock+3600)
		})
	}
}

func TestSignalsFromOutside(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGUSR1: 137} {
		t.Run("before a job "+signal.String(), func(t *testing.T) {
			c := newContainer(t)
			c.ready()
			require.NoError(t, c.cmd.Process.Signal(signal))
			require.Equal(t, code, c.wait())
		})
		t.Run("after the end "+signal.String(), func(t *testing.T) {
			c, report := run(t, sh("exit 3"))
			requireExit(t, c, report, 3)
			require.NoError(t, c.cmd.Process.Signal(signal))
			require.Equal(t, 3, c.wait())
		})
	}
	t.Run("others", func(t *testing.T) {
		c := newContainer(t)
		c.ready()
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGUSR2, 40} {
			require.NoError(t, c.cmd.Process.Signal(signal))
		}
		c.begin(sh("exit 3"))
		requireExit(t, c, c.end(), 3)
		require.Equal(t, 3, c.bye())
	})
}

// TestControllerGone: without a job init ends at once, with one after the job.
func TestControllerGone(t *testing.T) {
	t.Run("before a job", func(t *testing.T) {
		c := newContainer(t)
		c.ready()
		require.NoError(t, c.stdin.Close())
		require.Equal(t, 125, c.wait())
		require.Empty(t, c.Complaint())
	})
	t.Run("within a job frame", func(t *testing.T) {
		frame, err := Job{Args: []string{"true"}, Dir: "/"}.Encode()
		require.NoError(t, err)
		for _, n := range []int{1, headerSize - 1, headerSize, headerSize + 1, len(frame) - 1} {
			c := newContainer(t)
			c.ready()
			c.send(frame[:n])
			require.NoError(t, c.stdin.Close())
			require.Equal(t, 125, c.wait())
			require.Empty(t, c.Complaint())
		}
	})
	t.Run("with a job", func(t *testing.T) {
		job := sh("cat; echo end; exit 6")
		job.Stdin, job.Timeout = true, time.Minute
		c := newContainer(t)
		c.begin(job)
		require.NoError(t, c.stdin.Close())
		report := c.end()
		requireExit(t, c, report, 6)
		require.True(t, report.Abandoned)
		require.Equal(t, "end\n", c.outText.String())
		require.Equal(t, 6, c.wait(), "nobody is left to say BYE")
	})
	t.Run("until the deadline", func(t *testing.T) {
		job := sh("exec sleep 100")
		job.Timeout = 300 * time.Millisecond
		c := newContainer(t)
		c.begin(job)
		require.NoError(t, c.stdin.Close())
		report := c.end()
		require.Equal(t, StopDeadline, report.Stop)
		require.True(t, report.Abandoned)
		require.Equal(t, 143, c.wait())
	})
	t.Run("after the end", func(t *testing.T) {
		c, report := run(t, sh("exit 6"))
		require.False(t, report.Abandoned)
		require.NoError(t, c.stdin.Close())
		require.Equal(t, 6, c.wait())
	})
}

// TestDamagedWireAfterTheJob checks that init treats garbage like a disconnected controller,
// and that garbage does not change how the program ends.
func TestDamagedWireAfterTheJob(t *testing.T) {
	second, err := Job{Args: []string{"false"}, Dir: "/"}.Encode()
	require.NoError(t, err)
	for name, sent := range map[string][]byte{
		"a second job":      second,
		"not a frame":       []byte("hello, is anybody there?"),
		"another version":   {0, 'E', 'B', 'X', 2, 17, 0, 0, 0, 0, 0, 0},
		"input of 64 KiB+1": append(newFrame(typeInput, nil)[:8], 1, 0, 1, 0),
		"a bye of 1 byte":   append(newFrame(typeBye, nil)[:8], 1, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			job := sh("cat; exit 6")
			job.Stdin = true
			c := newContainer(t)
			c.begin(job)
			c.send(sent)
			report := c.end()
			requireExit(t, c, report, 6)
			require.True(t, report.Abandoned)
			require.Equal(t, 6, c.wait())
		})
	}
	t.Run("a bye before the end", func(t *testing.T) {
		job := sh("read x; exit $x")
		job.Stdin = true
		c := newContainer(t)
		c.begin(job)
		c.send(newFrame(typeBye, nil))
		in := InputWriter(c.stdin)
		_, err := in.Write([]byte("9\n"))
		require.NoError(t, err)
		report := c.end()
		requireExit(t, c, report, 9)
		require.False(t, report.Abandoned)
		require.Equal(t, 9, c.bye())
	})
}

// TestRefusedJobs checks that init reports why it refuses a job, and runs nothing.
func TestRefusedJobs(t *testing.T) {
	field := func(tag uint16, value string) []byte { return appendField(nil, tag, []byte(value)) }
	least := bytes.Join([][]byte{field(1, strings.Repeat("n", 32)), field(2, "true"), field(4, "/")}, nil)
	with := func(more ...[]byte) []byte {
		return newFrame(typeJob, append(bytes.Clone(least), bytes.Join(more, nil)...))
	}
	tests := map[string]struct {
		frame []byte
		says  string
	}{
		"input":             {newFrame(typeInput, nil), "not a job"},
		"bye":               {newFrame(typeBye, nil), "not a job"},
		"not a frame":       {[]byte("GET / HTTP/1.1\r\n"), "not a job"},
		"version":           {[]byte{0, 'E', 'B', 'X', 2, 16, 0, 0, 0, 0, 0, 0}, "not a job"},
		"10 MB":             {append(newFrame(typeJob, nil)[:8], 0, 0, 160, 0), "more than 4 MiB"},
		"empty":             {newFrame(typeJob, nil), "missing"},
		"unknown field":     {with(field(99, "x")), "unknown field"},
		"tag 0":             {with(field(0, "")), "unknown field"},
		"nonce twice":       {with(field(1, strings.Repeat("n", 32))), "twice"},
		"directory twice":   {with(field(4, "/")), "twice"},
		"short nonce":       {newFrame(typeJob, append(field(1, "short"), least[40:]...)), "wrong length"},
		"field too long":    {with([]byte{2, 0, 0, 0, 9, 0, 0, 0, 'x'}), "do not fill"},
		"field cut":         {with([]byte{2, 0, 0}), "do not fill"},
		"argument with NUL": {with(field(2, "a\x00b")), "bad argument"},
		"variable":          {with(field(3, "NAME")), "bad variable"},
		"variable, no name": {with(field(3, "=x")), "bad variable"},
		"endless timeout":   {with(field(5, "\xff\xff\xff\xff\xff\xff\xff\x7f")), "bad duration"},
		"limit":             {with(field(7, strings.Repeat("\xff", 24))), "bad limit"},
		"orphan limit":      {with(field(12, "\xff\xff\xff\xff\xff\xff\xff\x7f")), "bad duration"},
		"soft lead 0":       {with(field(11, strings.Repeat("\x00", 16))), "bad duration"},
		"soft signal 65":    {with(field(11, "\x01\x00\x00\x00\x00\x00\x00\x00\x41\x00\x00\x00\x00\x00\x00\x00")), "bad signal"},
		"soft, no limit":    {with(field(11, "\x01\x00\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00\x00\x00\x00\x00")), "not within the time limit"},
		"deadline, no name": {with(field(13, "")), "bad variable"},
		"deadline with =":   {with(field(13, "A=")), "bad variable"},
		"deadline, none":    {with(field(13, "A")), "without a time limit"},
		"flag":              {with(field(9, "\x08\x00\x00\x00")), "unknown flag"},
		"file of a waiter":  {with(field(14, "x")), "unknown field"},
		"OOM score":         {with(field(8, "\xff\xff\xff\x7f")), "OOM score"},
		"no processors":     {with(field(17, strings.Repeat("\x00", 8))), "bad number of processors"},
		"relay":             {with(field(10, "\x50\x00\x01\x00\x00\x00\x00\x00")), "bad relay"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			c.ready()
			c.Begin(c.nonce, c.stdout, c.stderr)
			c.send(test.frame)
			err := c.Accepted(c.ctx)
			require.ErrorIs(t, err, errRefused)
			require.ErrorContains(t, err, test.says)
			require.Equal(t, 125, c.wait())
			require.Empty(t, c.outText.String())
		})
	}
}

// TestNotProcessOne: a program may execute init's binary, which then fails.
func TestNotProcessOne(t *testing.T) {
	c := newContainer(t)
	c.begin(Job{Args: []string{initPath(t)}})
	report := c.end()
	requireExit(t, c, report, 125)
	require.Empty(t, c.outText.String())
	require.Equal(t, "sandbox-init: not process 1 of a container\n", c.errText.String())
}

func TestUsage(t *testing.T) {
	for _, arguments := range [][]string{{"-s"}, {"-x", "y"}, {"file"}, {"-ss", "x"}} {
		c := newContainer(t, arguments...)
		require.Equal(t, 125, c.wait())
		require.Contains(t, c.Complaint(), "usage")
	}
}

// TestNobodyReads checks that init waits for a slow reader while it has a controller.
func TestNobodyReads(t *testing.T) {
	c := newContainer(t)
	r, w := io.Pipe()
	c.stdout = w
	c.begin(sh("head -c 1000000 /dev/zero; exit 5"))
	first := make([]byte, 1)
	_, err := io.ReadFull(r, first)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(c.ctx, 200*time.Millisecond)
	defer cancel()
	_, err = c.End(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var n int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, _ = io.Copy(io.Discard, r) // until w is closed
	}()
	report := c.end()
	w.Close()
	<-done
	require.Equal(t, int64(999_999), n)
	requireExit(t, c, report, 5)
	require.Equal(t, 5, c.bye())
}

// TestHiddenInit checks in /proc, from outside, that init has one thread and blocks all signals
// while its program runs. Before that it starts threads that use up process IDs.
func TestHiddenInit(t *testing.T) {
	c := newContainer(t)
	r, w := io.Pipe()
	c.stdout = w
	c.begin(sh("echo; exec sleep 60"))
	_, err := io.ReadFull(r, make([]byte, 1))
	require.NoError(t, err)
	var status []byte
	require.Eventually(t, func() bool { // the kernel counts the last of these threads a little longer
		status, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
		return err != nil || strings.Contains(string(status), "Threads:\t1\n")
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, err)
	require.Contains(t, string(status), "SigBlk:\tfffffffffffbfeff\n") // all but SIGKILL and SIGSTOP
	require.Contains(t, string(status), "SigCgt:\t0000000000000000\n")
}

// TestInitSleepsWhileItHolds checks that init uses no processor time while a controller keeps
// the container beyond the job's deadline.
func TestInitSleepsWhileItHolds(t *testing.T) {
	job := sh("exit 4")
	job.Timeout = time.Second
	c, report := run(t, job)
	<-time.After(job.Timeout) // until after the deadline of the ended job
	before := ticks(t, c)
	<-time.After(200 * time.Millisecond)
	require.Less(t, ticks(t, c)-before, 10, "init wakes up all the time")
	requireExit(t, c, report, 4)
}

// ticks is the processor time of init, in hundredths of a second.
func ticks(t *testing.T, c *container) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	var user, system int
	fields := strings.Fields(rest)
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	require.NoError(t, err)
	return user + system
}

// TestProcessID: the program has the same ID, however many processes and threads there were before,
// and after a warm-up.
func TestProcessID(t *testing.T) {
	warmUp := &Wait{Args: []string{"true"}, Dir: "/", Patience: patience}
	for name, test := range map[string]struct {
		before    string
		arguments []string
		wait      *Wait
	}{
		"nothing":        {},
		"two processes":  {before: "sh -c '(:); (:); exec \"$@\"' sh"},
		"five processes": {before: "sh -c '(:); (:); (:); (:); (:); exec \"$@\"' sh"},
		"idle threads":   {arguments: InitArguments(1)},
		"a warm-up":      {wait: warmUp},
		"all of it":      {before: "sh -c '(:); exec \"$@\"' sh", arguments: InitArguments(4), wait: warmUp},
	} {
		t.Run(name, func(t *testing.T) {
			c := tappedContainer(t, test.before, func(r *Receiver) io.Writer { return r.Stdout() }, test.arguments...)
			if test.wait != nil {
				c.await(*test.wait)
			}
			c.begin(sh("echo $$; sh -c 'echo $$'; :"))
			requireExit(t, c, c.end(), 0)
			require.Equal(t, "16\n17\n", c.outText.String())
		})
	}
}
