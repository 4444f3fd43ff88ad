//go:build linux && cluster

package kubernetes_test

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// endOf is how long any of these ends may take.
const endOf = time.Minute

// lab is a namespace of its own, in which a test brings a pod to its end.
type lab struct {
	t         *testing.T
	k         *client.Clientset
	namespace string
	config    engine.Cluster
}

func newLab(t *testing.T, labels map[string]string) *lab {
	t.Helper()
	t.Parallel()
	return newLabAlone(t, labels)
}

// newLabAlone is newLab for a test that nothing runs beside.
func newLabAlone(t *testing.T, labels map[string]string) *lab {
	t.Helper()
	l := &lab{t: t, config: config(t)}
	loaded, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	require.NoError(t, err)
	l.k, err = client.NewForConfig(loaded)
	require.NoError(t, err)
	made, err := l.k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "evalbox-ends-", Labels: labels}}, metav1.CreateOptions{})
	require.NoError(t, err)
	l.namespace, l.config.Namespace = made.Name, made.Name
	t.Cleanup(func() {
		require.NoError(t, l.k.CoreV1().Namespaces().Delete(context.Background(), l.namespace, metav1.DeleteOptions{}))
	})
	return l
}

func (l *lab) connect() engine.Engine {
	l.t.Helper()
	e, err := kubernetes.Connect(l.config)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, e.Close()) })
	return e
}

func (l *lab) class() spec.Class {
	image := os.Getenv("EVALBOX_KUBERNETES_IMAGE")
	return spec.Class{Image: spec.Image{Reference: image, Digest: image}, User: spec.DedicatedUser, WorkDir: "/", Network: "none",
		Cgroup: spec.Cgroup{MemoryBytes: 64 << 20, NanoCPUs: 1e9}}
}

func (l *lab) meta() engine.Meta {
	return engine.Meta{Name: spec.Job{RunID: "end"}.ContainerName(), Labels: map[string]string{spec.LabelManaged: "true", spec.LabelRun: "end"}}
}

// output is what a program prints. Anybody can wait for its first byte.
type output struct {
	began chan struct{}
	text  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	if o.text.Len() == 0 {
		close(o.began)
	}
	return o.text.Write(p)
}

// start prepares a container and starts a Python program in it, which prints something first.
func (l *lab) start(class spec.Class, meta engine.Meta, program string) (engine.Container, *output) {
	l.t.Helper()
	c, err := l.connect().Prepare(l.t.Context(), class, meta)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = c.Remove(context.Background()) }) // the namespace goes as well
	out := &output{began: make(chan struct{})}
	job := spec.Job{RunID: "end", Command: []string{"python3", "-u", "-c", program}, TimeoutSeconds: 600, GraceSeconds: 2}
	require.NoError(l.t, c.Start(l.t.Context(), job, engine.Streams{Stdout: out, Stderr: l.t.Output()}))
	select {
	case <-out.began:
	case <-time.After(endOf):
		require.Fail(l.t, "the program prints nothing")
	}
	return c, out
}

func (l *lab) end(c engine.Container) engine.End {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), endOf)
	defer cancel()
	end, err := c.Wait(ctx)
	require.NoError(l.t, err)
	return end
}

// refused prepares a container that the cluster does not start.
func (l *lab) refused(class spec.Class) *kubernetes.StartError {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), endOf)
	defer cancel()
	_, err := l.connect().Prepare(ctx, class, l.meta())
	var trouble *kubernetes.StartError
	require.ErrorAs(l.t, err, &trouble)
	require.ErrorIs(l.t, err, engine.ErrNotStarted)
	require.NotEmpty(l.t, trouble.Hint())
	jobs, err := l.k.BatchV1().Jobs(l.namespace).List(l.t.Context(), metav1.ListOptions{})
	require.NoError(l.t, err)
	for _, job := range jobs.Items {
		require.NotNil(l.t, job.DeletionTimestamp, "the Job of a container that did not start is left")
	}
	return trouble
}

// pod is the one pod of the namespace.
func (l *lab) pod() corev1.Pod {
	l.t.Helper()
	pods, err := l.k.CoreV1().Pods(l.namespace).List(l.t.Context(), metav1.ListOptions{LabelSelector: spec.LabelManaged + "=true"})
	require.NoError(l.t, err)
	require.Len(l.t, pods.Items, 1)
	return pods.Items[0]
}

