package kubernetes

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestPodOpensNothing: a pod has no token, no namespace of its node and no privilege, and its program
// may write to its own directories alone.
func TestPodOpensNothing(t *testing.T) {
	class := spec.Class{
		User: "70000:70000", Image: spec.Image{Digest: "x@sha256:0"}, Cgroup: spec.Cgroup{MemoryBytes: 1 << 30, NanoCPUs: 1e9},
		Tmpfs: []spec.Tmpfs{{Target: spec.TmpDir, SizeBytes: 1 << 20}, {Target: spec.WorkDir, SizeBytes: 1 << 20}},
		Binds: []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir}},
		Masks: []spec.Mask{{Target: spec.InputDir + "/key"}, {Target: spec.InputDir + "/keys", Dir: true}},
	}
	sources := engine.Sources{spec.RoleInput: "/v/input", spec.RoleFinal: "/v/final", spec.RoleEmpty: "/v/empty"}
	mounts, err := mountsOf(class, sources, "/v")
	require.NoError(t, err)
	job, err := plan{config: cluster{CPUShare: 1}, class: class, meta: engine.Meta{Name: "evalbox-x"}, mounts: mounts, files: true, diskBytes: 1 << 20}.job()
	require.NoError(t, err)
	pod := job.Spec.Template.Spec
	require.Equal(t, ptr.To(false), pod.AutomountServiceAccountToken)
	require.Equal(t, ptr.To(false), pod.EnableServiceLinks)
	require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	require.Nil(t, pod.ShareProcessNamespace)
	require.Equal(t, ptr.To[int64](70000), pod.SecurityContext.RunAsUser)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		require.Equal(t, &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Privileged: ptr.To(false),
			RunAsNonRoot: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, c.SecurityContext, c.Name)
		require.False(t, c.Resources.Limits.Memory().IsZero(), c.Name)
	}
	for _, volume := range pod.Volumes {
		require.NotNil(t, volume.EmptyDir, volume.Name)
		require.False(t, volume.EmptyDir.SizeLimit.IsZero(), volume.Name)
	}
	var writable, readOnly []string
	for _, m := range pod.Containers[1].VolumeMounts {
		if m.ReadOnly {
			readOnly = append(readOnly, m.MountPath)
		} else {
			writable = append(writable, m.MountPath)
		}
	}
	require.ElementsMatch(t, []string{spec.TmpDir, spec.WorkDir, spec.FinalDir}, writable)
	require.ElementsMatch(t, []string{programsDir, lineDir, spec.InputDir, spec.InputDir + "/key", spec.InputDir + "/keys"}, readOnly)
}
