package invoke

import (
	"io"
	"os"
	"sync"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// capture reads one stream of a process to its end, whatever happens to those who
// watch it, and keeps its head and tail.
type capture struct {
	read, write *os.File
	live        io.Writer
	// done is closed when the stream has ended.
	done chan struct{}

	mu   sync.Mutex
	kept *result.HeadTail
}

func newCapture(limit policy.Size, live io.Writer) (*capture, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &capture{read: read, write: write, live: live, done: make(chan struct{}), kept: result.NewHeadTail(int(limit))}, nil
}

// start reads, once the process has its end of the pipe.
func (c *capture) start() {
	_ = c.write.Close()
	go func() {
		defer close(c.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := c.read.Read(buf)
			c.keep(buf[:n])
			if c.live != nil && n > 0 {
				if _, failed := c.live.Write(buf[:n]); failed != nil {
					c.live = nil // the result has it
				}
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
