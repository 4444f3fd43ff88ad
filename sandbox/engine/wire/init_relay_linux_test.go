package wire

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy starts a server on a Unix socket, and returns a relay to it.
func proxy(t *testing.T, connections uint16, serve func(*net.UnixConn)) *Relay {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(publicDir(t), "proxy.sock"))
	require.NoError(t, err)
	return proxyAt(t, listener, connections, serve)
}

// proxyAt does the same with a socket of the caller.
func proxyAt(t *testing.T, listener net.Listener, connections uint16, serve func(*net.UnixConn)) *Relay {
	t.Helper()
	path := listener.Addr().String()
	require.NoError(t, os.Chmod(path, 0o777)) // the program's user connects
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn.(*net.UnixConn)) //nolint:forcetypeassert // a Unix listener
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	// The relay listens in the test's own network: find a free port.
	var free net.ListenConfig
	l, err := free.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return &Relay{Port: uint16(l.Addr().(*net.TCPAddr).Port), Connections: connections, Socket: path} //nolint:forcetypeassert // a TCP listener
}

const connectPrelude = `
import os, select, socket, sys, threading, time
def connect():
    return socket.create_connection(('127.0.0.1', int(os.environ['PORT'])))
`

func relayed(relay *Relay, script string) Job {
	job := python(connectPrelude + script)
	job.Relay, job.Timeout = relay, time.Minute
	job.Env = []string{"PORT=" + itoa(relay.Port)}
	return job
}

func TestRelayEcho(t *testing.T) {
	relay := proxy(t, 8, func(conn *net.UnixConn) {
		_, _ = io.Copy(conn, conn) // the program checks the answer
	})
	c, report := run(t, relayed(relay, `
data = os.urandom(1 << 20)
def echo(i):
    s = connect()
    t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
    t.start()
    got = b''
    while True:
        b = s.recv(10000 + i)
        if not b: break
        got += b
    t.join()
    ok.append(got == data)
ok = []
threads = [threading.Thread(target=echo, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
for i in range(20): echo(i)
print(ok.count(True))`))
	requireExit(t, c, report, 0)
	require.Equal(t, "28\n", c.outText.String())
	require.Zero(t, c.bye())
}

// TestRelayHalfClose checks that each direction can be closed separately.
func TestRelayHalfClose(t *testing.T) {
	var got bytes.Buffer
	var mu sync.Mutex
	relay := proxy(t, 2, func(conn *net.UnixConn) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := io.WriteString(conn, "first"); err != nil { // init's first connection, which checks for a proxy
			return
		}
		_ = conn.CloseWrite() // the program notices an error
		_, _ = io.Copy(&got, conn)
	})
	c, report := run(t, relayed(relay, `
s = connect()
print(s.recv(100), s.recv(100))
time.sleep(0.05)
s.sendall(b'later' * 100000)
s.close()
print(connect().recv(100))`)) // answered once the server has read all of the previous one
	requireExit(t, c, report, 0)
	require.Equal(t, "b'first' b''\nb'first'\n", c.outText.String())
	require.Zero(t, c.bye())
	mu.Lock()
	defer mu.Unlock()
	require.True(t, strings.Repeat("later", 100_000) == got.String()) // not require.Equal, which prints 500 kB
}

// TestRelayLimit checks that a connection beyond the limit waits until another one ends.
func TestRelayLimit(t *testing.T) {
	relay := proxy(t, 2, func(conn *net.UnixConn) {
		if _, err := io.WriteString(conn, "hello"); err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	c, report := run(t, relayed(relay, `
a, b, third = connect(), connect(), connect()
print(a.recv(5), b.recv(5), select.select([third], [], [], 0.3)[0])
a.close()
print(third.recv(5))`))
	requireExit(t, c, report, 0)
	require.Equal(t, "b'hello' b'hello' []\nb'hello'\n", c.outText.String())
	require.Zero(t, c.bye())
}

// TestRelayBehindAnEndedProxy checks that connections end when the proxy closes them, and that
// the program continues.
func TestRelayBehindAnEndedProxy(t *testing.T) {
	relay := proxy(t, 2, func(conn *net.UnixConn) {
		var b [1]byte
		_, _ = conn.Read(b[:]) // returns with data from the program, or at once for init's first connection
	})
	c, report := run(t, relayed(relay, `
for i in range(20):
    s = connect()
    s.sendall(b'x' * 100000)
    try:
        while s.recv(100): pass
    except ConnectionError: pass
print('done')`))
	requireExit(t, c, report, 0)
	require.Equal(t, "done\n", c.outText.String())
	require.Zero(t, c.bye())
}

// TestRelayTellsThatTheProxyHasGone: the program may end before init reads the end of its own stdin.
func TestRelayTellsThatTheProxyHasGone(t *testing.T) {
	for name, dies := range map[string]bool{"it lives": false, "it dies": true} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("unix", filepath.Join(publicDir(t), "proxy.sock"))
			require.NoError(t, err)
			listener.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:forcetypeassert // a Unix listener
			relay := proxyAt(t, listener, 2, func(conn *net.UnixConn) {
				if n, _ := conn.Read(make([]byte, 1)); n > 0 && dies {
					listener.Close()
				}
			})
			c, report := run(t, relayed(relay, `
s = connect()
s.sendall(b'x')
s.recv(1)`))
			requireExit(t, c, report, 0)
			require.Equal(t, dies, report.Abandoned)
			require.Zero(t, c.bye())
		})
	}
}
