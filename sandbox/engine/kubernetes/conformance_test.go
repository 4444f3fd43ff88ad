//go:build linux && cluster

package kubernetes_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// config is that of the cluster of hack/engine. Without a cluster the tests fail: make test provides it.
func config(t *testing.T) engine.Cluster {
	t.Helper()
	programs := os.Getenv("EVALBOX_KUBERNETES_PROGRAMS")
	require.NotEmpty(t, programs, "these tests need a cluster: make test-kubernetes")
	return engine.Cluster{Programs: programs, Window: 5 * time.Second, CPUShare: 0.05}
}

// TestConformance runs the suite of every engine on a real cluster.
func TestConformance(t *testing.T) {
	connect := func(t *testing.T, config engine.Cluster) engine.Engine {
		t.Helper()
		e, err := kubernetes.Connect(config)
		require.NoError(t, err)
		return e
	}
	enginetest.Run(t, enginetest.Options{
		New:    func(t *testing.T) engine.Engine { t.Helper(); return connect(t, config(t)) },
		Image:  os.Getenv("EVALBOX_KUBERNETES_IMAGE"),
		Labels: map[string]string{spec.LabelOwner: owner.This().String()},
		Breakable: func(t *testing.T) (engine.Engine, func(), func()) {
			t.Helper()
			c := config(t)
			way := newDetour(t)
			c.Kubeconfig = way.kubeconfig
			return connect(t, c), way.stop, way.start
		},
		Without: []string{
			"sources: a pod has no paths of its node",
			"directory: a pod has no paths of its node",
			"helper: the porter is in the pod of the run",
			"processes: the kubelet bounds the processes of a pod, not those of one run",
			"inodes: the file systems in memory of a pod have no limit of their files",
			"aliases: their file system has no limit of its files",
			"limits: see inodes and processes",
			"resolve: a digest names an image without a question to the cluster",
			"threads: see processes",
			"threads of init: see processes",
			"no process left, then an exit: see processes",
			"no process left, then the deadline: see processes",
			"memory that outlives its program: the kubelet makes no file system in memory larger than the memory of its pod",
			"masks: they need files, which come with the volume of a run",
			"pass: a session of a controller cannot be handed to another process",
			"sample: the API of a cluster has no counters that a controller may read",
			"relay: a pod does not mount the socket of a proxy",
		},
	})
}

// detour is a proxy in front of the API server whose connections can be broken.
type detour struct {
	t                  *testing.T
	target, kubeconfig string
	address            string
	mu                 sync.Mutex
	listener           net.Listener
	open               map[net.Conn]bool
}

func newDetour(t *testing.T) *detour {
	t.Helper()
	file, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	require.NoError(t, err)
	d := &detour{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), address: "127.0.0.1:0", open: map[net.Conn]bool{}}
	d.start()
	t.Cleanup(d.stop)
	for _, cluster := range file.Clusters {
		server, err := url.Parse(cluster.Server)
		require.NoError(t, err)
		d.target, server.Host = server.Host, d.address
		cluster.Server = server.String()
	}
	require.NoError(t, clientcmd.WriteToFile(*file, d.kubeconfig))
	return d
}

func (d *detour) start() {
	listener, err := net.Listen("tcp", d.address)
	require.NoError(d.t, err)
	d.mu.Lock()
	d.listener, d.address = listener, listener.Addr().String()
	d.mu.Unlock()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // stopped
			}
			to, err := net.Dial("tcp", d.target)
			if err != nil {
				_ = from.Close()
				continue
			}
			d.mu.Lock()
			stopped := d.listener != listener
			d.open[from], d.open[to] = true, true
			d.mu.Unlock()
			if stopped {
				d.stop()
				continue
			}
			pipe := func(a, b net.Conn) {
				_, _ = io.Copy(a, b) // until one side closes it
				_ = a.Close()
				_ = b.Close()
			}
			go pipe(from, to)
			go pipe(to, from)
		}
	}()
}

func (d *detour) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != nil {
		_ = d.listener.Close()
	}
	d.listener = nil
	for conn := range d.open {
		_ = conn.Close()
		delete(d.open, conn)
	}
}
