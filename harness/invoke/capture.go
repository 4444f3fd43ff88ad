package invoke

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// capture reads one stream of a process to its end, whatever happens to those who
// watch it, and keeps its head and tail.
type capture struct {
	read, write *os.File
	after       func(time.Duration) <-chan time.Time
	out         io.Writer
	live        *feed // nil for none
	// done is closed when the stream has ended.
	done chan struct{}
	// passing says that a reader of the live output is waited for.
	passing atomic.Bool

	mu   sync.Mutex
	kept *result.HeadTail
}

// readSize is how much is read at once.
const readSize = 64 << 10

func newCapture(limit policy.Size, live io.Writer, after func(time.Duration) <-chan time.Time) (*capture, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &capture{read: read, write: write, after: after, out: live, done: make(chan struct{}), kept: result.NewHeadTail(int(limit))}, nil
}

// start reads, once the process has its end of the pipe.
func (c *capture) start() {
	_ = c.write.Close()
	if c.out != nil {
		c.live = newFeed(c.out, c.after)
	}
	go func() {
		defer close(c.done)
		if c.live != nil {
			defer c.live.end()
		}
		buf := make([]byte, readSize)
		for {
			n, err := c.read.Read(buf)
			c.keep(buf[:n])
			if c.live != nil {
				c.passing.Store(true)
				c.live.pass(buf[:n])
				c.passing.Store(false)
			}
			if err != nil {
				return
			}
		}
	}()
}

func (c *capture) keep(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.kept.Write(p) // never fails
}

// maxPatience bounds how often an end is waited for anew.
const maxPatience = 10

// ended waits for the end of the stream, but not long for one that somebody else holds
// open: that is left. That a reader of ours is slow does not count.
func (c *capture) ended(deadline <-chan time.Time) bool {
	for range maxPatience {
		select {
		case <-c.done:
			return true
		case <-deadline:
		}
		select {
		case <-c.done: // both are the case
			return true
		default:
		}
		if !c.passing.Load() {
			break
		}
		deadline = c.after(drain)
	}
	_ = c.read.Close()
	<-c.done
	return false
}

// shown waits until those who watch have all of a stream that has ended or was left, and
// reports whether they do.
func (c *capture) shown() bool { return c.live == nil || c.live.finish() }

// text is what was kept so far, how much there was, and whether some was dropped.
func (c *capture) text() (text string, total int64, truncated bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Text(), c.kept.Total(), c.kept.Truncated()
}

// close ends the reading, also of a stream that somebody still holds open.
func (c *capture) close() {
	_ = c.write.Close()
	_ = c.read.Close()
}
