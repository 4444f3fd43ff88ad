package egress

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// listenUnix makes a socket in a folder, for everybody who gets that far. The name
// of a socket is short, and that of a folder need not be: it goes by its descriptor.
func listenUnix(dir, name string) (net.Listener, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	address := &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name)}
	listener, err := net.ListenUnix("unix", address)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // that name means nothing by then
	if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
