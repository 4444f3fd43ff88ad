package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes/porter"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// volumeRoot is the root of the volume of a Job, as [engine.Copier] names it.
func volumeRoot(job string) string { return "/" + job }

// Prepare implements [engine.Engine]. For a run with a volume, its Job exists already.
func (e *adapter) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c := e.newInstance(jobName(meta.Name), wire.NewNonce())
	c.class, c.receiver = class, wire.NewReceiver()
	mounts, err := mountsOf(class, meta.Sources, volumeRoot(c.job))
	if err != nil {
		return nil, err
	}
	if class.Transfer == spec.TransferCopy && len(mounts) > 0 {
		c.files = true
		if err := porter.Start(ctx, e.dialer(c.job), engine.ReconnectBudget); err != nil {
			return nil, e.porterError(ctx, c.job, err)
		}
	} else if err := e.create(ctx, plan{class: class, meta: meta}); err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	if err := c.open(ctx, meta.Warm); err != nil {
		c.disconnect()
		if c.files {
			return nil, err
		}
		return nil, errors.Join(err, e.Remove(ctx, c.job))
	}
	return c, nil
}

// create creates the Job of a container.
func (e *adapter) create(ctx context.Context, p plan) error {
	if gpus := p.class.GPUs; gpus.All || len(gpus.IDs) > 0 {
		return &policy.FieldError{Field: "gpus", Value: strings.Join(gpus.Names(), ","), Rule: "names devices, and a pod can only ask for a number of GPUs",
			Hint: "ask for a number of them, such as --gpus 1"}
	}
	for _, b := range p.class.Binds {
		if strings.Contains(b.Target, ":") {
			return &policy.FieldError{Field: b.Role, Value: fmt.Sprintf("%.200q", b.Target), Rule: "has a colon, which Kubernetes permits in no path of a mount",
				Hint: "rename the file"}
		}
	}
	p.config, p.window = e.config, e.config.Window
	if p.class.Image.Digest == "" {
		return &policy.FieldError{Field: "image", Value: p.class.Image.Reference, Rule: "has no digest: a pod needs an image of a registry",
			Hint: "push it with: sandbox image push"}
	}
	if err := e.closeNetwork(ctx); err != nil {
		return err
	}
	server, err := e.version(ctx)
	if err != nil {
		return err
	}
	if p.claims() && !server.AtLeast(claims) {
		return &policy.FieldError{Field: "kubernetes.gpu_device_class", Value: e.config.GPUDeviceClass, Rule: fmt.Sprintf("needs Kubernetes %s, and the cluster has %s", claims, server),
			Hint: "leave it out: GPUs are then asked for by kubernetes.gpu_resource"}
	}
	p.imageVolume = server.AtLeast(imageVolumes)
	job, err := p.job()
	if err != nil {
		return err
	}
	ctx, cancel := changeContext(ctx)
	defer cancel()
	for try := 1; ; try++ {
		made, err := e.api.jobs().Create(ctx, job, metav1.CreateOptions{})
		failure := clusterError(ctx, err)
		switch {
		case err == nil:
			e.pods.born(job.Name, made.UID)
			return e.claim(ctx, p, made)
		case apierrors.IsAlreadyExists(err):
			if now, getErr := e.api.jobs().Get(ctx, job.Name, metav1.GetOptions{}); try > 1 && getErr == nil &&
				now.Annotations[labelsAnnotation] == job.Annotations[labelsAnnotation] {
				return e.claim(ctx, p, now) // the answer to the first request was lost
			}
			return fmt.Errorf("%w: creating Job %s: %w", engine.ErrNameTaken, job.Name, err)
		case errors.Is(failure, engine.ErrUnavailable) && !errors.Is(failure, engine.ErrPermission) && try == 1:
			continue
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "cannot create resource"):
			return &StartError{Reason: string(apierrors.ReasonForError(err)), Message: err.Error(), hint: "see what the namespace permits with: kubectl describe namespace"}
		}
		return fmt.Errorf("creating Job %s: %w", job.Name, failure)
	}
}

// claim asks for the GPUs of a Job by a resource claim. Its pod waits for it. After an error the Job is gone.
func (e *adapter) claim(ctx context.Context, p plan, job *batchv1.Job) error {
	if !p.claims() {
		return nil
	}
	_, err := e.api.claimTemplates().Create(ctx, p.claimTemplate(job), metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	err = fmt.Errorf("asking for the GPUs of Job %s: %w", job.Name, clusterError(ctx, err))
	return errors.Join(err, e.Remove(ctx, job.Name))
}

// dialer connects to the porter of a Job.
func (e *adapter) dialer(job string) porter.Dial {
	began := time.Now()
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		e.pods.want(job)
		defer e.pods.forget(job)
		pod, err := e.scheduled(ctx, job, began)
		if err != nil {
			return nil, err
		}
		x, err := e.execute(ctx, pod.Name, porterContainer, nil, porterPath, "relay", spoolDir)
		if err != nil {
			return nil, err
		}
		return &line{execution: x, explain: func(err error) error { return e.whyBroken(job, began, err) }}, nil
	}
}

