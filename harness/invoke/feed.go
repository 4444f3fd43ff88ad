package invoke

import (
	"bytes"
	"io"
	"time"
)

// feedPieces bounds what waits for a reader of the live output, in pieces of at most
// readSize.
const feedPieces = 128

// feed passes output on to somebody who watches it, and who may be slow, stuck or gone.
// It waits for a slow reader; one that takes nothing for as long as drain lasts gets no
// more.
type feed struct {
	out   io.Writer
	after func(time.Duration) <-chan time.Time
	queue chan []byte
	done  chan struct{}
	// stuck says that the reader was given up. It belongs to whoever passes.
	stuck bool
}

func newFeed(out io.Writer, after func(time.Duration) <-chan time.Time) *feed {
	f := &feed{out: out, after: after, queue: make(chan []byte, feedPieces), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		var failed error
		for piece := range f.queue {
			if failed == nil {
				_, failed = f.out.Write(piece) // once it fails, the result has it
			}
		}
	}()
	return f
}

// pass queues output.
func (f *feed) pass(p []byte) {
	if f.stuck || len(p) == 0 {
		return
	}
	piece := bytes.Clone(p)
	select {
	case f.queue <- piece:
		return
	default:
	}
	select {
	case f.queue <- piece:
	case <-f.after(drain):
		f.stuck = true
	}
}

// end says that nothing more will be passed.
func (f *feed) end() { close(f.queue) }

// finish waits, after the end, until all is passed on, or the reader takes nothing any
// more. It reports whether all was.
func (f *feed) finish() bool {
	for {
		waiting := len(f.queue)
		select {
		case <-f.done:
			return !f.stuck
		case <-f.after(drain):
			if f.stuck || len(f.queue) == waiting {
				return false
			}
		}
	}
}
