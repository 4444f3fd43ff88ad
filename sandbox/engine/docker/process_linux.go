package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/owner"
)

// engineNoFile returns the number of files that the engine at a unix socket may open, or
// 0 if that is unknown. The engine cannot grant more: with a higher limit a container
// does not start.
func engineNoFile(ctx context.Context, host string) int64 {
	pid, ok := socketOwner(ctx, host)
	if !ok {
		return 0
	}
	return processNoFile(pid)
}

// sameMachine reports whether the engine at a unix socket is visible from here. It is not
// if the socket was mounted into the container that evalbox runs in, or is forwarded from
// another machine.
func sameMachine(ctx context.Context, host, kernel string) bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil || unix.ByteSliceToString(name.Release[:]) != kernel {
		return false
	}
	_, seen := socketOwner(ctx, host)
	return seen
}

// engineIdentity identifies the process behind a unix socket; empty if it is unknown.
func engineIdentity(ctx context.Context, host string) string {
	pid, ok := socketOwner(ctx, host)
	if !ok || pid == 1 {
		// An init that listens on the daemon's behalf outlives it.
		return ""
	}
	start, ok := owner.ProcessStart(pid)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s %s/%s/%d/%s", host, owner.BootID(), owner.PIDNamespace(), pid, start)
}

// socketOwner returns the process that listens on a unix socket.
func socketOwner(ctx context.Context, host string) (pid int, ok bool) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", strings.TrimPrefix(host, "unix://"))
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	unixConn, isUnix := conn.(*net.UnixConn)
	if !isUnix {
		return 0, false
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid, ok = int(peer.Pid), peer.Pid > 0
		}
	})
	return pid, ok && err == nil
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

// hasSwap reports whether this machine has swap. If that is unknown, it returns true. The
// first line of /proc/swaps is a heading.
func hasSwap() bool {
	text, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(text), "\n") > 1
}

// awaitProcess waits for the end of the main process of a container. It returns false at once if
// the process is not visible here.
func awaitProcess(pid int, container string) bool {
	if pid <= 0 {
		return false
	}
	// The descriptor comes first: it never stands for a later process of the same number.
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	// The cgroup of a container names it.
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(cgroup), container) {
		return false
	}
	raw, err := process.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Read(func(fd uintptr) bool { // the poller waits for it, without a thread
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 0)
		ended = err == nil && n > 0
		return ended || err != nil && !errors.Is(err, unix.EINTR)
	})
	return ended && err == nil
}
