package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestImageOfAPod: a mirror has the digest of the plan, and anything else is another image.
func TestImageOfAPod(t *testing.T) {
	const want = "registry.example/x@sha256:aa"
	for image, fits := range map[string]bool{
		want: true, "mirror.example/x@sha256:aa": true, "mirror.example/x:1@sha256:aa": true,
		"registry.example/x@sha256:bb": false, "registry.example/x:1": false, "": false,
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: porterContainer, Image: want}, {Name: mainContainer, Image: image}}}}
		if err := checkImage(pod, want); fits {
			require.NoError(t, err, image)
		} else {
			require.ErrorContains(t, err, "container main", image)
		}
	}
	require.NoError(t, checkImage(nil, want))

	require.Empty(t, imageOf(nil))
	require.Empty(t, imageOf(&corev1.Pod{}))
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: porterContainer, ImageID: "y"}, {Name: mainContainer, ImageID: want}}}}
	require.Equal(t, want, imageOf(pod))
}
