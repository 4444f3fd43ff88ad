package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// disrupted is a pod that the cluster is about to end.
func disrupted(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message},
	}}
}

func failed(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
}

// TestLossOf has the states of pods as clusters write them.
func TestLossOf(t *testing.T) {
	const terminated = "TerminationByKubelet"
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   engine.Loss
	}{
		"runs":             {corev1.PodStatus{Phase: corev1.PodRunning}, engine.NotLost},
		"failed by itself": {failed("", ""), engine.NotLost},
		"a volume":         {failed("Evicted", `Usage of EmptyDir volume "files" exceeds the limit "66Mi". `), engine.EvictedForDisk},
		"a container":      {failed("Evicted", `Container main exceeded its local ephemeral storage limit "1Gi". `), engine.EvictedForDisk},
		"all containers":   {failed("Evicted", `Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. `), engine.EvictedForDisk},
		"memory of the node": {failed("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container main was using 2Gi, request is 1Gi, has larger consumption of memory. "),
			engine.Evicted},
		"memory, while it ends": {disrupted(terminated, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "), engine.Evicted},
		"the node shuts down":   {disrupted(terminated, "Pod was terminated in response to imminent node shutdown."), engine.NodeLost},
		"drained":               {disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), engine.Evicted},
		"preempted":             {disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"), engine.Preempted},
		"a taint":               {disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), engine.NodeLost},
		"no node":               {disrupted("DeletionByPodGC", "PodGC: node no longer exists"), engine.NodeLost},
		"a deadline of the pod": {failed("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), engine.PodDeadline},
		"the node is silent":    {corev1.PodStatus{Phase: corev1.PodRunning, Reason: "NodeLost", Message: "Node 127.0.0.2 which was running pod p is unresponsive"}, engine.NodeLost},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, lossOf(&corev1.Pod{Status: test.status})) })
	}
	undone := disrupted("PreemptionByScheduler", "")
	undone.Conditions[1].Status = corev1.ConditionFalse
	require.Equal(t, engine.NotLost, lossOf(&corev1.Pod{Status: undone}))
	require.Equal(t, engine.NotLost, lossOf(nil))
}

func TestIsDeadline(t *testing.T) {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobFailureTarget} {
		require.True(t, isDeadline(batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded"}))
		require.False(t, isDeadline(batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}))
		require.False(t, isDeadline(batchv1.JobCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "DeadlineExceeded"}))
	}
}

// TestTroubleOf has the states of pods that do not start.
func TestTroubleOf(t *testing.T) {
	const digest = "registry.test/evalbox/nothing@sha256:00"
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: mainContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		reason string // empty: nothing is wrong yet
		wait   bool
	}{
		"new":             {corev1.PodStatus{Phase: corev1.PodPending}, "", true},
		"creating":        {waiting("ContainerCreating", ""), "", true},
		"no room":         {corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient memory."}}}, "Unschedulable", true},
		"no image":        {waiting("ErrImagePull", `failed to pull and unpack image "`+digest+`": failed to resolve image: not found`), "ErrImagePull", false},
		"no answer":       {waiting("ErrImagePull", `failed to pull and unpack image "`+digest+`": failed to do request: dial tcp 10.0.0.1:443: i/o timeout`), "ErrImagePull", true},
		"backing off":     {waiting("ImagePullBackOff", `Back-off pulling image "`+digest+`": ErrImagePull: not found`), "ImagePullBackOff", false},
		"no such program": {waiting("CreateContainerError", "failed to create containerd task"), "CreateContainerError", false},
		"evicted":         {failed("Evicted", "The node was low on resource: memory."), "Evicted", false},
		"failed":          {failed("", ""), "Failed", false},
	} {
		t.Run(name, func(t *testing.T) {
			trouble, wait := troubleOf(&corev1.Pod{Status: test.status})
			require.Equal(t, test.wait, wait)
			if test.reason == "" {
				require.Nil(t, trouble)
				return
			}
			require.NotNil(t, trouble)
			require.Equal(t, test.reason, trouble.Reason)
			require.NotEmpty(t, trouble.Hint())
			require.ErrorIs(t, trouble, engine.ErrNotStarted)
		})
	}
}
