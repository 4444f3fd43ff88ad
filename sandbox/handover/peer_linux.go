package handover

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// isOwn reports whether the process behind a connection has the user of this one (SO_PEERCRED in
// unix(7)).
func isOwn(conn *net.UnixConn) (own bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		own = err == nil && int(peer.Uid) == os.Geteuid()
	})
	return own && err == nil
}
