package wire

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runPinned runs a job whose container may use one processor.
func runPinned(t *testing.T, job Job) Report {
	t.Helper()
	c := tappedContainer(t, "taskset -c 0", func(r *Receiver) io.Writer { return r.Stdout() })
	c.begin(job)
	return c.end()
}

// spinBeside keeps a processor busy during a test.
func spinBeside(t *testing.T, spinners int) {
	t.Helper()
	for range spinners {
		cmd := exec.Command("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
		})
	}
}

// TestShare: init says what a program lacked, not how little it used.
func TestShare(t *testing.T) {
	spinBeside(t, 6)
	spin := "while :; do :; done"
	limited := func(job Job) Job {
		job.Timeout = 3 * time.Second
		return job
	}
	t.Run("spins", func(t *testing.T) {
		r := runPinned(t, limited(sh(spin)))
		require.True(t, r.Share.Known)
		assert.Greater(t, r.Share.Lacked, r.Share.Ran, "%+v", r.Share)
		assert.Greater(t, r.Share.Lacked, r.Wall/2, "%+v", r.Share)
		assert.InDelta(t, r.Wall.Seconds(), (r.Share.Ran + r.Share.Waited).Seconds(), 1, "%+v", r.Share)
		assert.Zero(t, r.Share.Gap)
	})
	t.Run("sleeps", func(t *testing.T) {
		r := runPinned(t, limited(sh("exec sleep 60")))
		assert.Less(t, r.Share.Lacked, r.Wall/4, "%+v", r.Share)
	})
	t.Run("waits for itself", func(t *testing.T) {
		r := runPinned(t, limited(sh(strings.Repeat("("+spin+") & ", 3)+spin)))
		assert.Greater(t, r.Share.Waited, 2*r.Wall, "%+v", r.Share)
		assert.LessOrEqual(t, r.Share.Lacked, r.Wall, "four loops can use one processor: %+v", r.Share)
	})
	t.Run("may use a tenth of a processor", func(t *testing.T) {
		job := limited(sh(spin))
		job.Processors = 0.1
		r := runPinned(t, job)
		assert.Less(t, r.Share.Lacked, r.Wall/10, "%+v", r.Share)
	})
	t.Run("ends at once", func(t *testing.T) {
		r := runPinned(t, sh("true"))
		assert.Positive(t, r.Share.Ran, "its last reading is made before it is reaped")
	})
}

// TestShareOfThreads: a thread that ends with its program at the time limit is read before that.
func TestShareOfThreads(t *testing.T) {
	job := python("import threading\ndef spin():\n    while True: pass\nt = threading.Thread(target=spin)\nt.start()\nt.join()")
	job.Timeout = 900 * time.Millisecond // before the first tick
	r := runPinned(t, job)
	require.Equal(t, StopDeadline, r.Stop)
	assert.InDelta(t, r.Usage.CPU.Seconds(), r.Share.Ran.Seconds(), 0.1, "%+v", r)
}

// TestAvailable: nobody took idle processor time from a program.
func TestAvailable(t *testing.T) {
	c := newContainer(t)
	c.ready()
	before := idleTime(t)
	job := sh("exec sleep 2")
	c.begin(job)
	r := c.end()
	idle := idleTime(t) - before
	all := time.Duration(runtime.NumCPU()) * r.Wall
	assert.InDelta(t, (all - min(idle, all)).Seconds(), r.Share.Available.Seconds(), 0.5, "%+v, idle %v", r.Share, idle)
}

// idleTime returns for how long all processors of this machine have been idle or waited for a disk.
func idleTime(t *testing.T) (idle time.Duration) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	fields := strings.Fields(strings.SplitN(string(text), "\n", 2)[0])
	for _, field := range fields[4:6] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		require.NoError(t, err)
		idle += time.Duration(ticks) * time.Second / 100
	}
	return idle
}

// TestGap: a container that stands still does not wait for a processor.
func TestGap(t *testing.T) {
	c := newContainer(t)
	out, to := io.Pipe()
	c.stdout = to
	job := sh("echo on; while :; do sleep 0.1; done")
	job.Timeout = 2 * time.Second
	c.begin(job)
	_, err := out.Read(make([]byte, 3))
	require.NoError(t, err)
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	for state := ""; state != "T"; { // the test would not end otherwise
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		require.NoError(t, err)
		state = strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
	}
	<-time.After(5 * time.Second) // how long it stands still
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
	r := c.end()
	assert.Equal(t, StopDeadline, r.Stop)
	assert.Greater(t, r.Share.Gap, 2*time.Second, "of a time limit of 2s: %+v", r)
	assert.Less(t, r.Share.Gap, r.Wall)
}
