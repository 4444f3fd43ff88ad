//go:build linux

package docker_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestEngineConformance runs on the engine that the docker command would use here, with the
// debian image. If either is missing it fails with instructions: `make test` provides
// both.
func TestEngineConformance(t *testing.T) {
	catalog, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	require.NoError(t, err)
	debian, _ := catalog.Lookup("debian")
	endpoint, err := dockerhost.Find(dockerhost.Address{})
	require.NoError(t, err)
	enginetest.Run(t, enginetest.Options{
		New: func(t *testing.T) engine.Engine {
			t.Helper()
			e, err := docker.FromEnv()
			require.NoError(t, err)
			return e
		},
		Image: debian.Tag(), Labels: map[string]string{spec.LabelOwner: owner.This().String()},
		Breakable: func(t *testing.T) (engine.Engine, func(), func()) {
			t.Helper()
			way := newDetour(t, endpoint.Host)
			e, err := docker.Connect(docker.Address{Host: "unix://" + way.socket})
			require.NoError(t, err)
			return e, way.stop, way.start
		},
	})
}

// detour is a proxy in front of an engine whose connections can be broken.
type detour struct {
	t               *testing.T
	network, target string
	socket          string
	mu              sync.Mutex
	listener        net.Listener
	open            map[net.Conn]bool
}

func newDetour(t *testing.T, host string) *detour {
	t.Helper()
	network, target, ok := strings.Cut(host, "://")
	require.True(t, ok && (network == "unix" || network == "tcp"), "no way around %s", host)
	d := &detour{t: t, network: network, target: target, socket: filepath.Join(t.TempDir(), "s"), open: map[net.Conn]bool{}}
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *detour) start() {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", d.socket)
	require.NoError(d.t, err)
	d.mu.Lock()
	d.listener = listener
	d.mu.Unlock()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // stopped
			}
			go d.pass(from)
		}
	}()
}

// stop breaks every connection.
func (d *detour) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.listener.Close() // may already be closed
	for conn := range d.open {
		_ = conn.Close() // the peer may have closed it first
	}
	d.open = map[net.Conn]bool{}
}

func (d *detour) pass(from net.Conn) {
	to, err := new(net.Dialer).DialContext(context.Background(), d.network, d.target)
	if err != nil {
		_ = from.Close() // nobody handles the error
		return
	}
	d.mu.Lock()
	d.open[from], d.open[to] = true, true
	d.mu.Unlock()
	half := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			_ = to.Close() // it is already broken
			return
		}
		_ = to.(interface{ CloseWrite() error }).CloseWrite() // may already be closed
	}
	var wg sync.WaitGroup
	wg.Go(func() { half(to, from) })
	wg.Go(func() { half(from, to) })
	wg.Wait()
	_, _ = from.Close(), to.Close() // both directions have ended
}
