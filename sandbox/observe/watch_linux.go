package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// pathWatch learns from the kernel (inotify) which files of the host were opened, by any
// name. Every path is watched by its inode, which a mount does not change.
type pathWatch struct {
	file *os.File
	// begun is closed once the witness was opened.
	begun chan struct{}
	done  chan struct{} // the reader has ended

	mu      sync.Mutex
	witness int32
	paths   map[int32]spec.WatchedPath
	opened  map[string]bool
	err     error // the first
}

// maxOpened bounds the opened paths that are reported: each watched path, the names in a
// canary directory, and the names that are shown. Nobody can add names there, so it is
// never reached.
const maxOpened = spec.MaxWatched*8 + maxShownNames

// errOverflow means that paths were opened faster than the reports were read.
var errOverflow = errors.New("watched paths were opened so often that the kernel dropped reports: others may have been opened, too")

// newPathWatch begins to watch the witness.
func newPathWatch(witness string) (*pathWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &pathWatch{
		file: os.NewFile(uintptr(fd), "inotify"), begun: make(chan struct{}), done: make(chan struct{}),
		paths: map[int32]spec.WatchedPath{}, opened: map[string]bool{},
	}
	id, err := w.addWatch(witness, unix.IN_OPEN|unix.IN_ONESHOT)
	if err == nil {
		// Without a deadline the reader could not be stopped.
		err = w.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	w.witness = id
	go w.listen()
	return w, nil
}

// add watches a path of the host from now on.
func (w *pathWatch) add(source string, what spec.WatchedPath) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	mask := uint32(unix.IN_OPEN | unix.IN_DONT_FOLLOW)
	if !what.Dir {
		mask |= unix.IN_ONESHOT // once is enough, and a program cannot cause a flood
	}
	id, err := w.addWatch(source, mask)
	if err == nil {
		w.paths[id] = what
	}
	return err
}

func (w *pathWatch) addWatch(source string, mask uint32) (id int32, err error) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var watchErr error
	err = raw.Control(func(fd uintptr) {
		n, err := unix.InotifyAddWatch(int(fd), source, mask)
		id, watchErr = int32(n), os.NewSyscallError("inotify_add_watch", err)
	})
	return id, errors.Join(err, watchErr)
}

// watched returns the watched paths.
func (w *pathWatch) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	targets := make([]string, 0, len(w.paths))
	for _, what := range w.paths {
		if !what.Inner {
			targets = append(targets, what.Text())
		}
	}
	return targets
}

// listen reads reports until stop or close.
func (w *pathWatch) listen() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				w.fail(fmt.Errorf("the kernel's reports could not be read: %w", err))
			}
			return
		}
		w.take(buf[:n])
	}
}

func (w *pathWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// stop reads the remaining reports, and returns the opened paths. The kernel reports within the
// call that opens, so no report of a program that has ended is still on its way.
func (w *pathWatch) stop() (opened []string, err error) {
	if err := w.file.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	<-w.done
	raw, err := w.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	for {
		n := 0
		var readErr error
		// The reader's deadline is over; reading does not wait.
		if err := raw.Control(func(fd uintptr) { n, readErr = unix.Read(int(fd), buf) }); err != nil {
			return nil, err
		}
		if errors.Is(readErr, unix.EINTR) {
			continue
		}
		if readErr != nil && !errors.Is(readErr, unix.EAGAIN) {
			w.fail(fmt.Errorf("the kernel's reports could not be read: %w", readErr))
		}
		if readErr != nil || n <= 0 {
			break
		}
		w.take(buf[:n])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.opened)), w.err
}

// nameBelow returns the name in a result of an entry of a watched directory, or of the path
// itself if name is empty.
func nameBelow(w spec.WatchedPath, name string, folder bool) string {
	if name == "" {
		return w.Text()
	}
	return spec.WatchedPath{Target: path.Join(w.Target, name), Dir: folder}.Text()
}

// take evaluates reports: each is a header, see inotify(7), and a padded name.
func (w *pathWatch) take(reports []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(reports) >= unix.SizeofInotifyEvent {
		id := int32(binary.NativeEndian.Uint32(reports))
		mask := binary.NativeEndian.Uint32(reports[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(reports[12:]))
		if end > len(reports) {
			return // the kernel only gives whole reports
		}
		name := unix.ByteSliceToString(reports[unix.SizeofInotifyEvent:end])
		reports = reports[end:]
		what, watched := w.paths[id]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			if w.err == nil {
				w.err = errOverflow
			}
		case mask&unix.IN_OPEN == 0:
		case id == w.witness:
			close(w.begun) // it is reported once only
		case watched && len(w.opened) < maxOpened:
			w.opened[nameBelow(what, name, mask&unix.IN_ISDIR != 0)] = true
		}
	}
}

// close ends the watch. It may be called without stop.
func (w *pathWatch) close() error {
	if w == nil {
		return nil
	}
	err := w.file.Close()
	<-w.done
	return err
}
