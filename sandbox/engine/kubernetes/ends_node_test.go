//go:build linux && cluster && nodes

package kubernetes_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// TestEndNodeLost kills a node, and then says that it is out of service, as an administrator does: until then
// the cluster waits for it.
func TestEndNodeLost(t *testing.T) {
	node2 := os.Getenv("EVALBOX_KUBERNETES_NODE2")
	require.NotEmpty(t, node2, "this test kills the second node of a cluster of its own: EVALBOX_KUBERNETES_NODES=2 hack/engine run kubernetes")
	l := newLab(t, nil)
	nodes := l.k.CoreV1().Nodes()
	const name = "127.0.0.2"
	l.config.NodeSelector = map[string]string{corev1.LabelHostname: name}
	c, _ := l.start(l.class(), l.meta(), sleeping)
	control := func(command string) {
		said, err := exec.CommandContext(context.Background(), node2, command).CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	control("stop")
	t.Cleanup(func() {
		_, err := nodes.Patch(context.Background(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		control("start")
	})
	require.Eventually(t, func() bool {
		node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeUnreachable })
	}, 2*endOf, 100*time.Millisecond)
	_, err := nodes.Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/taints/-","value":{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*endOf)
	defer cancel()
	end, err := c.Wait(ctx)
	for errors.Is(err, engine.ErrUnavailable) { // a caller waits again, as after any outage
		end, err = c.Wait(ctx)
	}
	require.NoError(t, err)
	require.Equal(t, engine.NodeLost, end.Loss, "%+v", end)
	require.False(t, end.Reported)
}
