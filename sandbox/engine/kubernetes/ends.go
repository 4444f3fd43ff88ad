package kubernetes

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/evalbox/evalbox/internal/said"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// reasonOOM is the reason of a container that was killed for memory.
const reasonOOM = "OOMKilled"

// statusOfMain is how the program's container ended; ok is false if it has not.
func statusOfMain(pod *corev1.Pod) (status corev1.ContainerStateTerminated, ok bool) {
	if pod == nil {
		return status, false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == mainContainer && c.State.Terminated != nil {
			return *c.State.Terminated, true
		}
	}
	return status, false
}

// lossOf says whether the cluster ended a pod, and why. It is pure.
func lossOf(pod *corev1.Pod) engine.Loss {
	if pod == nil {
		return engine.NotLost
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case corev1.PodReasonPreemptionByScheduler:
			return engine.Preempted
		case "DeletionByTaintManager", "DeletionByPodGC":
			return engine.NodeLost
		case corev1.PodReasonTerminationByKubelet:
			if strings.Contains(c.Message, "shutdown") {
				return engine.NodeLost
			}
			return evictionOf(pod.Status.Message + c.Message)
		case "EvictionByEvictionAPI":
			return engine.Evicted
		}
	}
	switch pod.Status.Reason {
	case "Evicted":
		return evictionOf(pod.Status.Message)
	case "DeadlineExceeded":
		return engine.PodDeadline
	case "NodeLost", "NodeShutdown", "Terminated":
		return engine.NodeLost
	case "Preempting":
		return engine.Preempted
	}
	return engine.NotLost
}

// evictionOf distinguishes a pod that wrote too much from a node that is short of something.
func evictionOf(message string) engine.Loss {
	if strings.Contains(message, "exceeds the limit") || strings.Contains(message, "exceeds the total limit") || strings.Contains(message, "exceeded its local ephemeral storage") {
		return engine.EvictedForDisk
	}
	return engine.Evicted
}

// complaintOf is what the kubelet says of the end of the program's container, for an error.
func complaintOf(pod *corev1.Pod) string {
	status, ok := statusOfMain(pod)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; its container ended with exit code %d: %s %s", status.ExitCode, status.Reason, said.Text(status.Message))
}

// A StartError says why the cluster does not start a pod. It is an [engine.ErrNotStarted] and an
// [engine.ErrNotPlaced].
type StartError struct {
	// Reason is the cluster's, such as Unschedulable or ErrImagePull, and Message its text.
	Reason, Message string
	hint            string
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%v: %s: %s", engine.ErrNotStarted, e.Reason, said.Text(e.Message))
}

func (e *StartError) Unwrap() []error { return []error{engine.ErrNotStarted, engine.ErrNotPlaced} }

// Hint says what to try.
func (e *StartError) Hint() string { return e.hint }

// troubleOf says why a pod has not started. wait says that the cluster may start it later. Nil means
// that nothing is wrong yet. It is pure.
func troubleOf(pod *corev1.Pod) (trouble *StartError, wait bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return unscheduled(c)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range statuses {
			if c.State.Waiting == nil {
				continue
			}
			reason, message := c.State.Waiting.Reason, c.State.Waiting.Message
			switch {
			case reason == "ErrImagePull" && isTemporary(message):
				return &StartError{Reason: reason, Message: message, hint: imageHint}, true
			case strings.HasPrefix(reason, "ErrImage") || reason == "ImagePullBackOff" || reason == "InvalidImageName" || reason == "ImageInspectError" || reason == "RegistryUnavailable":
				return &StartError{Reason: reason, Message: message, hint: imageHint}, false
			case strings.HasPrefix(reason, "CreateContainer") || reason == "RunContainerError" || reason == "PostStartHookError":
				return &StartError{Reason: reason, Message: message, hint: "see: kubectl describe pod"}, false
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return &StartError{Reason: nonEmpty(pod.Status.Reason, string(pod.Status.Phase)), Message: nonEmpty(pod.Status.Message, "the pod ended before its init was ready"),
			hint: "see: kubectl describe pod"}, false
	}
	return nil, true
}

const imageHint = "check that the nodes can pull the image by this digest (that of the run, or kubernetes.programs), and that kubernetes.pull_secrets names its credentials; push a local image with: sandbox image push"

// unscheduled says why a pod has no node, and whether it may get one later.
func unscheduled(c corev1.PodCondition) (trouble *StartError, wait bool) {
	if strings.Contains(c.Message, "persistentvolumeclaim") && strings.Contains(c.Message, "not found") {
		return &StartError{Reason: c.Reason, Message: c.Message, hint: "see the claims of the namespace with: kubectl get persistentvolumeclaims"}, false
	}
	return &StartError{Reason: c.Reason, Message: c.Message, hint: "ask for less memory, fewer processors or GPUs, or wait longer with --schedule-timeout (kubernetes.schedule_timeout); see: kubectl describe nodes"}, true
}

func isTemporary(message string) bool {
	return strings.Contains(message, "i/o timeout") || strings.Contains(message, "connection refused") || strings.Contains(message, "TLS handshake timeout")
}

func nonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