// deny refuses to create what a rule names, and waits until it does.
func (l *lab) deny(rule admissionv1.Rule) {
	l.t.Helper()
	admission := l.k.AdmissionregistrationV1()
	match := &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: l.namespace}},
		ResourceRules:     []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: rule}}},
	}
	_, err := admission.ValidatingAdmissionPolicies().Create(l.t.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: l.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: match, Validations: []admissionv1.Validation{{Expression: "false", Message: "no evalbox here"}}}}, metav1.CreateOptions{})
	require.NoError(l.t, err)
	l.t.Cleanup(func() {
		require.NoError(l.t, admission.ValidatingAdmissionPolicies().Delete(context.Background(), l.namespace, metav1.DeleteOptions{}))
	})
	_, err = admission.ValidatingAdmissionPolicyBindings().Create(l.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: l.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: l.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}, metav1.CreateOptions{})
	require.NoError(l.t, err)
	l.t.Cleanup(func() {
		require.NoError(l.t, admission.ValidatingAdmissionPolicyBindings().Delete(context.Background(), l.namespace, metav1.DeleteOptions{}))
	})
	try := metav1.ObjectMeta{Name: "try"}
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "try", Image: unknown}}}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	require.Eventually(l.t, func() bool {
		var err error
		if rule.Resources[0] == "jobs" {
			_, err = l.k.BatchV1().Jobs(l.namespace).Create(l.t.Context(), &batchv1.Job{ObjectMeta: try, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}}}, dry)
		} else {
			_, err = l.k.CoreV1().Pods(l.namespace).Create(l.t.Context(), &corev1.Pod{ObjectMeta: try, Spec: pod}, dry)
		}
		return err != nil && strings.Contains(err.Error(), "no evalbox here")
	}, endOf, 50*time.Millisecond)
}

const (
	sleeping = "import time; print('on'); time.sleep(600)"
	hogging  = "b'x' * (1 << 30)"
)

func TestEndOutOfMemory(t *testing.T) {
	l := newLab(t, nil)
	c, _ := l.start(l.class(), l.meta(), "print('on'); "+hogging)
	end := l.end(c)
	require.True(t, end.OOMKilled, "%+v", end)
	require.Equal(t, engine.NotLost, end.Loss)
	if end.Reported { // the kernel may kill the whole container
		require.Equal(t, 9, end.Signal)
	}
}

func TestEndOutOfMemoryOfAChild(t *testing.T) {
	l := newLab(t, nil)
	c, _ := l.start(l.class(), l.meta(), "import subprocess; print('on'); subprocess.run(['python3', '-c', \""+hogging+"\"])")
	end := l.end(c)
	require.True(t, end.OOMKilled, "%+v", end)
	require.Equal(t, engine.NotLost, end.Loss)
	if end.Reported {
		require.Zero(t, end.ExitStatus())
	}
}

// TestEndEvictedForDisk writes more to the volume of a run than it may hold. Nobody watches the disk but
// the kubelet.
func TestEndEvictedForDisk(t *testing.T) {
	l := newLab(t, nil)
	c, _ := l.startWithFiles("with open('/work/final/f', 'wb') as f:\n  for _ in range(80): f.write(bytes(1 << 20))\n")
	end := l.end(c)
	require.Equal(t, engine.EvictedForDisk, end.Loss, "%+v", end)
}

// startWithFiles starts a program whose run has a volume.
func (l *lab) startWithFiles(program string) (engine.Container, engine.Copier) {
	l.t.Helper()
	copier, ok := l.connect().(engine.Copier)
	require.True(l.t, ok)
	run := spec.Spec{Class: l.class(), Job: spec.Job{RunID: "end", DiskBytes: 1 << 20, TimeoutSeconds: 600}}
	run.Class.Transfer = spec.TransferCopy
	run.Class.Binds = []spec.Bind{{Role: spec.RoleFinal, Target: spec.FinalDir}}
	meta := l.meta()
	base, err := copier.CreateVolume(l.t.Context(), run, meta.Labels)
	require.NoError(l.t, err)
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, dir := range []string{archive.OutDir, archive.FinalDir} {
		require.NoError(l.t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o777}))
	}
	require.NoError(l.t, w.Close())
	require.NoError(l.t, copier.FillVolume(l.t.Context(), "end", &files))
	meta.Sources = archive.Sources(base, run)
	c, _ := l.start(run.Class, meta, program+sleeping)
	return c, copier
}