// line is a connection to a porter.
type line struct {
	*execution
	explain func(error) error
	heard   bool
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.execution.Read(p)
	if l.heard = l.heard || n > 0; err != nil && !l.heard {
		err = l.explain(err)
	}
	return n, err
}

// Write fails for the reason for which the connection does.
func (l *line) Write(p []byte) (int, error) {
	n, err := l.execution.Write(p)
	if err != nil {
		select {
		case <-l.done:
			err = l.explain(errors.Join(err, l.err))
		default: // this side has closed it
		}
	}
	return n, err
}

// lookPeriod is after how long a Job without a pod is read for the first time. Each further look comes
// twice as late, up to lookRarely: hundreds of Jobs may wait for a queue, and the watch shows a new pod.
const (
	lookPeriod = time.Second
	lookRarely = 15 * time.Second
)

// scheduled waits until the pod of a Job has a node.
func (e *adapter) scheduled(ctx context.Context, job string, began time.Time) (*corev1.Pod, error) {
	late := time.NewTimer(time.Until(began.Add(e.config.ScheduleTimeout)) + time.Millisecond)
	defer late.Stop()
	period := lookPeriod
	look := time.NewTimer(period)
	defer look.Stop()
	for {
		pod, gone, changed := e.pods.pod(job)
		switch {
		case gone:
			if loss := e.whyDeleted(ctx, job, pod); loss == engine.Preempted {
				return nil, &goneError{&StartError{Reason: "Preempted", Message: "the queue " + e.config.Queue + " took the place of the pod back",
					hint: "run it again: the queue decides when; see: kubectl get workloads"}}
			}
			return nil, fmt.Errorf("%w: somebody deleted it", porter.ErrGone)
		case pod != nil && pod.Spec.NodeName != "":
			return pod, e.check(pod, began)
		case pod != nil:
			if err := e.check(pod, began); err != nil {
				return nil, err
			}
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late.C:
		case <-look.C:
			period = min(2*period, lookRarely)
			look.Reset(period)
		}
		if pod == nil {
			if err := e.whyNoPod(ctx, job, began); err != nil {
				return nil, err
			}
		}
	}
}

// check returns an error for a pod that will not start.
func (e *adapter) check(pod *corev1.Pod, began time.Time) error {
	if pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	trouble, wait := troubleOf(pod)
	switch {
	case trouble == nil:
		return nil
	case !wait || time.Since(began) > e.config.ScheduleTimeout:
		return &goneError{trouble}
	}
	e.waits.report(pod.Labels[jobLabel], waitForPod(trouble))
	return nil
}

// goneError is an [porter.ErrGone] with a reason.
type goneError struct{ err error }

func (e *goneError) Error() string   { return e.err.Error() }
func (e *goneError) Unwrap() []error { return []error{porter.ErrGone, e.err} }

// whyBroken says what an attempt to reach a porter means that has failed.
func (e *adapter) whyBroken(job string, began time.Time, err error) error {
	pod, gone, _ := e.pods.pod(job)
	if pod == nil {
		return err
	}
	if gone || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return fmt.Errorf("%w: %w", porter.ErrGone, err)
	}
	if trouble := e.check(pod, began); trouble != nil {
		return trouble
	}
	if pod.Status.Phase == corev1.PodPending {
		return fmt.Errorf("%w: %w", porter.ErrNotYet, err)
	}
	return err
}

// whyNoPod says why a Job has no pod: it does not exist, or the cluster refuses its pod.
func (e *adapter) whyNoPod(ctx context.Context, job string, began time.Time) error {
	ctx, cancel := callContext(ctx)
	defer cancel()
	now, err := e.api.jobs().Get(ctx, job, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: there is no Job %s", porter.ErrGone, job)
	case err != nil:
		return nil // asked again
	}
	late := time.Since(began) > e.config.ScheduleTimeout
	if now.Spec.Suspend != nil && *now.Spec.Suspend {
		if late {
			return &goneError{&StartError{Reason: "Suspended", Message: "the queue " + e.config.Queue + " did not admit the Job in time",
				hint: "see: kubectl get workloads; or wait longer with --schedule-timeout"}}
		}
		e.waits.report(job, waitForQueue(e.config.Queue))
		return nil
	}
	list, err := e.api.events().List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Job,reason=FailedCreate,involvedObject.name=" + job})
	if err != nil {
		return nil // only the reason is missing
	}
	for _, event := range list.Items {
		quota := strings.Contains(event.Message, exceeded)
		switch {
		case quota && late:
			return &goneError{&StartError{Reason: "QuotaExceeded", Message: event.Message,
				hint: "wait for other runs, ask for less, or have the ResourceQuota of the namespace raised: kubectl describe quota"}}
		case quota:
			e.waits.report(job, waitForQuota(event.Message))
		case !quota && (strings.Contains(event.Message, "forbidden") || strings.Contains(event.Message, "denied the request") || strings.Contains(event.Message, "is invalid")):
			hint := "the cluster's admission refuses the pod; see: kubectl describe job"
			if strings.Contains(event.Message, "RuntimeClass") {
				hint = "choose a runtime that the cluster has, see: kubectl get runtimeclass"
			}
			return &goneError{&StartError{Reason: "Refused", Message: event.Message, hint: hint}}
		}
	}
	if late {
		return &goneError{&StartError{Reason: "NoPod", Message: "the cluster made no pod for Job " + job, hint: "see: kubectl describe job " + job}}
	}
	return nil
}

