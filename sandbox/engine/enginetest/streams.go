package enginetest

import (
	"io"
	"runtime"
	"slices"
	"sync"
)

// defaultLog bounds the engine's own copy of an output.
const defaultLog = 16 << 20

// tape is the engine's copy of a job's output, and the connections to it. A write waits until
// every connection has passed it on.
type tape struct {
	mu     sync.Mutex
	limit  int
	size   int
	first  int // the number of the oldest chunk kept
	chunks []chunk
	closed bool
	marked bool
	// changed is closed, and replaced, at every change.
	changed chan struct{}
	readers []*connection
}

type chunk struct {
	stderr bool
	bytes  []byte
}

func newTape(limit int) *tape {
	if limit == 0 {
		limit = defaultLog
	}
	return &tape{limit: limit, changed: make(chan struct{})}
}

// wake wakes all waiting goroutines. The lock is held.
func (t *tape) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// write appends to the tape and waits for the connections, or until dead is closed. It reports
// whether the write was complete.
func (t *tape) write(stderr bool, text []byte, dead <-chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	number := t.first + len(t.chunks)
	t.chunks = append(t.chunks, chunk{stderr, slices.Clone(text)})
	t.size += len(text)
	t.wake()
	for slices.ContainsFunc(t.readers, func(c *connection) bool { return c.next <= number }) {
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-dead:
			t.mu.Lock()
			return false
		}
		t.mu.Lock()
	}
	for t.size > t.limit && len(t.chunks) > 1 {
		t.size -= len(t.chunks[0].bytes)
		t.chunks = t.chunks[1:]
		t.first++
	}
	return true
}

// close ends the tape, with or without end marks.
func (t *tape) close(marked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed, t.marked = true, marked
		t.wake()
	}
}

// connect adds a connection, which continues where the previous one was broken.
func (t *tape) connect(before *connection, stuck bool) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &connection{tape: t, stuck: stuck, done: make(chan struct{}), cut: make(chan struct{})}
	if before != nil {
		c.next = before.next
	}
	t.readers = append(t.readers, c)
	return c
}

// connection passes a tape on, from one goroutine.
type connection struct {
	tape  *tape
	stuck bool
	next  int // the number of the next chunk
	isCut bool
	all   bool // it reached the end marks
	// cut is closed to break it, done when it has ended.
	cut, done chan struct{}
}

// close breaks the connection.
func (c *connection) close() {
	t := c.tape
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.isCut {
		c.isCut = true
		close(c.cut)
		c.leave()
	}
}

// leave removes the connection from its tape. The lock is held.
func (c *connection) leave() {
	c.tape.readers = slices.DeleteFunc(c.tape.readers, func(other *connection) bool { return other == c })
	c.tape.wake()
}

// ended reports whether the output was read to both end marks.
func (c *connection) ended() bool {
	if c == nil {
		return false
	}
	c.tape.mu.Lock()
	defer c.tape.mu.Unlock()
	return c.all
}

func (c *connection) copy(before *connection, stdout, stderr io.Writer) {
	t := c.tape
	defer close(c.done)
	if before != nil {
		<-before.done
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if before != nil {
		c.next = before.next
	}
	for !c.isCut {
		c.next = max(c.next, t.first)
		if at := c.next - t.first; at < len(t.chunks) {
			piece := t.chunks[at]
			to := &stdout
			if piece.stderr {
				to = &stderr
			}
			t.mu.Unlock()
			if *to != nil {
				if _, err := (*to).Write(piece.bytes); err != nil {
					*to = nil
				}
			}
			t.mu.Lock()
			c.next++
			t.wake()
			continue
		}
		if t.closed && !c.stuck {
			c.all = t.marked
			c.leave()
			return
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-c.cut:
		}
		t.mu.Lock()
	}
}

// output is stdout or stderr of a program.
type output struct {
	p      *Program
	stderr bool
}

// Write ends the program's goroutine when the program is dead.
func (o output) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if !o.p.c.tape.write(o.stderr, text, o.p.dead) {
		runtime.Goexit()
	}
	return len(text), nil
}

// input is the standard input of a program.
type input struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newInput() *input {
	r, w := io.Pipe()
	return &input{r, w}
}

// feed copies until either side ends. A blocked reader may hold it up after the program's end.
func (i *input) feed(from io.Reader) {
	_, err := io.Copy(i.w, from)
	_ = i.w.CloseWithError(err) // never fails
}

// close ends the input.
func (i *input) close() error { return i.w.Close() }
