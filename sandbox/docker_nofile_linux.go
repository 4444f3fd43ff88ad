package sandbox

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// engineNoFile is the number of files that the engine at a unix socket may open,
// or 0 when that cannot be told. The engine cannot grant more: a higher limit
// makes the start of a container fail.
func engineNoFile(host string) int64 {
	conn, err := net.Dial("unix", strings.TrimPrefix(host, "unix://"))
	if err != nil {
		return 0
	}
	defer conn.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0
	}
	var limit int64
	_ = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			limit = processNoFile(int(peer.Pid))
		}
	})
	return limit
}

// processNoFile reads the hard limit of open files from /proc.
func processNoFile(pid int) int64 {
	limits, err := os.Open(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0
	}
	defer limits.Close()
	for lines := bufio.NewScanner(limits); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "Max open files")
		if !ok {
			continue
		}
		if fields := strings.Fields(rest); len(fields) >= 2 {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
