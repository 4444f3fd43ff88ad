package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/docker/cli/cli/connhelper"
)

// sshIdle is the number of idle connections that are kept for later calls.
const sshIdle = 4

// sshLogins limits concurrent logins: a server rejects some of more than ten (MaxStartups
// of OpenSSH). A login that takes longer than sshLoginTime, perhaps because the server
// has nothing to send yet, no longer counts.
const (
	sshLogins    = 6
	sshLoginTime = 5 * time.Second
)

// sshOptions end a connection one minute after its other end disappears. TCP alone would
// take hours to notice.
var sshOptions = []string{"-o ServerAliveInterval=15", "-o ServerAliveCountMax=4"}

// sshDialer makes connections to an engine behind ssh. Each connection is an ssh process,
// with `docker system dial-stdio` at the other end. The processes have their own session,
// so that an interrupt at the terminal does not disconnect a run before it is stopped
// gracefully. On Linux the kernel kills them when this process dies.
type sshDialer struct {
	helper *connhelper.ConnectionHelper
	// address is the engine's, without a password.
	address string
	// logins holds a token for each login in progress.
	logins chan struct{}

	// closing is closed by Close; dialing counts the dials in progress.
	closing chan struct{}
	dialing sync.WaitGroup

	mu   sync.Mutex
	open map[*sshConn]struct{} // nil once closed
}

func newSSHDialer(host, address string) (*sshDialer, error) {
	helper, err := connhelper.GetConnectionHelperWithSSHOpts(host, sshOptions)
	if err != nil {
		return nil, err
	}
	return &sshDialer{
		helper: helper, address: address, logins: make(chan struct{}, sshLogins),
		closing: make(chan struct{}), open: map[*sshConn]struct{}{},
	}, nil
}

// dial starts a connection. Its first read reports whether it succeeded.
func (d *sshDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	if d.open == nil {
		d.mu.Unlock()
		return nil, net.ErrClosed
	}
	d.dialing.Add(1)
	d.mu.Unlock()
	defer d.dialing.Done()
	select {
	case d.logins <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closing:
		return nil, net.ErrClosed
	}
	loggedIn := sync.OnceFunc(func() { <-d.logins })
	inner, err := d.helper.Dialer(ctx, network, addr)
	if err != nil {
		loggedIn()
		return nil, &sshError{address: d.address, err: err}
	}
	time.AfterFunc(sshLoginTime, loggedIn)
	conn := &sshConn{Conn: inner, dialer: d, loggedIn: loggedIn, failed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		conn.loggedIn()
		return nil, errors.Join(net.ErrClosed, inner.Close())
	}
	d.open[conn] = struct{}{}
	return conn, nil
}

// Close ends all connections and waits for their processes. It is safe to call twice.
func (d *sshDialer) Close() error {
	d.mu.Lock()
	open := d.open
	d.open = nil
	if open != nil {
		close(d.closing)
	}
	d.mu.Unlock()
	d.dialing.Wait()
	var wait sync.WaitGroup
	for conn := range open {
		wait.Go(func() { _ = conn.Conn.Close() }) // the process has ended, even after an error
	}
	wait.Wait()
	return nil
}

// sshConn gives failures a type.
type sshConn struct {
	net.Conn
	dialer *sshDialer
	// loggedIn is called at the first data from the other end, or once none can arrive.
	loggedIn func()

	once    sync.Once
	failed  chan struct{}
	failure error
}

// Read implements [net.Conn]. Only the first read that hits the end of the process gets
// the reason.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.loggedIn()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if failure := parseSSHError(err.Error(), c.dialer.address); failure != nil {
		c.once.Do(func() {
			c.failure = failure
			close(c.failed)
		})
		return n, failure
	}
	return n, c.known(err)
}

// Write implements [net.Conn]. If the process ended before the write, no read may have
// reported the reason yet.
func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil || errors.Is(err, os.ErrClosed) {
		return n, err
	}
	var rest [512]byte
	for {
		if _, readErr := c.Read(rest[:]); readErr != nil {
			return n, c.known(err)
		}
	}
}

// known returns the failure that was already reported, else err.
func (c *sshConn) known(err error) error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return err
	}
}

// CloseWrite closes only the sending side.
func (c *sshConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close ends the process. The connection stays listed until the process has ended, so
// that closing the dialer waits for it.
func (c *sshConn) Close() error {
	c.loggedIn()
	err := c.Conn.Close()
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return err
}

// An sshError is the end of an ssh process, with its messages. Its text is deliberately
// short: the client mistakes errors with certain words, which remote messages contain,
// for errors of its own.
type sshError struct {
	address string
	// status is the process's exit, such as "exit status 255".
	status string
	// said is the end of its stderr.
	said string
	// err is set when the process could not be started.
	err error
}

func (e *sshError) Error() string { return "the connection by ssh failed" }

func (e *sshError) Unwrap() error { return e.err }

var (
	commandEnded = regexp.MustCompile(`(?s)^command \[.*\] has exited with (.*?), make sure the URL is valid.*?: stderr=(.*)$`)
	commandStuck = regexp.MustCompile(`(?s)^command \[.*\] did not exit after .*?: stderr=(.*)$`)
)

// parseSSHError parses the connection's own errors, which have no type. It returns nil
// for any other error.
func parseSSHError(text, address string) *sshError {
	if found := commandEnded.FindStringSubmatch(text); found != nil {
		return &sshError{address: address, status: found[1], said: found[2]}
	}
	if found := commandStuck.FindStringSubmatch(text); found != nil {
		return &sshError{address: address, status: "no end", said: found[1]}
	}
	return nil
}

// problem classifies the messages of ssh, the remote shell, or docker there. The messages
// of OpenSSH and docker are not localized.
func (e *sshError) problem() *ConnectError {
	has := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(e.said, text) {
				return true
			}
		}
		return false
	}
	c := &ConnectError{Problem: ProblemSSH, Address: e.address, Detail: lastLine(e.said), Err: e}
	if c.Detail == "" {
		c.Detail = "ssh ended with " + e.status
	}
	switch {
	case e.err != nil:
		c.Problem, c.Detail = ProblemNoSSH, "the ssh command cannot be started: "+e.err.Error()
	case has("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED"):
		c.Problem = ProblemHostKey
	case e.status == "exit status 127", has("docker: command not found", "docker: not found"):
		c.Problem = ProblemNoDocker
	case has("permission denied while trying to connect", "docker.sock: connect: permission denied"):
		c.Problem = ProblemRemotePermission
	case has("Permission denied (", "Too many authentication failures"):
		c.Problem = ProblemLogin
	case has("Cannot connect to the Docker daemon", "failed to open the raw stream connection", "dial unix"):
		c.Problem = ProblemRemoteEngine
	}
	return c
}

// maxSaid limits, in bytes, how much of another machine's message is repeated.
const maxSaid = 300

// lastLine returns the last non-empty line: banners come first.
func lastLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	if len(last) > maxSaid {
		last = strings.ToValidUTF8(last[:maxSaid], "") + "…"
	}
	return last
}
