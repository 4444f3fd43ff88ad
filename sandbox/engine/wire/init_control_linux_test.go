package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// request sends one byte to the descriptor of -c.
func (c *container) request(what byte) {
	c.t.Helper()
	_, err := c.control.Write([]byte{what})
	require.NoError(c.t, err)
}

// blocked is a program with an input that it does not read, and which fills its pipe.
func blocked(t *testing.T, c *container, program string) {
	t.Helper()
	job := python(program)
	job.Stdin, job.Grace = true, time.Minute
	next := lines(c)
	c.begin(job)
	require.Equal(t, "begun", next())
	go func() {
		_, _ = InputWriter(c.stdin).Write([]byte(strings.Repeat("x", 1<<20))) // until the container ends
	}()
}

const ignoresInput = "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(3)); print('begun', flush=True)\nwhile True: time.sleep(0.01)"

// TestControl checks that requests of the descriptor arrive although input holds up the frames.
func TestControl(t *testing.T) {
	t.Run("stop", func(t *testing.T) {
		c := newContainer(t, "-c", "3")
		blocked(t, c, ignoresInput)
		c.request(RequestStop)
		report := c.end()
		require.Equal(t, []any{Exited, 3, StopTerm}, []any{report.Kind, report.Value, report.Stop})
		require.Equal(t, 143, c.bye())
	})
	t.Run("kill", func(t *testing.T) {
		c := newContainer(t, "-c", "3")
		blocked(t, c, ignoresInput)
		c.request(RequestKill)
		report := c.end()
		require.Equal(t, []any{Signaled, 9, StopKill}, []any{report.Kind, report.Value, report.Stop})
		require.Equal(t, 137, c.bye())
	})
	t.Run("without a job", func(t *testing.T) {
		for request, code := range map[byte]int{RequestStop: 143, RequestKill: 137, RequestGone: 125} {
			c := newContainer(t, "-c", "3")
			c.ready()
			c.request(request)
			require.Equal(t, code, c.wait())
		}
	})
}

// TestControllerThatReturns checks that the orphan limit holds, and that init waits for another
// controller with its report.
func TestControllerThatReturns(t *testing.T) {
	job := python("import time; print('begun', flush=True); time.sleep(60)")
	job.OrphanLimit, job.Grace = 100*time.Millisecond, time.Second
	c := newContainer(t, "-c", "3")
	next := lines(c)
	c.begin(job)
	require.Equal(t, "begun", next())
	c.request(RequestGone)
	report := c.end()
	require.True(t, report.Abandoned)
	require.Equal(t, StopOrphan, report.Stop)
	// The signal that ends it shows that init was still there, and read the bye.
	require.Equal(t, 143, c.bye())
}

// TestControlIsNotInherited checks that the program has nothing but its three streams.
func TestControlIsNotInherited(t *testing.T) {
	c := newContainer(t, "-c", "3")
	c.begin(sh("ls /proc/self/fd"))
	requireExit(t, c, c.end(), 0)
	require.Equal(t, "0\n1\n2\n3\n", c.outText.String()) // 3 is the directory itself
	require.Zero(t, c.bye())

	c = newContainer(t, "-c", "9")
	require.Equal(t, 125, c.wait())
	require.Contains(t, c.Complaint(), "the descriptor of -c is not open")
}