func TestEndDeleted(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]*int64{"with its grace period": nil, "at once": ptr.To[int64](0)} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			c, _ := l.start(l.class(), l.meta(), sleeping)
			require.NoError(t, l.k.CoreV1().Pods(l.namespace).Delete(t.Context(), l.pod().Name, metav1.DeleteOptions{GracePeriodSeconds: grace}))
			end := l.end(c)
			require.Equal(t, engine.NotLost, end.Loss, "%+v", end)
			require.NotEmpty(t, end.Foreign)
		})
	}
}

// TestEndEvictedByAPI is what kubectl drain does.
func TestEndEvictedByAPI(t *testing.T) {
	l := newLab(t, nil)
	c, _ := l.start(l.class(), l.meta(), sleeping)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: l.pod().Name}}
	require.NoError(t, l.k.CoreV1().Pods(l.namespace).EvictV1(t.Context(), eviction))
	end := l.end(c)
	require.Equal(t, engine.Evicted, end.Loss, "%+v", end)
	require.Empty(t, end.Foreign)
}

// TestEndPreempted gives the place of a pod to a more important one. The place is a device that only these
// two ask for.
func TestEndPreempted(t *testing.T) {
	l := newLab(t, nil)
	place := l.standIns(1)
	for name, value := range map[string]int32{"-low": -10, "-high": -5} {
		_, err := l.k.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: l.namespace + name}, Value: value}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, l.k.SchedulingV1().PriorityClasses().Delete(context.Background(), l.namespace+name, metav1.DeleteOptions{}))
		})
	}
	l.config.PriorityClass, l.config.GPUResource = l.namespace+"-low", string(place)
	class := l.class()
	class.GPUs.Count = 1
	c, _ := l.start(class, l.meta(), sleeping)

	one := corev1.ResourceList{place: resource.MustParse("1")}
	_, err := l.k.CoreV1().Pods(l.namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "important"}, Spec: corev1.PodSpec{
		PriorityClassName: l.namespace + "-high", TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{Name: "important", Image: class.Image.Digest, Command: []string{"true"}, Resources: corev1.ResourceRequirements{Limits: one}}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	end := l.end(c)
	require.Equal(t, engine.Preempted, end.Loss, "%+v", end)
	require.Empty(t, end.Foreign)
}

// TestEndPodDeadline shortens the time that the Job of a run may take. Its pod is then deleted, as by
// somebody else.
func TestEndPodDeadline(t *testing.T) {
	l := newLab(t, nil)
	c, _ := l.startWithFiles("")
	job := l.pod().Labels["batch.kubernetes.io/job-name"]
	_, err := l.k.BatchV1().Jobs(l.namespace).Patch(t.Context(), job, types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	end := l.end(c)
	require.Equal(t, engine.PodDeadline, end.Loss, "%+v", end)
	require.Empty(t, end.Foreign)
}

func TestStartUnschedulable(t *testing.T) {
	l := newLab(t, nil)
	l.config.ScheduleTimeout = time.Second
	class := l.class()
	class.Cgroup.MemoryBytes = 1 << 50
	trouble := l.refused(class)
	require.Equal(t, corev1.PodReasonUnschedulable, trouble.Reason)
	require.Contains(t, trouble.Message, "Insufficient memory")
	require.Contains(t, trouble.Hint(), "schedule_timeout")
}

// unknown is a digest that no image has.
const unknown = "registry.test/evalbox/nothing@sha256:0000000000000000000000000000000000000000000000000000000000000000"

func TestStartWithoutImage(t *testing.T) {
	l := newLab(t, nil)
	class := l.class()
	class.Image.Digest = unknown
	trouble := l.refused(class)
	require.Contains(t, []string{"ErrImagePull", "ImagePullBackOff"}, trouble.Reason)
	require.Contains(t, trouble.Message, unknown)
	require.Contains(t, trouble.Hint(), "sandbox image push")
}

func TestStartWithoutPrograms(t *testing.T) {
	l := newLab(t, nil)
	l.config.Programs = unknown
	trouble := l.refused(l.class())
	require.Contains(t, []string{"ErrImagePull", "ImagePullBackOff"}, trouble.Reason)
	require.Contains(t, trouble.Message, unknown)
	require.Contains(t, trouble.Hint(), "kubernetes.programs")
}

func TestStartOverQuota(t *testing.T) {
	l := newLab(t, nil)
	l.config.ScheduleTimeout = 2 * time.Second
	_, err := l.k.CoreV1().ResourceQuotas(l.namespace).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		quota, err := l.k.CoreV1().ResourceQuotas(l.namespace).Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0
	}, endOf, 50*time.Millisecond)
	trouble := l.refused(l.class())
	require.Equal(t, "QuotaExceeded", trouble.Reason)
	require.Contains(t, trouble.Message, "exceeded quota: none")
	require.Contains(t, trouble.Hint(), "kubectl describe quota")
}