// overduePatience is how long the cluster may take to say why a Job has lost its pod, once it has deleted
// the pod.
const overduePatience = time.Second

// whyDeleted says why the cluster deleted a pod, as far as its Job shows that: its queue took the place
// back, or its deadline is over.
func (e *adapter) whyDeleted(ctx context.Context, job string, pod *corev1.Pod) engine.Loss {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overduePatience)
	defer cancel()
	tick := time.NewTicker(overduePatience / 10)
	defer tick.Stop()
	for {
		now, err := e.api.jobs().Get(ctx, job, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return engine.NotLost
		case err == nil && wasSuspended(now, pod):
			return engine.Preempted
		case err == nil && slices.ContainsFunc(now.Status.Conditions, isDeadline):
			return engine.PodDeadline
		case err == nil && now.Spec.ActiveDeadlineSeconds == nil:
			return engine.NotLost
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return engine.NotLost
		}
	}
}

// wasSuspended reports whether a Job was suspended after its pod was created, which deletes the pod. It
// may have been resumed since. It is pure.
func wasSuspended(job *batchv1.Job, pod *corev1.Pod) bool {
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return true
	}
	return pod != nil && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.LastTransitionTime.After(pod.CreationTimestamp.Time)
	})
}

// isDeadline reports whether a Job has failed, or is about to, because its time is over.
func isDeadline(c batchv1.JobCondition) bool {
	return c.Status == corev1.ConditionTrue && c.Reason == batchv1.JobReasonDeadlineExceeded
}

// porterError classifies the error of a transfer.
func (e *adapter) porterError(ctx context.Context, job string, err error) error {
	var start *StartError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &start):
		return start
	case errors.Is(err, porter.ErrGone):
		return fmt.Errorf("%w: Job %s: %w", engine.ErrNoContainer, job, err)
	case errors.Is(err, porter.ErrLost):
		return &callError{engine.ErrUnavailable, fmt.Errorf("container %s: %w", job, err)}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(err.Error(), claimsDir):
		return &StartError{Reason: "NoInput", Message: "the input is not a directory of its volume: " + strings.TrimPrefix(err.Error(), claimsDir),
			hint: "see the files of the volume; an input is pvc://NAME/PATH"}
	}
	return fmt.Errorf("container %s: %w", job, err)
}

// Open implements [engine.Engine].
func (e *adapter) Open(ctx context.Context, ref engine.Ref, streams engine.Streams) (engine.Container, error) {
	nonce, err := wire.ParseNonce(ref.Nonce)
	if err != nil {
		return nil, fmt.Errorf("looking for container %s: %w", ref.ID, err)
	}
	calling, cancel := callContext(ctx)
	job, err := e.api.jobs().Get(calling, ref.ID, metav1.GetOptions{})
	cancel()
	if err == nil && job.DeletionTimestamp != nil {
		err = engine.ErrNoContainer
	}
	if err != nil {
		return nil, fmt.Errorf("looking for container %s: %w", ref.ID, clusterError(ctx, err))
	}
	c := e.newInstance(ref.ID, nonce)
	c.begun, c.opened, c.files = true, true, job.Labels[volumeLabel] != ""
	c.stdout, c.stderr = &sink{to: streams.Stdout}, &sink{to: streams.Stderr}
	c.receiver = wire.Resume(nonce, c.stdout, c.stderr)
	// The porter says to init that the first controller has gone: one without a job ends.
	return c, c.connect(ctx)
}

