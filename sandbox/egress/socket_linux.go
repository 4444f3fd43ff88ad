package egress

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// listenUnix makes a socket in a directory, for every user who can reach the directory. The
// system bounds the length of a socket's path, so the path names the directory by its
// descriptor.
func listenUnix(dir, name string) (net.Listener, error) {
	parent, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	address := &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", parent.Fd(), name)}
	listener, err := net.ListenUnix("unix", address)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the descriptor in the path is closed by then
	if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
