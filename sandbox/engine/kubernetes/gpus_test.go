package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestDevicesAreRefused checks that a run that names devices does not start without them.
func TestDevicesAreRefused(t *testing.T) {
	e, err := newAdapter(cluster{Programs: "registry.example/init@sha256:0"}, &rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	defer e.Close()
	for _, gpus := range []spec.GPURequest{{All: true}, {IDs: []string{"0"}}} {
		class := spec.Class{User: "1:1", Image: spec.Image{Digest: "registry.example/x@sha256:0"}, GPUs: gpus}
		_, err := e.Prepare(t.Context(), class, engine.Meta{Name: "evalbox-x"})
		var refused *policy.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "gpus", refused.Field)
	}
}

// TestGPUsInThePlan: a number of GPUs is in the limits of the program's container, or in a claim.
func TestGPUsInThePlan(t *testing.T) {
	p := plan{config: cluster{GPUResource: "example.com/gpu", CPUShare: 1}, meta: engine.Meta{Name: "evalbox-x"},
		class: spec.Class{User: "1:1", Image: spec.Image{Digest: "x@sha256:0"}, GPUs: spec.GPURequest{Count: 2}}}
	job, err := p.job()
	require.NoError(t, err)
	pod := job.Spec.Template.Spec
	limits, requests := pod.Containers[1].Resources.Limits, pod.Containers[1].Resources.Requests
	require.Equal(t, int64(2), ptr.To(limits["example.com/gpu"]).Value())
	require.Equal(t, limits["example.com/gpu"], requests["example.com/gpu"])
	require.NotContains(t, pod.Containers[0].Resources.Limits, corev1.ResourceName("example.com/gpu"), "the porter needs none")
	require.Empty(t, pod.ResourceClaims)

	p.config.GPUDeviceClass = "gpu.example.com"
	job, err = p.job()
	require.NoError(t, err)
	pod = job.Spec.Template.Spec
	require.NotContains(t, pod.Containers[1].Resources.Limits, corev1.ResourceName("example.com/gpu"))
	require.Equal(t, []corev1.ResourceClaim{{Name: gpuClaim}}, pod.Containers[1].Resources.Claims)
	require.Empty(t, pod.Containers[0].Resources.Claims)
	require.Equal(t, []corev1.PodResourceClaim{{Name: gpuClaim, ResourceClaimTemplateName: ptr.To("evalbox-x")}}, pod.ResourceClaims)
	job.UID = "u"
	template := p.claimTemplate(job)
	require.Equal(t, "evalbox-x", template.Name)
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "evalbox-x", UID: "u"}}, template.OwnerReferences)
	require.Equal(t, []resourcev1.DeviceRequest{{Name: gpuClaim, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}}}, template.Spec.Spec.Devices.Requests)

	p.class.GPUs.Count = 0
	job, err = p.job()
	require.NoError(t, err)
	require.Empty(t, job.Spec.Template.Spec.ResourceClaims)
}
