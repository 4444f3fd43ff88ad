package kubernetes

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// TestConnectWithoutACluster checks that the error says what is missing, with a hint that can be carried out.
func TestConnectWithoutACluster(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, says := range map[string]string{"": "neither a kubeconfig file", "/no/such/file": "/no/such/file"} {
		_, err := Connect(engine.Cluster{Programs: "registry.example/init@sha256:0", Kubeconfig: path})
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.ErrorContains(t, err, says)
		var hint interface{ Hint() string }
		require.ErrorAs(t, err, &hint)
		require.Contains(t, hint.Hint(), "kubernetes.kubeconfig")
	}
}
