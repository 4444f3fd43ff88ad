package stream

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Bounds of the queue in memory. Bytes that a file keeps are queued as a range
// of that file and cost nothing; only what no file keeps is held in memory.
const (
	maxMemory   = 8 << 20
	maxSegments = 1 << 16
	copyBuffer  = 64 << 10
)

// Live passes the output of a program on while it runs, in the order in which it
// came, to writers that may be slow, blocked or broken. A slow writer reads
// behind from the recorded files; only output beyond what the files keep can be
// dropped, and then a line says how much.
type Live struct {
	mu       sync.Mutex
	changed  *sync.Cond
	queue    []segment
	memBytes int
	closed   bool
	progress int64

	outs    [2]io.Writer
	sources [2]io.ReaderAt
	failed  [2]error
	done    chan struct{}
}

// segment is a piece of one stream: a range of its file, bytes in memory, or a
// number of bytes that were dropped.
type segment struct {
	stream  int
	offset  int64
	length  int64
	data    []byte
	dropped int64
}

// NewLive passes stream 0 on to stdout and stream 1 to stderr; either may be nil.
// The sources are the recorded files, opened for reading. Run [Live.Finish] when
// no more output will come.
func NewLive(stdout, stderr io.Writer, stdoutFile, stderrFile io.ReaderAt) *Live {
	l := &Live{
		outs:    [2]io.Writer{stdout, stderr},
		sources: [2]io.ReaderAt{stdoutFile, stderrFile},
		done:    make(chan struct{}),
	}
	l.changed = sync.NewCond(&l.mu)
	go l.run()
	return l
}

// stored queues a range of the stream's file.
func (l *Live) stored(stream int, offset, length int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outs[stream] == nil {
		return
	}
	if last := l.lastOf(stream); last != nil && last.data == nil && last.dropped == 0 && last.offset+last.length == offset {
		last.length += length
	} else {
		l.queue = append(l.queue, segment{stream: stream, offset: offset, length: length})
	}
	l.changed.Signal()
}

// memory queues bytes that no file keeps.
func (l *Live) memory(stream int, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outs[stream] == nil {
		return
	}
	last := l.lastOf(stream)
	if l.memBytes+len(p) > maxMemory || len(l.queue) >= maxSegments {
		if last == nil || last.dropped == 0 {
			l.queue = append(l.queue, segment{stream: stream})
			last = &l.queue[len(l.queue)-1]
		}
		last.dropped += int64(len(p))
	} else {
		l.queue = append(l.queue, segment{stream: stream, data: append([]byte(nil), p...)})
		l.memBytes += len(p)
	}
	l.changed.Signal()
}

// lastOf returns the segment that new output of the stream may be merged into:
// the last of the queue, or, once the queue is full of tiny pieces of two
// interleaved streams, the last of this stream.
func (l *Live) lastOf(stream int) *segment {
	for i := len(l.queue) - 1; i >= 0; i-- {
		if l.queue[i].stream == stream {
			return &l.queue[i]
		}
		if len(l.queue) < maxSegments {
			return nil
		}
	}
	return nil
}

// run is the live reader.
func (l *Live) run() {
	defer close(l.done)
	buffer := make([]byte, copyBuffer)
	for {
		next, ok := l.take()
		if !ok {
			return
		}
		if l.failed[next.stream] != nil {
			continue
		}
		l.failed[next.stream] = l.pass(next, buffer)
	}
}

// take waits for the next segment.
func (l *Live) take() (segment, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 {
		if l.closed {
			return segment{}, false
		}
		l.changed.Wait()
	}
	next := l.queue[0]
	l.queue[0] = segment{} // the array behind the queue must not keep the bytes
	l.queue = l.queue[1:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	l.memBytes -= len(next.data)
	return next, true
}

// pass writes one segment to its writer.
func (l *Live) pass(s segment, buffer []byte) error {
	out := l.outs[s.stream]
	switch {
	case s.dropped > 0:
		return l.write(out, fmt.Appendf(nil, "\n[... %d bytes not shown: the reader was too slow ...]\n", s.dropped))
	case s.data != nil:
		return l.write(out, s.data)
	}
	for s.length > 0 {
		n, err := l.sources[s.stream].ReadAt(buffer[:min(int64(len(buffer)), s.length)], s.offset)
		if n == 0 && err != nil {
			return fmt.Errorf("reading recorded output: %w", err)
		}
		if err := l.write(out, buffer[:n]); err != nil {
			return err
		}
		s.offset += int64(n)
		s.length -= int64(n)
	}
	return nil
}

func (l *Live) write(out io.Writer, p []byte) error {
	_, err := out.Write(p)
	l.mu.Lock()
	l.progress++
	l.mu.Unlock()
	return err
}

// ErrStuck means that a live writer made no progress for the patience given to
// [Live.Finish].
var ErrStuck = errors.New("the reader of the live output is stuck")

// Finish says that no more output comes and waits until all of it was passed on.
// It gives up when nothing moved for patience; the writer may then still be in a
// call. It returns the first failure of each writer.
func (l *Live) Finish(patience time.Duration) error {
	l.mu.Lock()
	l.closed = true
	seen := l.progress
	l.changed.Signal()
	l.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-l.done:
			return errors.Join(l.failed[0], l.failed[1])
		case <-timer.C:
			l.mu.Lock()
			now := l.progress
			l.mu.Unlock()
			if now == seen {
				return ErrStuck
			}
			seen = now
			timer.Reset(patience)
		}
	}
}
