package enginetest

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Detour is a proxy in front of a server whose connections can be broken: see
// [Options.Breakable].
type Detour struct {
	t        testing.TB
	from, to string

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
	made     int
}

// NewDetour starts a detour, which ends with the test. Both addresses are written as
// unix:///PATH or tcp://HOST:PORT.
func NewDetour(t testing.TB, from, to string) *Detour {
	t.Helper()
	d := &Detour{t: t, from: from, to: to, open: map[net.Conn]bool{}}
	d.Start()
	t.Cleanup(d.Stop)
	return d
}

// Address is where the detour listens. It stays the same.
func (d *Detour) Address() string { return d.from }

// Made is how many connections were made.
func (d *Detour) Made() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made
}

// Start lets connections be made again.
func (d *Detour) Start() {
	network, address, _ := strings.Cut(d.from, "://")
	listener, err := new(net.ListenConfig).Listen(context.Background(), network, address)
	require.NoError(d.t, err)
	d.mu.Lock()
	d.listener, d.from = listener, network+"://"+listener.Addr().String()
	d.mu.Unlock()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // stopped
			}
			go d.pass(listener, from)
		}
	}()
}

// Stop breaks every connection, and lets none be made.
func (d *Detour) Stop() {
	d.mu.Lock()
	if d.listener != nil {
		_ = d.listener.Close() // there is nothing to do if it fails
		d.listener = nil
	}
	d.mu.Unlock()
	d.Cut()
}

// Cut breaks every connection; others can be made.
func (d *Detour) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.open {
		_ = conn.Close() // the peer may have closed it first
	}
	clear(d.open)
}

func (d *Detour) pass(listener net.Listener, from net.Conn) {
	network, address, _ := strings.Cut(d.to, "://")
	to, err := new(net.Dialer).DialContext(context.Background(), network, address)
	if err != nil {
		_ = from.Close() // nobody handles the error
		return
	}
	d.mu.Lock()
	d.made++
	d.open[from], d.open[to] = true, true
	stopped := d.listener != listener
	d.mu.Unlock()
	if stopped {
		d.Cut()
	}
	half := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite() // may already be closed
			return
		}
		_ = to.Close() // it is already broken
	}
	var wg sync.WaitGroup
	wg.Go(func() { half(to, from) })
	wg.Go(func() { half(from, to) })
	wg.Wait()
	_, _ = from.Close(), to.Close() // both directions have ended
}
