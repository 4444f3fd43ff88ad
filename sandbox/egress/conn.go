package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// boundedListener accepts connections up to the limit of open ones.
type boundedListener struct {
	net.Listener
	proxy *proxy
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if client := l.proxy.client(conn); client != nil {
			return client, nil
		}
	}
}

// client admits a connection of the program. It closes one beyond the limit, and returns nil.
func (p *proxy) client(conn net.Conn) net.Conn {
	p.mu.Lock()
	full, closed := p.clients >= p.cfg.Limits.Connections, p.closed
	if !full && !closed {
		p.clients++
	}
	p.mu.Unlock()
	if !full && !closed {
		return p.track(&trackedConn{Conn: conn, limit: time.Now().Add(p.cfg.Limits.ConnectionTime), client: true})
	}
	if full {
		p.requests.Add(1)
		now := p.cfg.Now()
		x := &exchange{began: now, entry: Entry{Time: now.UTC().Format(time.RFC3339Nano)}}
		_, _ = x.fail(&RefusedError{"the limit of connections is reached"})
		p.end(x)
		// A short line to an empty socket does not block.
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write([]byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
	}
	_ = conn.Close()
	return nil
}

// track remembers a connection, for Close, and gives it its deadline.
func (p *proxy) track(c *trackedConn) net.Conn {
	c.proxy = p
	_ = c.SetDeadline(time.Time{}) // the next use of a closed connection reports the error
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Conn.Close()
	}
	p.conns[c.Conn] = struct{}{}
	return c
}

// forget is called once a connection is closed.
func (p *proxy) forget(c *trackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c.Conn)
	if c.client {
		p.clients--
	}
}

// trackedConn is a connection with a fixed end. A later deadline has no effect.
type trackedConn struct {
	net.Conn
	proxy  *proxy
	limit  time.Time
	client bool
	once   sync.Once
}

func (c *trackedConn) within(t time.Time) time.Time {
	if t.IsZero() || t.After(c.limit) {
		return c.limit
	}
	return t
}

func (c *trackedConn) SetDeadline(t time.Time) error     { return c.Conn.SetDeadline(c.within(t)) }
func (c *trackedConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.within(t)) }
func (c *trackedConn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.within(t))
}

func (c *trackedConn) Close() error {
	c.once.Do(func() { c.proxy.forget(c) })
	return c.Conn.Close()
}

// CloseWrite closes one direction if the connection supports that, else both.
func (c *trackedConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// errBytes means that the run has used up its bytes.
var errBytes = errors.New("the limit of bytes is reached")

// meteredConn is a connection to a host whose bytes are counted.
type meteredConn struct {
	net.Conn
	x     *exchange
	proxy *proxy
}

func (c *meteredConn) Read(b []byte) (int, error) {
	if c.proxy.spent() {
		return 0, errBytes
	}
	n, err := c.Conn.Read(b)
	c.x.down.Add(int64(n))
	c.proxy.down.Add(int64(n))
	return n, err
}

func (c *meteredConn) Write(b []byte) (int, error) {
	if c.proxy.spent() {
		return 0, errBytes
	}
	// The bytes are counted first, since the answer may be logged before the write
	// returns.
	c.x.up.Add(int64(len(b)))
	c.proxy.up.Add(int64(len(b)))
	n, err := c.Conn.Write(b)
	c.x.up.Add(int64(n - len(b)))
	c.proxy.up.Add(int64(n - len(b)))
	return n, err
}

func (c *meteredConn) CloseWrite() error { return closeWrite(c.Conn) }

// replayConn returns bytes that were read before, and then those of the connection.
type replayConn struct {
	net.Conn
	seen []byte
}

func (c *replayConn) Read(b []byte) (int, error) {
	if len(c.seen) > 0 {
		n := copy(b, c.seen)
		c.seen = c.seen[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *replayConn) CloseWrite() error { return closeWrite(c.Conn) }

// hijack takes the connection of a request, with the bytes that the server has already read: a
// client may send before the answer to its CONNECT.
func hijack(w http.ResponseWriter) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	seen, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &replayConn{conn, append([]byte(nil), seen...)}, nil
}

// limitContext returns the context of a connection, with its end as a value.
func limitContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*trackedConn); ok {
		return context.WithValue(ctx, limitKey{}, c.limit)
	}
	return ctx
}