// TestStartRestricted: the strictest profile of Pod Security accepts our pods.
func TestStartRestricted(t *testing.T) {
	l := newLab(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	c, out := l.start(l.class(), l.meta(), "print('on')")
	require.Zero(t, l.end(c).ExitStatus())
	require.Equal(t, "on\n", out.text.String())
	// It is enforced.
	_, err := l.k.CoreV1().Pods(l.namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "loose"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "loose", Image: unknown}}}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.ErrorContains(t, err, "violates PodSecurity")
}

// TestStartRefused denies the Jobs of a namespace, and then only their pods.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]struct{ group, hint string }{
		"jobs": {"batch", "kubectl describe namespace"},
		"pods": {"", "kubectl describe job"},
	} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t, nil)
			l.deny(admissionv1.Rule{APIGroups: []string{test.group}, APIVersions: []string{"v1"}, Resources: []string{kind}})
			trouble := l.refused(l.class())
			require.Contains(t, trouble.Message, "no evalbox here")
			require.Contains(t, trouble.Hint(), test.hint)
		})
	}
}

// TestStartFailsOnRecord runs through a Runner what the cluster does not start: the record has the reason,
// the error has a hint, and nothing is left in the cluster.
func TestStartFailsOnRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(l *lab, req *sandbox.Request)
		reason string
		hint   string
	}{
		"no room": {func(l *lab, _ *sandbox.Request) {
			l.config.NodeSelector, l.config.ScheduleTimeout = map[string]string{"no": "node"}, time.Second
		}, "Unschedulable", "kubectl describe nodes"},
		"no image":   {func(l *lab, _ *sandbox.Request) { l.config.Programs = unknown }, "Image", "kubernetes.programs"},
		"no runtime": {func(_ *lab, req *sandbox.Request) { req.Runtime = "nothing" }, "RuntimeClass", "kubectl get runtimeclass"},
		"refused": {func(l *lab, _ *sandbox.Request) {
			l.deny(admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}})
		}, "no evalbox here", "kubectl describe job"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			req := sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Final: filepath.Join(t.TempDir(), "final"), Command: []string{"true"},
				Limits: policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB, Timeout: endOf}}
			test.change(l, &req)
			r, err := sandbox.New(sandbox.WithEngine(l.connect()), sandbox.WithStateDir(t.TempDir()))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			res, err := r.Run(t.Context(), req)
			var trouble *kubernetes.StartError
			require.ErrorAs(t, err, &trouble)
			require.Contains(t, trouble.Hint(), test.hint)
			require.NotContains(t, err.Error(), "watch the disk")
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, result.FaultEnvironment, res.Fault)
			require.Contains(t, res.Explanation, test.reason)
			require.Eventually(t, func() bool {
				jobs, err := l.k.BatchV1().Jobs(l.namespace).List(t.Context(), metav1.ListOptions{})
				return err == nil && len(jobs.Items) == 0
			}, endOf, 50*time.Millisecond)
		})
	}
}

// TestEndWithoutFiles deletes the pod of a whole run at once: its outputs are gone, and the result says so.
func TestEndWithoutFiles(t *testing.T) {
	l := newLab(t, nil)
	l.config.Window = 0
	e, err := kubernetes.Connect(l.config)
	require.NoError(t, err)
	r, err := sandbox.New(sandbox.WithEngine(e), sandbox.WithStateDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	out := &output{began: make(chan struct{})}
	go func() {
		select {
		case <-out.began:
			_ = l.k.CoreV1().Pods(l.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}) // shows in the result
		case <-t.Context().Done():
		}
	}()
	res, err := r.Run(t.Context(), sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Final: filepath.Join(t.TempDir(), "final"),
		Command: []string{"python3", "-u", "-c", "open('/work/final/f', 'w').write('f'); " + sleeping},
		Limits:  policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB, Timeout: endOf}}, sandbox.IO{Stdout: out})
	require.NoError(t, err)
	require.Equal(t, result.FaultOperator, res.Fault, res.Explanation)
	require.Empty(t, res.Outputs)
	require.Len(t, res.OutputsSkipped, 1)
	require.Equal(t, ".", res.OutputsSkipped[0].Path)
	require.Contains(t, res.OutputsSkipped[0].Reason, "pod_gone: ")
}
