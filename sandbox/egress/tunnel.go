package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// tunnel serves one CONNECT.
func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	client, err := hijack(w)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer client.Close()
	x := exchangeOf(r)
	_ = client.SetDeadline(time.Time{}) // removes the server's deadline; the connection keeps its own end
	verdict, host, err := p.admitTunnel(x, r)
	var server net.Conn
	if err == nil {
		server, err = p.connect(r.Context(), x, host, x.entry.Port)
	}
	if err != nil {
		status, text := x.fail(err)
		answer(client, status, text)
		return
	}
	defer server.Close()
	// The context ends with the proxy, and at the end of the connection's time.
	defer context.AfterFunc(r.Context(), func() { _, _ = client.Close(), server.Close() })()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		x.entry.Error = reason(err)
		return
	}
	if err := p.relay(r.Context(), x, client, server, verdict.Raw); err != nil {
		_, _ = x.fail(err)
	}
}

// admitTunnel decides about the host and port of a CONNECT.
func (p *proxy) admitTunnel(x *exchange, r *http.Request) (policy.HostVerdict, string, error) {
	if r.URL.User != nil {
		return policy.HostVerdict{}, "", &RefusedError{"CONNECT holds a user name"}
	}
	host, portText, err := net.SplitHostPort(r.URL.Host)
	if err != nil {
		return policy.HostVerdict{}, "", &RefusedError{"CONNECT must name a host and a port"}
	}
	port, err := policy.ParsePort(portText)
	if err != nil {
		return policy.HostVerdict{}, "", &RefusedError{"CONNECT " + err.Error()}
	}
	verdict, err := p.admit(x, host, port)
	return verdict, host, err
}

// relay moves bytes in both directions, after it has checked the first bytes of the program.
// In a tunnel that may hold other protocols (raw), the server may speak first; TLS is checked
// there, too.
func (p *proxy) relay(ctx context.Context, x *exchange, client, server net.Conn, raw bool) error {
	both := &halves{client: client, server: server}
	first := client
	if raw {
		both.down()
		one := make([]byte, 1)
		if n, err := client.Read(one); n == 0 {
			both.stop(err)
			return both.wait()
		}
		first = &replayConn{client, one}
		if one[0] != recordHandshake {
			both.up(first)
			return both.wait()
		}
	}
	first, err := checkTLS(ctx, x, first)
	if err != nil {
		both.stop(err)
		return errors.Join(err, both.wait())
	}
	if !raw {
		both.down()
	}
	both.up(first)
	return both.wait()
}

// recordHandshake is the first byte of TLS.
const recordHandshake = 22

// alert is the TLS alert about an unknown server name.
var alert = []byte{21, 3, 1, 0, 2, 2, 112}

// checkTLS checks a hello, and returns a connection from which it can be read again.
func checkTLS(ctx context.Context, x *exchange, client net.Conn) (net.Conn, error) {
	name, addr, err := policy.NormalizeHost(x.entry.Host)
	if err != nil {
		return nil, err
	}
	_ = client.SetReadDeadline(time.Now().Add(headerTime))
	hello, seen, err := readHello(ctx, client)
	switch {
	case err != nil && len(seen) == 0:
		return nil, err // the client sent nothing
	case err != nil:
		err = &RefusedError{fmt.Sprintf("the tunnel holds no TLS (%.100s)", reason(err))}
	default:
		err = checkHello(hello, name, addr)
	}
	if err != nil {
		_, _ = client.Write(alert)
		return nil, err
	}
	_ = client.SetReadDeadline(time.Time{})
	return &replayConn{client, seen}, nil
}

// halves are the two directions of a tunnel.
type halves struct {
	client, server net.Conn
	moving         sync.WaitGroup
	mu             sync.Mutex
	err            error // the first one to report
}

func (h *halves) down()              { h.moving.Go(func() { h.move(h.client, h.server) }) }
func (h *halves) up(client net.Conn) { h.moving.Go(func() { h.move(h.server, client) }) }

// stop ends both directions.
func (h *halves) stop(err error) {
	h.mu.Lock()
	// A tunnel normally ends when one side closes it; that is not an error.
	if h.err == nil && (errors.Is(err, errBytes) || errors.Is(err, os.ErrDeadlineExceeded)) {
		h.err = err
	}
	h.mu.Unlock()
	_, _ = h.client.Close(), h.server.Close()
}

func (h *halves) wait() error {
	h.moving.Wait()
	return h.err
}

// move moves bytes in one direction until its end, and forwards the end.
func (h *halves) move(to, from net.Conn) {
	_, err := io.Copy(writerOnly{to}, readerOnly{from})
	if err == nil {
		err = closeWrite(to)
	}
	if err != nil {
		h.stop(err)
		return
	}
	// The other side may still answer, for a limited time.
	_ = to.SetReadDeadline(time.Now().Add(halfClosedTime))
}

// writerOnly and readerOnly prevent shortcuts of io.Copy, which would not be counted.
type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)

// answer writes the complete answer to a CONNECT that is refused.
func answer(client net.Conn, status int, text string) {
	_ = client.SetWriteDeadline(time.Now().Add(headerTime))
	fmt.Fprintf(client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(text), text)
}
