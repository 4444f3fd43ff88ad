package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestWaitsAreReportedOnce(t *testing.T) {
	e := &adapter{}
	var heard []string
	stop := e.OnWait("Run_1", func(why string) { heard = append(heard, why) })
	job := jobName("Run_1")
	e.waits.report(job, "a node: 0/5 nodes are available: 3 Insufficient memory.")
	e.waits.report(job, "a node: 0/6 nodes are available: 4 Insufficient memory.")
	e.waits.report("another", "quota of the queue q")
	e.waits.report(job, "quota of the queue q")
	e.waits.report(job, "a node: 0/5 nodes are available: 3 Insufficient memory.")
	require.Equal(t, []string{"a node: 0/5 nodes are available: 3 Insufficient memory.", "quota of the queue q"}, heard)
	for i := range 2 * waitReasons {
		e.waits.report(job, strings.Repeat("x", waitBytes+i))
	}
	require.Len(t, heard, waitReasons)
	require.Len(t, heard[waitReasons-1], waitBytes)
	stop()
	e.waits.report(job, "its image: y")
	require.Len(t, heard, waitReasons)
	require.Empty(t, e.waits.ofJob)
}

func TestWaitTexts(t *testing.T) {
	require.Equal(t, "quota of the queue q", waitForQueue("q"))
	require.Contains(t, waitForQueue(""), "suspended")
	require.Equal(t, "quota of the namespace: exceeded quota: none, requested: pods=1",
		waitForQuota(`Error creating: pods "x-abcde" is forbidden: exceeded quota: none, requested: pods=1`))
	require.Equal(t, "a node: none fits", waitForPod(&StartError{Reason: "Unschedulable", Message: "none fits"}))
	require.Equal(t, "a node: SchedulingGated", waitForPod(&StartError{Reason: "SchedulingGated"}))
	require.Equal(t, "its image: i/o timeout", waitForPod(&StartError{Reason: "ErrImagePull", Message: "i/o timeout"}))
}

func TestWasSuspended(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
	job := func(suspended bool, changed time.Time, status corev1.ConditionStatus) *batchv1.Job {
		return &batchv1.Job{Spec: batchv1.JobSpec{Suspend: ptr.To(suspended)}, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuspended, Status: status, LastTransitionTime: metav1.NewTime(changed)}}}}
	}
	before, after := created.Add(-time.Second), created.Add(time.Second)
	for name, test := range map[string]struct {
		job  *batchv1.Job
		pod  *corev1.Pod
		want bool
	}{
		"never":                  {&batchv1.Job{}, pod, false},
		"resumed before the pod": {job(false, before, corev1.ConditionFalse), pod, false},
		"with the pod":           {job(false, created, corev1.ConditionFalse), pod, false},
		"suspended":              {job(true, before, corev1.ConditionFalse), pod, true},
		"resumed again":          {job(false, after, corev1.ConditionFalse), pod, true},
		"no pod":                 {job(false, after, corev1.ConditionFalse), nil, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, wasSuspended(test.job, test.pod)) })
	}
}
