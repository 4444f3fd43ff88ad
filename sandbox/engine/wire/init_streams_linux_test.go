package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/ends"
)

// TestNonceIsNotInTheStream: a program can read unread bytes of its own stdout. The answer to
// the job may be among them, and must not reveal the nonce.
func TestNonceIsNotInTheStream(t *testing.T) {
	var raw bytes.Buffer
	c := tappedContainer(t, "", func(r *Receiver) io.Writer { return io.MultiWriter(r.Stdout(), &raw) })
	c.begin(sh("echo of the program"))
	c.end()
	c.bye()
	before, after, found := bytes.Cut(raw.Bytes(), []byte("of the program\n"))
	require.True(t, found)
	require.Contains(t, string(before), string(c.nonce[:shownNonce]))
	// The byte behind the shown ones may be that of the frame by chance.
	require.NotContains(t, string(before), string(c.nonce[:shownNonce+4]))
	require.True(t, bytes.HasPrefix(after, c.nonce[:]))
	require.NotContains(t, string(after[nonceSize:]), string(c.nonce[shownNonce:]))
}

// TestAnswerIsNotTaken: a program can read unread bytes of its own stdout. It starts after the
// answer to its job was read, so that it cannot steal the answer.
func TestAnswerIsNotTaken(t *testing.T) {
	read := make(chan struct{})
	c := tappedContainer(t, "", func(r *Receiver) io.Writer {
		return writer(func(p []byte) {
			_, _ = r.Stdout().Write(p)
			select {
			case <-r.isReady:
				<-read // the answer stays in the pipe
			default:
			}
		})
	})
	next := sync.OnceFunc(func() { close(read) })
	t.Cleanup(next)
	c.ready()
	c.Begin(c.nonce, c.stdout, c.stderr)
	job := python(ends.Prelude + "print(attempt(os.read, os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK), 99), file=sys.stderr)")
	job.Nonce, job.Dir = c.nonce, "/"
	frame, err := job.Encode()
	require.NoError(t, err)
	c.send(frame)
	ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond) // long enough for the program to start
	defer cancel()
	require.ErrorIs(t, c.Accepted(ctx), context.DeadlineExceeded)
	next()
	require.NoError(t, c.Accepted(c.ctx))
	requireExit(t, c, c.end(), 0)
	require.Equal(t, "EAGAIN\n", c.errText.String())
}

// requireRoot is for tests that inspect other namespaces, or create processes in them.
func requireRoot(t *testing.T) {
	t.Helper()
	require.Zero(t, os.Getuid(), "this test needs root")
}

// processesOf returns the processes of the container's PID namespace, by their PIDs outside.
func processesOf(t *testing.T, c *container) []int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.cmd.Process.Pid))
	require.NoError(t, err)
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	require.NoError(t, err)
	var found []int
	for _, link := range links {
		if other, err := os.Readlink(link); err == nil && other == ns { // an error means that it has ended
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			require.NoError(t, err)
			found = append(found, pid)
		}
	}
	return found
}

// TestProcessesLeft checks that init reports processes that it may not kill after 10 seconds,
// and that they do not change the end of the program.
func TestProcessesLeft(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	c := newContainer(t)
	job := sh("read x; exit 3")
	job.Stdin = true
	c.begin(job)
	// A root process becomes init's child when its parent ends.
	enter := exec.CommandContext(c.ctx, "nsenter", "-t", strconv.Itoa(c.cmd.Process.Pid), "-p", "--", "sh", "-c", "sleep 1000 & sleep 1000 &")
	require.NoError(t, enter.Run())
	_, err := InputWriter(c.stdin).Write([]byte("\n"))
	require.NoError(t, err)
	began := time.Now()
	report := c.end()
	require.Greater(t, time.Since(began), 9*time.Second)
	require.Equal(t, Exited, report.Kind)
	require.Equal(t, 3, report.Value)
	require.Equal(t, 2, report.ProcessesLeft)
	require.Less(t, report.Wall, 9*time.Second)
	require.Equal(t, 3, c.bye())
}
