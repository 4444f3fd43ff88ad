package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// waitProcess waits for the end of a process that is not our child. It reports
// false when the process cannot be watched or ctx ends. isIt is asked once the
// process is held: from then on the number cannot become another process's.
func waitProcess(ctx context.Context, pid int, isIt func() bool) bool {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(process) }()
	if !isIt() {
		return false
	}
	// The other end of the pipe is how ctx interrupts the poll.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return false
	}
	defer func() { _ = unix.Close(pipe[0]) }()
	stop := context.AfterFunc(ctx, func() { _ = unix.Close(pipe[1]) })
	defer func() {
		if stop() {
			_ = unix.Close(pipe[1])
		}
	}()
	watched := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}, {Fd: int32(pipe[0]), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(watched, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if watched[0].Revents != 0 {
			return true
		}
		if watched[1].Revents != 0 {
			return false
		}
	}
}

// mountedIn looks at what a process sees at a path.
func mountedIn(pid int, path string) (fs.FileInfo, error) {
	return os.Stat("/proc/" + strconv.Itoa(pid) + "/root" + path)
}
