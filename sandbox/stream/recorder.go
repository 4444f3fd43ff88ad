// Package stream records the output of a program. The reader of a container's
// streams must never stop reading: a client that does wedges its container. So
// nothing here blocks on a disk error, a slow terminal or a closed pipe.
package stream

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
)

// A Recorder is one stream of a program: it counts every byte, keeps the first
// bytes in a file, feeds observers and queues the bytes for a live reader.
//
// Write never fails and never blocks on anything but the local file. A Recorder
// is written from one goroutine; Total may be read from any.
type Recorder struct {
	file      *os.File
	limit     int64
	kept      int64
	fileErr   error
	observers []io.Writer
	live      *Live
	index     int
	total     atomic.Int64
	onTotal   func(int64)
}

// NewRecorder records into file, at most limit bytes of it. The observers get
// every byte and must not fail; live may be nil, and index is the stream's
// number there. onWrite, if not nil, is told the number of bytes of every write.
func NewRecorder(file *os.File, limit int64, live *Live, index int, onWrite func(int64), observers ...io.Writer) *Recorder {
	return &Recorder{file: file, limit: limit, live: live, index: index, onTotal: onWrite, observers: observers}
}

// Write takes all of p.
func (r *Recorder) Write(p []byte) (int, error) {
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

// store writes what fits into the file and returns how much that was. After the
// first failure, a full disk for example, nothing more is written: a file with a
// hole would be worse than a short one.
func (r *Recorder) store(p []byte) int {
	room := min(int64(len(p)), r.limit-r.kept)
	if room <= 0 || r.fileErr != nil {
		return 0
	}
	n, err := r.file.Write(p[:room])
	r.kept += int64(n)
	if err != nil {
		r.fileErr = err
	}
	return n
}

// Total is the number of bytes that the program wrote.
func (r *Recorder) Total() int64 { return r.total.Load() }

// Kept is the number of bytes in the file. It must not be called while another
// goroutine writes.
func (r *Recorder) Kept() int64 { return r.kept }

// Close closes the file and reports the first error of writing it. The file
// stays readable for the live reader through its own descriptor.
func (r *Recorder) Close() error { return errors.Join(r.fileErr, r.file.Close()) }
