package kubernetes

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// digestOf is the digest of a reference or of an image ID; empty if it has none.
func digestOf(image string) string {
	if i := strings.LastIndex(image, "sha256:"); i >= 0 {
		return image[i:]
	}
	return ""
}

// checkImage refuses a pod whose containers have another image than the plan: an admission webhook may
// have replaced it. A mirror has another name and the same digest. It is pure.
func checkImage(pod *corev1.Pod, want string) error {
	if pod == nil {
		return nil
	}
	for _, c := range pod.Spec.Containers {
		if digestOf(c.Image) != digestOf(want) {
			return &StartError{Reason: "ImageReplaced",
				Message: fmt.Sprintf("the cluster gave the container %s the image %.200s instead of %.200s", c.Name, c.Image, want),
				hint:    "see which webhook changes pods: kubectl get mutatingwebhookconfigurations"}
		}
	}
	return nil
}

// imageOf is the image that the kubelet reports for the program's container; empty if it has not done so
// yet. It is pure.
func imageOf(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == mainContainer {
			return c.ImageID
		}
	}
	return ""
}
