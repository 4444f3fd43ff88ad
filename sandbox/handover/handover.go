// Package handover passes messages and open files between processes of one user, over a Unix socket.
// It does not know what they mean.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// ErrNobody means that nobody listens at a socket.
var ErrNobody = errors.New("nobody listens")

const (
	// maxMessage bounds one message, in bytes. The kernel takes no more at once by default.
	maxMessage = 128 << 10
	// maxFiles bounds the files of one message.
	maxFiles = 4
	// network keeps the bounds of messages, so that files arrive with the message that names them.
	network = "unixpacket"
	// maxPath is the longest path of a socket, in bytes; see unix(7).
	maxPath = 107
)

// Listener accepts connections at a socket. Its methods may be called concurrently.
type Listener struct {
	*net.UnixListener
	path string
	id   os.FileInfo
}

// CheckPath is an error if a path is too long for a socket.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("the path of socket %q is longer than %d bytes: choose a shorter state directory", path, maxPath)
	}
	return nil
}

// Listen makes a socket that only this user can connect to. It replaces one that is there: the caller
// has made sure that nobody listens at it.
func Listen(path string) (*Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket %q cannot be replaced: %w", path, fsx.Cause(err))
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, fmt.Errorf("listening at socket %q: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // by then the path may have the socket of another listener
	info, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket %q cannot be used: %w", path, fsx.Cause(err)), l.Close())
	}
	return &Listener{l, path, info}, nil
}

// IsThere reports whether the socket still is at its path: somebody may have deleted its directory.
func (l *Listener) IsThere() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.id)
}

// Close ends the listener, and deletes its socket.
func (l *Listener) Close() error {
	var err error
	if l.IsThere() {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close())
}

// Accept waits for a connection of a process of the same user.
func (l *Listener) Accept() (*Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if isOwn(conn) {
			return &Conn{conn}, nil
		}
		_ = conn.Close() // the socket was open to others before it got its mode
	}
}

// Conn is a connection between two processes. Each direction may be used by one goroutine.
type Conn struct{ conn *net.UnixConn }

// Dial connects to a socket. Without a listener the error is [ErrNobody].
func Dial(path string) (*Conn, error) {
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.EPROTONOSUPPORT): // macOS has no such sockets
		return nil, fmt.Errorf("socket %q: %w", path, ErrNobody)
	case err != nil:
		return nil, fmt.Errorf("connecting to socket %q: %w", path, err)
	}
	return &Conn{conn}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Send sends a message as JSON, with files. The receiver gets files of its own; the caller closes
// these.
func (c *Conn) Send(message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if len(text) > maxMessage {
		return fmt.Errorf("a message of %d bytes is longer than %d bytes", len(text), maxMessage)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err = c.conn.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("sending a message: %w", err)
	}
	return nil
}

// Receive waits for a message, at most until a deadline; the zero time means none. The end of the
// connection is an io.EOF. The caller closes the files.
func (c *Conn) Receive(into any, deadline time.Time) ([]*os.File, error) {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return nil, fmt.Errorf("receiving a message: %w", err)
	}
	text, rights := make([]byte, maxMessage+1), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, rightsN, flags, _, err := c.conn.ReadMsgUnix(text, rights)
	if errors.Is(err, io.EOF) {
		// Linux looks for a message first and for the end afterwards: between the two the other side may
		// have sent its last message and closed the connection (unix_dgram_recvmsg).
		n, rightsN, flags, _, err = c.conn.ReadMsgUnix(text, rights)
	}
	if err != nil {
		return nil, fmt.Errorf("receiving a message: %w", err)
	}
	files, err := received(rights[:rightsN])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n > maxMessage:
		err = errors.New("the message is too long")
	default:
		err = json.Unmarshal(text[:n], into)
	}
	if err != nil {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return nil, fmt.Errorf("receiving a message: %w", err)
	}
	return files, nil
}

// Last is Receive for the last message. Once it has failed, no message of the other side arrives any
// more: sending one is an error there.
func (c *Conn) Last(into any, deadline time.Time) error {
	_, err := c.Receive(into, deadline)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if closeErr := c.conn.CloseRead(); closeErr != nil {
		return errors.Join(err, closeErr)
	}
	_, err = c.Receive(into, time.Time{}) // what had arrived by then, or io.EOF
	return err
}

// Interrupt ends a Receive in progress, and all that follow.
func (c *Conn) Interrupt() { _ = c.conn.CloseRead() } // it may be closed

// received returns the files of a message.
func received(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}
