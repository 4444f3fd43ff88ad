//go:build linux && cluster

package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// standIns gives a node some devices that only this lab asks for. They are stand-ins: a number in the
// status of the node, and nothing else.
func (l *lab) standIns(number int) corev1.ResourceName {
	l.t.Helper()
	name := "evalbox.test/" + l.namespace
	nodes, err := l.k.CoreV1().Nodes().List(l.t.Context(), metav1.ListOptions{})
	require.NoError(l.t, err)
	patch := func(text string) {
		_, err := l.k.CoreV1().Nodes().Patch(context.Background(), nodes.Items[0].Name, types.JSONPatchType, []byte(text), metav1.PatchOptions{}, "status")
		require.NoError(l.t, err)
	}
	path := "/status/capacity/" + strings.ReplaceAll(name, "/", "~1")
	patch(fmt.Sprintf(`[{"op":"add","path":%q,"value":"%d"}]`, path, number))
	l.t.Cleanup(func() { patch(fmt.Sprintf(`[{"op":"remove","path":%q}]`, path)) })
	return corev1.ResourceName(name)
}

// small is a run of a Python program that needs little.
func small(program string) sandbox.Request {
	return sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Command: []string{"python3", "-u", "-c", program},
		Limits: policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB, Timeout: endOf}}
}

// TestGPUs runs programs with two of three devices each: the second one waits for the first.
func TestGPUs(t *testing.T) {
	l := newLab(t, nil)
	l.config.GPUResource = string(l.standIns(3))
	r := l.runner()
	var began sync.WaitGroup
	began.Add(1)
	read, write, err := os.Pipe() // the first program ends when the pipe does
	require.NoError(t, err)
	defer read.Close()
	run := func(io sandbox.IO, started func()) *result.Result {
		req := small("import os, sys; sys.stdin.read(); print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('NVIDIA_VISIBLE_DEVICES'))")
		req.GPUs = "2"
		res, err := r.Run(t.Context(), req, io, sandbox.Hooks{Running: started})
		if err != nil {
			t.Error(err)
			return &result.Result{}
		}
		return res
	}
	results := make(chan *result.Result, 2)
	go func() { results <- run(sandbox.IO{Stdin: read}, began.Done) }()
	began.Wait()
	pod := l.pod()
	require.Equal(t, int64(2), pod.Spec.Containers[1].Resources.Limits.Name(corev1.ResourceName(l.config.GPUResource), "").Value())
	go func() { results <- run(sandbox.IO{}, func() {}) }()
	require.Eventually(t, func() bool {
		pods, err := l.k.CoreV1().Pods(l.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.Conditions {
				if c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, l.config.GPUResource) {
					return true
				}
			}
		}
		return false
	}, endOf, 20*time.Millisecond, "the second pod waits for devices")
	require.Empty(t, results)
	require.NoError(t, write.Close())
	for range 2 {
		res := <-results
		require.Equal(t, "0,1 None\n", res.Stdout)
		require.Equal(t, []string{l.config.GPUResource, l.config.GPUResource}, res.Enforced.GPUs)
		require.Equal(t, "limits", res.Enforced.GPUDriver)
	}
}

// TestGPUClaim asks for two of three devices by a claim. The scheduler allocates them. No kubelet plugin
// prepares them, so the pod does not start; nothing of it stays behind.
func TestGPUClaim(t *testing.T) {
	l := newLab(t, nil)
	driver := l.namespace + ".evalbox.test"
	l.config.GPUDeviceClass = driver
	classes, slices := l.k.ResourceV1().DeviceClasses(), l.k.ResourceV1().ResourceSlices()
	nodes, err := l.k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, err = classes.Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == '" + driver + "'"}}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, classes.Delete(context.Background(), driver, metav1.DeleteOptions{})) })
	_, err = slices.Create(t.Context(), &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: &nodes.Items[0].Name, Pool: resourcev1.ResourcePool{Name: "pool", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}, {Name: "gpu-2"}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, slices.Delete(context.Background(), driver, metav1.DeleteOptions{})) })

	class := l.class()
	class.GPUs.Count = 2
	e := l.connect()
	ctx, cancel := context.WithCancel(t.Context())
	prepared := make(chan error, 1)
	go func() { _, err := e.Prepare(ctx, class, l.meta()); prepared <- err }()
	claims := func() []resourcev1.ResourceClaim {
		list, err := l.k.ResourceV1().ResourceClaims(l.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return list.Items
	}
	require.Eventually(t, func() bool {
		list := claims()
		return len(list) == 1 && list[0].Status.Allocation != nil && len(list[0].Status.Allocation.Devices.Results) == 2 && l.pod().Spec.NodeName != ""
	}, endOf, 50*time.Millisecond, "the scheduler allocates two devices")
	cancel()
	require.ErrorIs(t, <-prepared, context.Canceled)
	require.Eventually(t, func() bool {
		templates, err := l.k.ResourceV1().ResourceClaimTemplates(l.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(templates.Items) == 0 && len(claims()) == 0
	}, endOf, 100*time.Millisecond, "template and claim go with the Job")
}

// TestImageReported: the node reports the digest that was asked for, also for an image that was imported.
func TestImageReported(t *testing.T) {
	l := newLab(t, nil)
	c, _ := l.start(l.class(), l.meta(), sleeping)
	ctx, cancel := context.WithTimeout(t.Context(), endOf)
	defer cancel()
	for image, changed := kubernetes.SeenImage(c); image == ""; image, changed = kubernetes.SeenImage(c) {
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(t, "the node reports no image")
		}
	}
	require.NoError(t, c.Signal(t.Context(), engine.Kill))
	require.Equal(t, os.Getenv("EVALBOX_KUBERNETES_IMAGE"), l.end(c).Image)
}
