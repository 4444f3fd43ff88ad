package porter

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// segmentSize is the size of one file of a spool, in bytes.
const segmentSize = 8 << 20

// spool keeps the bytes of one stream in files. Beyond its limit it drops the oldest ones.
// Its lock is the server's.
type spool struct {
	news *sync.Cond
	dir  string
	// limit is how many bytes are kept, about.
	limit int64
	// The kept part, how far a controller has it, and whether a controller is connected.
	start, end, taken int64
	attached          bool
	files             []*os.File // the segments from start
	// closed says that nothing follows; err, why the files cannot be written.
	closed bool
	err    error
}

// fill appends everything that can be read. A reader that nobody interrupts ends with its last
// writer.
func (s *spool) fill(from io.Reader) {
	buffer := make([]byte, maxRecord)
	for {
		n, err := from.Read(buffer)
		s.news.L.Lock()
		for s.attached && s.end-s.taken > s.limit/2 {
			s.news.Wait() // a controller that is slow slows the program
		}
		if writeErr := s.append(buffer[:n]); writeErr != nil && s.err == nil {
			s.err = writeErr
		}
		s.closed = err != nil || s.err != nil
		s.news.Broadcast()
		s.news.L.Unlock()
		if err != nil || s.err != nil {
			return
		}
	}
}

// append writes to the last segment. The lock is held.
func (s *spool) append(p []byte) error {
	for len(p) > 0 {
		at := s.end % segmentSize
		if at == 0 {
			file, err := os.OpenFile(filepath.Join(s.dir, fmt.Sprint(s.end)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			s.files = append(s.files, file)
		}
		n := min(int64(len(p)), segmentSize-at)
		if _, err := s.files[len(s.files)-1].WriteAt(p[:n], at); err != nil {
			return err
		}
		s.end, p = s.end+n, p[n:]
		for s.end-s.start > s.limit && len(s.files) > 1 {
			oldest := s.files[0]
			_ = oldest.Close()
			_ = os.Remove(oldest.Name())
			s.files, s.start = s.files[1:], s.start-s.start%segmentSize+segmentSize
		}
	}
	return nil
}

// read returns the bytes at an offset that is kept. The lock is held.
func (s *spool) read(at int64, p []byte) (int, error) {
	first := s.start / segmentSize
	n := min(int64(len(p)), s.end-at, segmentSize-at%segmentSize)
	read, err := s.files[at/segmentSize-first].ReadAt(p[:n], at%segmentSize)
	if int64(read) == n {
		err = nil
	}
	return read, err
}
