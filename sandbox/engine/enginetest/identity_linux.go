package enginetest

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// identify stats a path of this machine as init does in its container.
func identify(name string) wire.Stat {
	var st syscall.Stat_t
	if err := syscall.Lstat(name, &st); err != nil {
		return wire.Stat{Errno: errnoOf(err)}
	}
	return wire.Stat{Mode: st.Mode, Dev: st.Dev, Ino: st.Ino, Ctime: time.Unix(st.Ctim.Unix())}
}

// openWitness opens a file as init does.
func openWitness(name string) syscall.Errno {
	file, err := os.Open(name)
	if err != nil {
		return errnoOf(err)
	}
	_, err = io.Copy(io.Discard, file)
	_ = file.Close() // it was only read
	if err != nil {
		return errnoOf(err)
	}
	return 0
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
