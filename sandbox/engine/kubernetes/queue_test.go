//go:build linux && cluster

package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/outcome"
)

// These tests do what Kueue does: it resumes a Job that it admits, and suspends one that it preempts.

// suspend suspends or resumes the one Job of the namespace.
func (l *lab) suspend(on bool) error {
	ctx := context.WithoutCancel(l.t.Context())
	jobs, err := l.k.BatchV1().Jobs(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: "kueue.x-k8s.io/queue-name=" + l.config.Queue})
	if err != nil {
		return err
	}
	if len(jobs.Items) != 1 {
		return fmt.Errorf("%d Jobs are in the queue, not 1", len(jobs.Items))
	}
	_, err = l.k.BatchV1().Jobs(l.namespace).Patch(ctx, jobs.Items[0].Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, on), metav1.PatchOptions{})
	return err
}

// run runs a program whose outputs are collected.
func (l *lab) run(program string, stdout *output, hooks sandbox.Hooks) (*result.Result, error) {
	l.t.Helper()
	e, err := kubernetes.Connect(l.config)
	require.NoError(l.t, err)
	r, err := sandbox.New(sandbox.WithEngine(e), sandbox.WithStateDir(l.t.TempDir()))
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, r.Close()) })
	return r.Run(l.t.Context(), sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Final: filepath.Join(l.t.TempDir(), "final"),
		Command: []string{"python3", "-u", "-c", program}, Limits: policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB, Timeout: endOf}}, sandbox.IO{Stdout: stdout}, hooks)
}

func TestQueueAdmits(t *testing.T) {
	l := newLab(t, nil)
	l.config.Queue = "gpu-queue"
	var reasons []string
	var resumed error
	res, err := l.run("print('on')", &output{began: make(chan struct{})}, sandbox.Hooks{Waiting: func(why string) {
		reasons = append(reasons, why)
		resumed = l.suspend(false)
	}})
	require.NoError(t, err)
	require.NoError(t, resumed)
	require.Equal(t, []string{"quota of the queue gpu-queue"}, reasons)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	require.Zero(t, res.ExitCode)
}

func TestQueuePreempts(t *testing.T) {
	l := newLab(t, nil)
	l.config.Queue = "gpu-queue"
	var resumed error
	suspended := make(chan error, 1)
	out := &output{began: make(chan struct{})}
	go func() {
		select {
		case <-out.began:
			suspended <- l.suspend(true)
		case <-t.Context().Done():
		}
	}()
	res, err := l.run(sleeping, out, sandbox.Hooks{Waiting: func(string) { resumed = l.suspend(false) }})
	require.NoError(t, resumed)
	require.NoError(t, <-suspended)
	require.ErrorIs(t, err, outcome.ErrStoppedBy)
	require.Equal(t, result.StatusEngineLost, res.Status, res.Explanation)
	require.Equal(t, result.FaultEnvironment, res.Fault)
	require.Contains(t, res.Explanation, "more important")
}

// TestQueuePreemptsEarly: a place that is taken back before the program starts is not somebody's deletion
// of the pod.
func TestQueuePreemptsEarly(t *testing.T) {
	l := newLab(t, nil)
	l.config.Queue, l.config.NodeSelector = "gpu-queue", map[string]string{"pool": "nowhere"}
	e := l.connect()
	waits, ok := e.(engine.Waits)
	require.True(t, ok)
	var failed error
	stop := waits.OnWait(l.meta().Name, func(why string) {
		if failed == nil {
			failed = l.suspend(strings.HasPrefix(why, "a node: "))
		}
	})
	defer stop()
	_, err := e.Prepare(t.Context(), l.class(), l.meta())
	var trouble *kubernetes.StartError
	require.ErrorAs(t, err, &trouble)
	require.NoError(t, failed)
	require.Equal(t, "Preempted", trouble.Reason)
	require.Contains(t, trouble.Hint(), "run it again")
}

// TestWaitForQuota frees the quota of a namespace after the wait was reported.
func TestWaitForQuota(t *testing.T) {
	l := newLab(t, nil)
	quotas := l.k.CoreV1().ResourceQuotas(l.namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		quota, err := quotas.Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0
	}, endOf, 50*time.Millisecond)
	var reasons []string
	var freed error
	res, err := l.run("print('on')", &output{began: make(chan struct{})}, sandbox.Hooks{Waiting: func(why string) {
		reasons = append(reasons, why)
		freed = quotas.Delete(context.WithoutCancel(t.Context()), "none", metav1.DeleteOptions{})
	}})
	require.NoError(t, err)
	require.NoError(t, freed)
	require.Equal(t, []string{"quota of the namespace: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"}, reasons)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
}
