package evalbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestNewOnKubernetes: settings choose a cluster, and only the option brings the engine for it. An engine
// that the caller gives is taken whatever the settings say.
func TestNewOnKubernetes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("SANDBOX_CONFIG", filepath.Join(dir, "settings.yaml"))
	t.Setenv("SANDBOX_KUBERNETES_NAMESPACE", "runs")
	require.NoError(t, os.WriteFile("settings.yaml", []byte("state_dir: state\nengine: kubernetes\n"), 0o600))

	_, err := evalbox.New()
	require.EqualError(t, err, filepath.Join(dir, "settings.yaml")+`:2: engine "kubernetes": this program does not contain it`)
	var hinted interface{ Hint() string }
	require.ErrorAs(t, err, &hinted)
	require.Contains(t, hinted.Hint(), "github.com/evalbox/evalbox/sandbox/engine/kubernetes")
	require.Contains(t, hinted.Hint(), "sandbox.WithKubernetes(kubernetes.Connect)")

	namespaces := []string{}
	connect := func(c engine.Cluster) (engine.Engine, error) {
		namespaces = append(namespaces, c.Namespace)
		return enginetest.NewFake(nil), nil
	}
	for _, options := range [][]sandbox.Option{{}, {sandbox.WithEngine(enginetest.NewFake(nil))}} {
		runner, err := evalbox.New(append(options, sandbox.WithKubernetes(connect))...)
		require.NoError(t, err)
		info, err := runner.Sandbox.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, "Fake", info.Name)
		require.NoError(t, runner.Close())
	}
	require.Equal(t, []string{"runs"}, namespaces, "the given engine takes the place of the cluster")
}
