//go:build !linux

package porter

import (
	"errors"
	"net"
	"os"
)

var errNotLinux = errors.New("the porter runs in containers of Linux")

// Join only works on Linux.
func Join(string, []string) error { return errNotLinux }

func accept(*net.UnixListener) (stdin, out, err, control *os.File, failure error) {
	return nil, nil, nil, nil, errNotLinux
}
