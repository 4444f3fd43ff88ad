package enginetest

import (
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
