//go:build linux

package main

import (
	"bytes"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watch waits for what happens to the entries of a directory.
type watch struct {
	fd   int
	name string
}

func watchFor(dir string, mask uint32, name string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &watch{fd, name}, nil
}

func (w *watch) close() {
	if w != nil {
		_ = unix.Close(w.fd)
	}
}

// errNothing means that nothing happened in time.
var errNothing = errors.New("nothing happened to the file of the step")

// first returns when the first event has come. It is errUnreached if none had come when over was
// closed.
func (w *watch) first(over <-chan struct{}) error {
	poll := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	for end := time.Now().Add(stepPatience); time.Now().Before(end); {
		ended := false
		select {
		case <-over:
			ended = true
		default:
		}
		n, err := unix.Poll(poll, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			if w.happened() {
				return nil
			}
			continue // the next one may be queued already
		}
		if ended {
			return errUnreached
		}
	}
	return errNothing
}

// happened reads the events, and reports whether one is of an entry with the name.
func (w *watch) happened() bool {
	buffer := make([]byte, 16<<10)
	n, err := unix.Read(w.fd, buffer)
	for err == nil && n >= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		if bytes.HasPrefix(buffer[unix.SizeofInotifyEvent:end], []byte(w.name)) {
			return true
		}
		buffer, n = buffer[end:], n-end
	}
	return false
}
