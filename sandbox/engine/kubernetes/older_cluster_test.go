//go:build linux && cluster

package kubernetes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// TestOlderCluster runs a program with files where an init container brings the programs of evalbox.
func TestOlderCluster(t *testing.T) { //nolint:paralleltest // it changes what every pod looks like
	kubernetes.WithoutImageVolumes(t)
	l := newLabAlone(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	r, err := sandbox.New(sandbox.WithEngine(l.connect()), sandbox.WithStateDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	input, final := t.TempDir(), filepath.Join(t.TempDir(), "final")
	require.NoError(t, os.WriteFile(filepath.Join(input, "text"), []byte("from outside"), 0o600))
	out := &output{began: make(chan struct{})}
	pods := make(chan []corev1.Pod, 1)
	go func() {
		defer close(pods)
		select {
		case <-out.began:
			if list, err := l.k.CoreV1().Pods(l.namespace).List(t.Context(), metav1.ListOptions{}); err == nil {
				pods <- list.Items
			}
		case <-t.Context().Done():
		}
	}()
	program := "import os; print('on'); open('/work/final/f', 'w').write(open('/work/input/text').read())"
	res, err := r.Run(t.Context(), sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Input: input, Final: final,
		Command: []string{"python3", "-u", "-c", program},
		Limits:  policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB, Timeout: endOf}}, sandbox.IO{Stdout: out})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode, res.Explanation)
	text, err := os.ReadFile(filepath.Join(final, "f"))
	require.NoError(t, err)
	require.Equal(t, "from outside", string(text))
	found := <-pods
	require.Len(t, found, 1)
	require.Len(t, found[0].Spec.InitContainers, 1)
}