// CreateVolume implements [engine.Copier]: it creates the Job of the run, whose pod has the volume. The
// program's container starts with Prepare.
func (e *adapter) CreateVolume(ctx context.Context, run spec.Spec, labels map[string]string) (string, error) {
	name := run.Job.ContainerName()
	root := volumeRoot(jobName(name))
	mounts, err := mountsOf(run.Class, archive.Sources(root, run), root)
	if err != nil {
		return "", err
	}
	meta := engine.Meta{Name: name, Labels: labels}
	limit := policy.Seconds(run.Job.TimeoutSeconds+run.Job.GraceSeconds) + e.config.ScheduleTimeout + collection
	if run.Job.TimeoutSeconds == 0 {
		limit = 0
	}
	return root, e.create(ctx, plan{class: run.Class, meta: meta, mounts: mounts, files: true, diskBytes: diskOf(run.Job), limit: limit})
}

// diskOf is the size of the volume of a run. The kubelet measures it from time to time, and evicts a
// pod with more; evalbox's own monitor ends a program at the disk limit before.
func diskOf(job spec.Job) int64 {
	const slack = 64 << 20
	if job.DiskBytes == 0 {
		return 0
	}
	return 2*job.DiskBytes + slack
}

// RecreateHelper implements [engine.Copier]. The volume is gone with its pod.
func (e *adapter) RecreateHelper(ctx context.Context, run spec.Spec, _ map[string]string) error {
	ctx, cancel := callContext(ctx)
	defer cancel()
	job := jobName(run.Job.ContainerName())
	_, err := e.api.jobs().Get(ctx, job, metav1.GetOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		err = engine.ErrFilesGone
	}
	return fmt.Errorf("container %s: %w", job, clusterError(ctx, err))
}

// FillVolume implements [engine.Copier].
func (e *adapter) FillVolume(ctx context.Context, runID string, from io.Reader) error {
	job := jobName(spec.Job{RunID: runID}.ContainerName())
	return e.porterError(ctx, job, porter.Fill(ctx, e.dialer(job), engine.ReconnectBudget, from))
}

// FetchVolume implements [engine.Copier].
func (e *adapter) FetchVolume(ctx context.Context, runID, name string) (io.ReadCloser, error) {
	job := jobName(spec.Job{RunID: runID}.ContainerName())
	body := porter.Fetch(ctx, e.dialer(job), engine.ReconnectBudget, name)
	// An error of the first byte is one of the call.
	first := make([]byte, 512)
	n, err := io.ReadFull(body, first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.Join(e.porterError(ctx, job, err), body.Close())
	}
	return &fetched{body, io.MultiReader(strings.NewReader(string(first[:n])), body), func(err error) error { return e.porterError(ctx, job, err) }}, nil
}

type fetched struct {
	io.Closer
	from    io.Reader
	explain func(error) error
}

func (f *fetched) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = f.explain(err)
	}
	return n, err
}

// watchedEntries is the number of entries at which the disk monitor gives up: one more than a run may
// have, plus the directories that exist before.
const watchedEntries = "1000003"

// MonitorVolume implements [engine.Copier]: the monitor is a process beside the porter.
func (e *adapter) MonitorVolume(ctx context.Context, run spec.Spec, _ map[string]string) (engine.Conversation, error) {
	job := jobName(run.Job.ContainerName())
	e.pods.want(job)
	defer e.pods.forget(job)
	// The porter answers once its container can be entered.
	probe, stop := context.WithTimeout(ctx, e.config.ScheduleTimeout+readyPatience)
	defer stop()
	if err := porter.Reach(probe, e.dialer(job), engine.ReconnectBudget); err != nil {
		return nil, e.porterError(ctx, job, err)
	}
	pod, err := e.scheduled(ctx, job, time.Now())
	if err != nil {
		return nil, e.porterError(ctx, job, err)
	}
	reader, writer := io.Pipe()
	x, err := e.execute(context.WithoutCancel(ctx), pod.Name, porterContainer, writer, "/bin/sh", "-c", archive.Script, "watcher", path.Join(filesDir, archive.OutDir), watchedEntries)
	if err != nil {
		return nil, err
	}
	go func() {
		<-x.done
		_ = writer.Close() // never fails
	}()
	return &conversation{execution: x, stderr: reader}, nil
}

// RemoveVolume implements [engine.Copier].
func (e *adapter) RemoveVolume(ctx context.Context, runID string) error {
	return e.Remove(ctx, spec.Job{RunID: runID}.ContainerName())
}

// Volumes implements [engine.Copier].
func (e *adapter) Volumes(ctx context.Context) ([]engine.Volume, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	jobs, err := e.api.jobs().List(ctx, metav1.ListOptions{LabelSelector: volumeLabel + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing Jobs: %w", clusterError(ctx, err))
	}
	volumes := []engine.Volume{}
	for _, job := range jobs.Items {
		if job.DeletionTimestamp == nil {
			volumes = append(volumes, engine.Volume{Name: job.Annotations[nameAnnotation], Labels: labelsOf(job.Annotations)})
		}
	}
	return volumes, nil
}
