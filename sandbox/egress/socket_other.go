//go:build !linux

package egress

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// listenUnix makes a socket in a directory. The system bounds the length of its path.
func listenUnix(dir, name string) (net.Listener, error) {
	path := filepath.Join(dir, name)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
