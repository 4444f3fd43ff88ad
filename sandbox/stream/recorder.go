// Package stream records the output of a program, and shows it live. The reader of a
// container's streams must never stop reading, because that would block the container.
// So a full disk, a slow terminal or a closed pipe does not block anything here.
package stream

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
)

// A recorder records one stream of a program: it counts every byte, keeps the first bytes in
// a file, passes all bytes to observers, and queues them for the live output.
//
// Write never fails and never blocks on anything but the local file. A recorder
// is written from one goroutine; Total may be read from any.
type recorder struct {
	file      *os.File
	limit     int64
	kept      int64
	fileErr   error
	observers []io.Writer
	live      *liveOutput
	index     int
	total     atomic.Int64
	onTotal   func(int64)

	// known is the part of the stream that another process has recorded, and knownLen its
	// length; again counts the bytes of it that have come again. parted says that
	// something else came.
	known           io.ReaderAt
	knownLen, again int64
	parted          bool
}

// newRecorder records into file, at most limit bytes of it. The observers get every byte and
// must not fail. live may be nil, and index is the stream's number there. onWrite, if not
// nil, gets the number of bytes of every write.
func newRecorder(file *os.File, limit int64, live *liveOutput, index int, onWrite func(int64), observers ...io.Writer) *recorder {
	return &recorder{file: file, limit: limit, live: live, index: index, onTotal: onWrite, observers: observers}
}

// resume takes what another process has recorded in the file. The stream then comes again
// from its beginning, as far as the engine still has it: what is known is not recorded twice.
func (r *recorder) resume(known io.ReaderAt, length int64) {
	r.known, r.knownLen, r.kept = known, length, length
	r.replay(length)
	if r.live != nil && length > 0 {
		r.live.stored(r.index, 0, length)
	}
}

// replay passes the first bytes of the known part on to the observers.
func (r *recorder) replay(length int64) {
	buffer := make([]byte, copyBuffer)
	for at := int64(0); at < length; {
		n, err := r.known.ReadAt(buffer[:min(length-at, copyBuffer)], at)
		if n == 0 && err != nil {
			r.fileErr = err
			return
		}
		r.observe(buffer[:n])
		at += int64(n)
	}
}

// Write takes all of p.
func (r *recorder) Write(p []byte) (int, error) {
	if rest := r.skipKnown(p); len(rest) > 0 {
		r.take(rest)
	}
	return len(p), nil
}

// skipKnown drops what is known from the beginning of p. The engine's copy of a long stream
// has lost its beginning: then something else comes, and all of it counts.
func (r *recorder) skipKnown(p []byte) []byte {
	buffer := make([]byte, min(int64(len(p)), r.knownLen-r.again, copyBuffer))
	for len(p) > 0 && r.again < r.knownLen && !r.parted {
		piece := buffer[:min(int64(len(p)), r.knownLen-r.again, copyBuffer)]
		if _, err := r.known.ReadAt(piece, r.again); err != nil || !bytes.Equal(piece, p[:len(piece)]) {
			r.parted = true
			r.retake(r.again)
			break
		}
		r.again += int64(len(piece))
		p = p[len(piece):]
	}
	return p
}

// retake takes bytes that were dropped because they are those of the known part.
func (r *recorder) retake(length int64) {
	buffer := make([]byte, copyBuffer)
	for at := int64(0); at < length; {
		n, err := r.known.ReadAt(buffer[:min(length-at, copyBuffer)], at)
		if n == 0 && err != nil {
			return // the file that the same bytes were just compared with
		}
		r.take(buffer[:n])
		at += int64(n)
	}
}

// Parted reports whether the stream that came again is another one than the known part: the
// file holds both, one behind the other.
func (r *recorder) Parted() bool { return r.parted }

// observe passes bytes on to the observers.
func (r *recorder) observe(p []byte) {
	r.total.Add(int64(len(p)))
	for _, o := range r.observers {
		// Observers are scanners and bounded buffers; their contract is never
		// to fail.
		_, _ = o.Write(p)
	}
	if r.onTotal != nil {
		r.onTotal(int64(len(p)))
	}
}

// take records bytes.
func (r *recorder) take(p []byte) {
	r.observe(p)
	stored := r.store(p)
	if r.live != nil {
		if stored > 0 {
			r.live.stored(r.index, r.kept-int64(stored), int64(stored))
		}
		if stored < len(p) {
			r.live.memory(r.index, p[stored:])
		}
	}
}

// store writes the part that fits into the file, and returns its length. After the first
// failure, for example on a full disk, it writes nothing more: a file with a hole would be
// worse than a short one.
func (r *recorder) store(p []byte) int {
	room := min(int64(len(p)), r.limit-r.kept)
	if room <= 0 || r.fileErr != nil {
		return 0
	}
	n, err := r.file.Write(p[:room])
	r.kept += int64(n)
	r.fileErr = err
	return n
}

// Total returns the number of bytes that the program wrote.
func (r *recorder) Total() int64 { return r.total.Load() }

// Kept returns the number of bytes in the file. It must not be called while another
// goroutine writes.
func (r *recorder) Kept() int64 { return r.kept }

// Close closes the file and returns the first error of writing it. The live output reads the
// file through its own descriptor.
func (r *recorder) Close() error { return errors.Join(r.fileErr, r.file.Close()) }
