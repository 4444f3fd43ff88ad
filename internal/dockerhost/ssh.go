package dockerhost

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/cli/cli/connhelper"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/internal/text"
)

const (
	// sshIdle is the number of idle connections that are kept for later calls: each
	// connection costs a process and a login.
	sshIdle = 4
	// sshLogins limits concurrent logins: a server rejects some of more than ten
	// (MaxStartups of OpenSSH). A login that takes longer than sshLoginTime, perhaps
	// because the server has nothing to send yet, no longer counts.
	sshLogins    = 6
	sshLoginTime = 5 * time.Second
)

// sshOptions end a connection one minute after its other end disappears. TCP alone would
// take hours to notice.
var sshOptions = []string{"-o ServerAliveInterval=15", "-o ServerAliveCountMax=4"}

// sshDialer makes connections to a daemon behind ssh. Each connection is an ssh process,
// with `docker system dial-stdio` at the other end. The processes have their own session,
// so that an interrupt at the terminal does not disconnect a run before it is stopped
// gracefully. On Linux the kernel kills them when this process dies.
type sshDialer struct {
	helper *connhelper.ConnectionHelper
	// address is the daemon's, without a password.
	address string
	// logins holds a token for each login in progress.
	logins chan struct{}

	mu   sync.Mutex
	open map[*sshConn]struct{} // nil once closed
}

func newSSHDialer(host, address string) (*sshDialer, error) {
	helper, err := connhelper.GetConnectionHelperWithSSHOpts(host, sshOptions)
	if err != nil {
		return nil, err
	}
	return &sshDialer{helper: helper, address: address, logins: make(chan struct{}, sshLogins), open: map[*sshConn]struct{}{}}, nil
}

// options returns the client options that use the dialer. The transport comes after the
// address, which would otherwise add a proxy to it.
func (d *sshDialer) options() []client.Opt {
	return []client.Opt{
		client.WithHost(d.helper.Host),
		client.WithHTTPClient(&http.Client{
			Transport: &http.Transport{
				DialContext:  d.dial,
				MaxIdleConns: sshIdle, MaxIdleConnsPerHost: sshIdle, IdleConnTimeout: 30 * time.Second,
			},
			CheckRedirect: client.CheckRedirect,
		}),
	}
}

// dial starts a connection. Its first read reports whether it succeeded.
func (d *sshDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case d.logins <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	loggedIn := sync.OnceFunc(func() { <-d.logins })
	// The process starts under the lock, so that Close misses none.
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		loggedIn()
		return nil, net.ErrClosed
	}
	inner, err := d.helper.Dialer(ctx, network, addr)
	if err != nil {
		loggedIn()
		return nil, knownError{&Error{Kind: KindSSH, Address: d.address, Advice: adviceNoSSH, Err: err,
			Detail: "the ssh command cannot be started: " + err.Error()}}
	}
	time.AfterFunc(sshLoginTime, loggedIn)
	conn := &sshConn{Conn: inner, dialer: d, loggedIn: loggedIn}
	d.open[conn] = struct{}{}
	return conn, nil
}

// Close ends all connections and waits for their processes. It is safe to call twice.
func (d *sshDialer) Close() error {
	d.mu.Lock()
	open := d.open
	d.open = nil
	d.mu.Unlock()
	var wait sync.WaitGroup
	for conn := range open {
		wait.Go(func() { _ = conn.Close() }) // the process has ended, even after an error
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
	// failure is the reason for which the process ended: only the first read that hits its
	// end gets it.
	failure atomic.Pointer[Error]
}

// Read implements [net.Conn].
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.loggedIn()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if failure := sshFailure(err.Error(), c.dialer.address); failure != nil {
		c.failure.Store(failure)
	}
	return n, c.reason(err)
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
			return n, c.reason(err)
		}
	}
}

// reason returns the failure of the process if it is known, else err.
func (c *sshConn) reason(err error) error {
	if failure := c.failure.Load(); failure != nil {
		return knownError{failure}
	}
	return err
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

// sshEnd matches the errors of a connection whose process ended, or does not end. They
// have no type.
var sshEnd = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^command \[.*?\] (?:has exited with (.*?), make sure the URL is valid.*?|did not exit after .*?): stderr=(.*)$`)
})

// sshFailure classifies the error of a connection by the messages of ssh, the remote
// shell, or docker there; OpenSSH and docker do not localize theirs. It returns nil for
// any other error.
func sshFailure(message, address string) *Error {
	found := sshEnd().FindStringSubmatch(message)
	if found == nil {
		return nil
	}
	status, said := found[1], found[2]
	has := func(part string) bool { return strings.Contains(said, part) }
	e := &Error{Kind: KindSSH, Address: address, Detail: cmp.Or(lastLine(said), "ssh ended with "+status), Advice: adviceSSH}
	switch {
	case has("Host key verification failed"), has("REMOTE HOST IDENTIFICATION HAS CHANGED"):
		e.Advice = adviceHostKey
	case status == "exit status 127", has("docker: command not found"), has("docker: not found"):
		e.Advice = adviceNoDocker
	case has("permission denied while trying to connect"), has("docker.sock: connect: permission denied"):
		e.Kind, e.Advice = KindPermission, advicePermission
	case has("Permission denied ("), has("Too many authentication failures"):
		e.Advice = adviceLogin
	case has("Cannot connect to the Docker daemon"), has("failed to open the raw stream connection"), has("dial unix"):
		e.Advice = adviceNoDaemon
	}
	return e
}

// maxSaid limits, in bytes, how much of another machine's message is repeated.
const maxSaid = 300

// lastLine returns the last non-empty line: banners come first.
func lastLine(said string) string {
	said = strings.TrimSpace(said)
	return text.Short(strings.TrimSpace(said[strings.LastIndex(said, "\n")+1:]), maxSaid)
}
