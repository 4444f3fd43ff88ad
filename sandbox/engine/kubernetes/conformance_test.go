//go:build linux && cluster

package kubernetes_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
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
			way, kubeconfig := detour(t)
			c.Kubeconfig = kubeconfig
			return connect(t, c), way.Stop, way.Start
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

// detour is a way to the API server whose connections can be broken, and its kubeconfig.
func detour(t *testing.T) (way *enginetest.Detour, kubeconfig string) {
	t.Helper()
	file, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	require.NoError(t, err)
	for _, cluster := range file.Clusters {
		server, err := url.Parse(cluster.Server)
		require.NoError(t, err)
		way = enginetest.NewDetour(t, "tcp://127.0.0.1:0", "tcp://"+server.Host)
		server.Host = strings.TrimPrefix(way.Address(), "tcp://")
		cluster.Server = server.String()
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, kubeconfig))
	return way, kubeconfig
}
