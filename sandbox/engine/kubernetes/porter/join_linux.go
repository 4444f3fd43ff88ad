package porter

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pipes is the number of pipes of init: stdin, stdout, stderr and its requests.
const pipes = 4

// control is the descriptor of init's requests.
const control = 3

// Join makes the pipes of init, hands the porter behind the line its ends of them, and becomes init.
// It only returns after an error.
func Join(line string, init []string) error {
	conn, err := call(filepath.Join(line, lineSocket))
	if err != nil {
		return err
	}
	// The porter has the other ends: it writes to stdin and to the requests.
	var own, its [pipes]int
	for i := range pipes {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("making a pipe: %w", err)
		}
		own[i], its[i] = ends[0], ends[1]
		if i == 1 || i == 2 {
			own[i], its[i] = ends[1], ends[0]
		}
	}
	if _, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(its[:]...), nil); err != nil {
		return fmt.Errorf("calling the porter: %w", err)
	}
	// None of the new descriptors is one of the first four until the last step: the low numbers
	// may be free.
	for i := range own {
		high, err := unix.FcntlInt(uintptr(own[i]), unix.F_DUPFD_CLOEXEC, 64)
		if err != nil {
			return fmt.Errorf("keeping a pipe: %w", err)
		}
		own[i] = high
	}
	for i, fd := range own {
		if err := unix.Dup3(fd, i, 0); err != nil {
			return fmt.Errorf("making a pipe descriptor %d: %w", i, err)
		}
	}
	return fmt.Errorf("executing %s: %w", init[0], unix.Exec(init[0], append(init, "-c", fmt.Sprint(control)), os.Environ()))
}

// call connects to the porter, which may have just started.
func call(socket string) (*net.UnixConn, error) {
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		var conn *net.UnixConn
		if conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"}); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("calling the porter: %w", err)
}

// accept accepts one call, and stops listening: the program, which comes later, cannot call.
func accept(line *net.UnixListener) (stdin, out, err, control *os.File, failure error) {
	conn, failure := line.AcceptUnix()
	if failure != nil {
		return nil, nil, nil, nil, failure
	}
	defer func() { _ = conn.Close() }()
	_ = line.Close()
	space := make([]byte, unix.CmsgSpace(pipes*4))
	_, n, _, _, failure := conn.ReadMsgUnix(make([]byte, 1), space)
	if failure != nil {
		return nil, nil, nil, nil, failure
	}
	messages, failure := unix.ParseSocketControlMessage(space[:n])
	if failure != nil || len(messages) != 1 {
		return nil, nil, nil, nil, errors.Join(failure, errors.New("the call has no descriptors"))
	}
	fds, failure := unix.ParseUnixRights(&messages[0])
	if failure != nil || len(fds) != pipes {
		return nil, nil, nil, nil, errors.Join(failure, fmt.Errorf("the call has %d descriptors, and %d are needed", len(fds), pipes))
	}
	var files [pipes]*os.File
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		files[i] = os.NewFile(uintptr(fd), "pipe")
	}
	return files[0], files[1], files[2], files[3], nil
}
