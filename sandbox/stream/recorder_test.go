package stream

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// newFile is a recorded file, open for writing and for reading.
func newFile(t testing.TB) (write, read *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stream.log")
	write, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	read, err = os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = write.Close() // the test may have closed it
		_ = read.Close()
	})
	return write, read
}

// put writes p as the engine's reader does: the slice is used again afterwards.
func put(t testing.TB, w io.Writer, p []byte) {
	t.Helper()
	again := append([]byte(nil), p...)
	n, err := w.Write(again)
	require.NoError(t, err)
	require.Equal(t, len(p), n)
	clear(again)
}

// pattern is n bytes that tell their own position.
func pattern(seed, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((i + seed) % 251)
	}
	return p
}

func TestRecorderKeepsTheLimitAndCountsAll(t *testing.T) {
	text := pattern(0, 1000)
	for _, limit := range []int64{0, 1, 99, 100, 101, 999, 1000, 1001, 1 << 40} {
		for _, piece := range []int{1, 7, 100, 1000} {
			t.Run(fmt.Sprintf("limit %d in pieces of %d", limit, piece), func(t *testing.T) {
				write, read := newFile(t)
				var told int64
				r := newRecorder(write, limit, nil, 0, func(n int64) { told += n })
				for at := 0; at < len(text); at += piece {
					put(t, r, text[at:min(at+piece, len(text))])
				}
				put(t, r, nil)
				want := text[:min(limit, int64(len(text)))]
				require.Equal(t, int64(len(text)), r.Total())
				require.Equal(t, int64(len(text)), told)
				require.Equal(t, int64(len(want)), r.Kept())
				require.NoError(t, r.Close())
				kept, err := io.ReadAll(read)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, kept))
			})
		}
	}
}

func TestRecorderFeedsObserversAlsoBeyondTheLimit(t *testing.T) {
	write, _ := newFile(t)
	var first, second bytes.Buffer
	r := newRecorder(write, 3, nil, 0, nil, &first, &second)
	put(t, r, []byte("ab"))
	put(t, r, []byte("cdef"))
	put(t, r, []byte("g"))
	require.Equal(t, "abcdefg", first.String())
	require.Equal(t, "abcdefg", second.String())
	require.Equal(t, int64(3), r.Kept())
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestRecorderSurvivesAnObserverThatFails(t *testing.T) {
	write, _ := newFile(t)
	var after bytes.Buffer
	r := newRecorder(write, 100, nil, 0, nil, failingWriter{io.ErrClosedPipe}, &after)
	put(t, r, []byte("text"))
	require.Equal(t, "text", after.String())
	require.Equal(t, int64(4), r.Kept())
	require.NoError(t, r.Close())
}

func TestRecorderGoesOnWhenTheDiskIsFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	_, read := newFile(t) // what a live reader could see: nothing
	var observed, shown bytes.Buffer
	live := newLiveOutput(&shown, nil, read, nil)
	r := newRecorder(full, 1<<20, live, 0, nil, &observed)
	put(t, r, []byte("one "))
	put(t, r, []byte("two"))
	require.NoError(t, live.finish(patience))
	require.Equal(t, "one two", observed.String())
	require.Equal(t, "one two", shown.String(), "what no file keeps is shown from memory")
	require.Equal(t, int64(7), r.Total())
	require.Zero(t, r.Kept())
	require.ErrorIs(t, r.Close(), syscall.ENOSPC, "the loss is reported once, at the end")
}

// A file that failed once stays as it is, even if the disk has room again: a
// hole in the middle would look like output that never was.
func TestRecorderLeavesNoHole(t *testing.T) {
	write, read := newFile(t)
	r := newRecorder(write, 1<<20, nil, 0, nil)
	put(t, r, []byte("before"))
	good := r.file
	closed, _ := newFile(t)
	require.NoError(t, closed.Close())
	r.file = closed
	put(t, r, []byte("lost"))
	r.file = good
	put(t, r, []byte("after"))
	require.Equal(t, int64(6), r.Kept())
	require.Equal(t, int64(15), r.Total())
	require.ErrorIs(t, r.Close(), os.ErrClosed)
	kept, err := io.ReadAll(read)
	require.NoError(t, err)
	require.Equal(t, "before", string(kept))
}

func TestRecorderCloseReportsTheFile(t *testing.T) {
	write, _ := newFile(t)
	r := newRecorder(write, 10, nil, 0, nil)
	require.NoError(t, r.Close())
	require.Error(t, r.Close())
}

func TestTotalIsReadWhileOthersWrite(t *testing.T) {
	write, _ := newFile(t)
	r := newRecorder(write, 100, nil, 0, nil)
	var done sync.WaitGroup
	stop := make(chan struct{})
	started := make(chan struct{})
	done.Go(func() {
		close(started)
		last := int64(0)
		for {
			now := r.Total()
			if now < last {
				t.Errorf("the total fell from %d to %d", last, now)
				return
			}
			last = now
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	<-started
	for range 10_000 {
		put(t, r, []byte("xyz"))
	}
	close(stop)
	done.Wait()
	require.Equal(t, int64(30_000), r.Total())
}
