// Package stream records the output of a program, and shows it live. The reader of a
// container's streams must never stop reading, because that would block the container.
// So a full disk, a slow terminal or a closed pipe does not block anything here.
package stream

import (
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
}

// newRecorder records into file, at most limit bytes of it. The observers get every byte and
// must not fail. live may be nil, and index is the stream's number there. onWrite, if not
// nil, gets the number of bytes of every write.
func newRecorder(file *os.File, limit int64, live *liveOutput, index int, onWrite func(int64), observers ...io.Writer) *recorder {
	return &recorder{file: file, limit: limit, live: live, index: index, onTotal: onWrite, observers: observers}
}

// Write takes all of p.
func (r *recorder) Write(p []byte) (int, error) {
	r.total.Add(int64(len(p)))
	for _, o := range r.observers {
		// Observers are scanners and bounded buffers; their contract is never
		// to fail.
		_, _ = o.Write(p)
	}
	stored := r.store(p)
	if r.live != nil {
		if stored > 0 {
			r.live.stored(r.index, r.kept-int64(stored), int64(stored))
		}
		if stored < len(p) {
			r.live.memory(r.index, p[stored:])
		}
	}
	if r.onTotal != nil {
		r.onTotal(int64(len(p)))
	}
	return len(p), nil
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
