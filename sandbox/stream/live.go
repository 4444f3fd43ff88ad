package stream

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Bounds of the queue in memory, and the size of the copy buffer. Bytes that a file keeps are
// queued as a range of that file. Only other bytes are kept in memory.
const (
	maxMemory   = 8 << 20
	maxSegments = 1 << 16
	copyBuffer  = 64 << 10
)

// liveOutput passes the output of a program on while it runs, in its order, to writers that
// may be slow, blocked or broken. A slow writer gets its bytes from the recorded files. Only
// output that the files do not keep can be dropped, and then a line says how much.
type liveOutput struct {
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

// segment is a piece of one stream: a range of its file, bytes in memory, or the number of
// dropped bytes.
type segment struct {
	stream  int
	offset  int64
	length  int64
	data    []byte
	dropped int64
}

// newLiveOutput passes stream 0 on to stdout and stream 1 to stderr; either may be nil. The
// sources are the recorded files, opened for reading. The caller calls finish at the end.
func newLiveOutput(stdout, stderr io.Writer, stdoutFile, stderrFile io.ReaderAt) *liveOutput {
	l := &liveOutput{
		outs:    [2]io.Writer{stdout, stderr},
		sources: [2]io.ReaderAt{stdoutFile, stderrFile},
		done:    make(chan struct{}),
	}
	l.changed = sync.NewCond(&l.mu)
	go l.run()
	return l
}

// stored queues a range of the stream's file.
func (l *liveOutput) stored(stream int, offset, length int64) {
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
func (l *liveOutput) memory(stream int, p []byte) {
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

// lastOf returns the segment that new output of the stream may be merged into: the last
// segment of the queue, or the last one of this stream once the queue is full of tiny
// pieces of two interleaved streams.
func (l *liveOutput) lastOf(stream int) *segment {
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
func (l *liveOutput) run() {
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
func (l *liveOutput) take() (segment, bool) {
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
func (l *liveOutput) pass(s segment, buffer []byte) error {
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

func (l *liveOutput) write(out io.Writer, p []byte) error {
	_, err := out.Write(p)
	l.mu.Lock()
	l.progress++
	l.mu.Unlock()
	return err
}

// errStuck means that a live writer made no progress for the patience of finish.
var errStuck = errors.New("the reader of the live output is stuck")

// finish waits until all output was passed on; no more may come. It gives up after no progress
// for patience, and the writer may then still be in a call. It returns the first failure of
// each writer.
func (l *liveOutput) finish(patience time.Duration) error {
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
				return errStuck
			}
			seen = now
			timer.Reset(patience)
		}
	}
}
