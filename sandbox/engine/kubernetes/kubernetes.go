// Package kubernetes carries out plans as Jobs of a Kubernetes cluster, one Job for each container.
//
// A pod has two containers with the same image and user. Main runs sandbox-init, and through it the
// program. The porter (package porter) keeps the streams and the files, and serves them to a
// controller through the API server, by exec. So a controller needs nothing but the API, and a
// connection that breaks loses nothing. No step waits for the status of a pod or a Job, which the
// kubelet reports up to a second late: init itself says when it is ready and how the program ended.
//
// The files of a pod live as long as the pod. The cluster stops pods at their deadline, when a disk
// or a node is short of space, and for more important pods: [Ended] says which of these it was.
package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// cluster is an [engine.Cluster] with all that pods take from it.
type cluster engine.Cluster

func (c cluster) seccomp() *corev1.SeccompProfile {
	if c.Seccomp == "" {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &c.Seccomp}
}

// gpus says how a pod asks for GPUs.
func (c cluster) gpus() spec.HostGPUs {
	if c.GPUDeviceClass != "" {
		return spec.HostGPUs{Driver: spec.DriverClaim, Kind: c.GPUDeviceClass}
	}
	return spec.HostGPUs{Driver: spec.DriverLimits, Kind: c.GPUResource}
}

// filter names the system call filter of every pod.
func (c cluster) filter() string {
	if c.Seccomp == "" {
		return string(corev1.SeccompProfileTypeRuntimeDefault)
	}
	return "Localhost " + c.Seccomp
}

var tolerationPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([^=:]+)(=([^:]*))?(:(NoSchedule|PreferNoSchedule|NoExecute))?$`)
})

func (c cluster) tolerations() (list []corev1.Toleration) {
	for _, text := range c.Tolerations {
		part := tolerationPattern().FindStringSubmatch(text)
		if part == nil {
			continue // Connect refuses it
		}
		t := corev1.Toleration{Key: part[1], Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(part[5])}
		if part[2] != "" {
			t.Operator, t.Value = corev1.TolerationOpEqual, part[3]
		}
		list = append(list, t)
	}
	return list
}

func (c cluster) check() error {
	var errs []error
	if c.Programs == "" {
		errs = append(errs, &policy.FieldError{Field: "kubernetes.programs", Rule: "names no image: every pod needs the programs of evalbox",
			Hint: "set it to the image of this release by its digest, or push your own with: sandbox image push"})
	}
	if c.CPUShare < 0 || c.CPUShare > 1 {
		errs = append(errs, &policy.FieldError{Field: "kubernetes.cpu_share", Value: fmt.Sprint(c.CPUShare), Rule: "is not a part of 1: it must be above 0 and at most 1"})
	}
	for _, text := range c.Tolerations {
		if !tolerationPattern().MatchString(text) {
			errs = append(errs, &policy.FieldError{Field: "kubernetes.tolerations", Value: fmt.Sprintf("%q", text),
				Rule: "is not KEY[=VALUE][:EFFECT], where EFFECT is NoSchedule, PreferNoSchedule or NoExecute"})
		}
	}
	return policy.Join(errs...)
}

// adapter implements [engine.Engine].
type adapter struct {
	config cluster
	rest   *rest.Config
	api    clients
	pods   *watcher
	// network is what is known of the network of pods.
	network network
	waits   waits
	log     *slog.Logger

	mu sync.Mutex
	// server is the version of the API server, once it is known.
	server *version.Version
	// open are the containers whose sessions are in use; nil once closed.
	open map[*instance]struct{}
}

var (
	_ engine.Engine   = (*adapter)(nil)
	_ engine.Copier   = (*adapter)(nil)
	_ engine.Networks = (*adapter)(nil)
)

// Connect returns the engine of a cluster. It does not talk to the cluster yet. An error is a
// [*policy.FieldError], or an [engine.ErrUnavailable] with a hint if no cluster is configured.
func Connect(to engine.Cluster) (engine.Engine, error) {
	silence()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = to.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: to.Context}
	overrides.Context.Namespace = to.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	client, err := loader.ClientConfig()
	if err != nil {
		return nil, &connectError{err}
	}
	if to.Namespace, _, err = loader.Namespace(); err != nil {
		return nil, &connectError{err}
	}
	return newAdapter(cluster(to), client)
}

func newAdapter(config cluster, client *rest.Config) (*adapter, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.ScheduleTimeout = cmp.Or(config.ScheduleTimeout, 10*time.Minute)
	config.Window = cmp.Or(config.Window, engine.ReconnectBudget)
	config.CPUShare = cmp.Or(config.CPUShare, 1)
	config.GPUResource = cmp.Or(config.GPUResource, "nvidia.com/gpu")
	client.QPS, client.Burst = 100, 200
	client.UserAgent = "evalbox"
	api, err := newClients(client, config.Namespace)
	if err != nil {
		return nil, &connectError{err}
	}
	return &adapter{config: config, rest: client, api: api, pods: newWatcher(api.pods()),
		log: slog.New(slog.DiscardHandler), open: map[*instance]struct{}{}}, nil
}

// silence keeps the client's library from writing to stderr: its calls return what it would say there.
var silence = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// connectError says why no cluster can be named.
type connectError struct{ err error }

func (e *connectError) Error() string {
	why := e.err.Error()
	if clientcmd.IsEmptyConfig(e.err) { // the library names a variable that nobody uses
		why = "there is neither a kubeconfig file with a current context nor the service account of a pod"
	}
	return "no Kubernetes cluster is configured: " + why
}

func (e *connectError) Unwrap() []error { return []error{engine.ErrUnavailable, e.err} }

// Hint says what to try.
func (e *connectError) Hint() string {
	return "check with: kubectl config current-context; or name a file with kubernetes.kubeconfig, and a context with kubernetes.context"
}

// callTimeout bounds every call that does not wait for a program.
const callTimeout = 30 * time.Second

func callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// changeContext bounds a call that changes something, which is not canceled with its caller.
func changeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return callContext(context.WithoutCancel(ctx))
}

// clusterError classifies an error of the client once.
func clusterError(ctx context.Context, err error) error {
	var network net.Error
	var address *url.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return err
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return &callError{engine.ErrPermission, err}
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", engine.ErrNoContainer, err)
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsInternalError(err), errors.As(err, &address), errors.As(err, &network), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded):
		return &callError{engine.ErrUnavailable, err}
	}
	return err
}

// callError adds a class to an error of the client.
type callError struct{ class, err error }

func (e *callError) Error() string   { return e.class.Error() + ": " + e.err.Error() }
func (e *callError) Unwrap() []error { return []error{e.class, e.err} }

// Hint says what to try.
func (e *callError) Hint() string {
	if errors.Is(e.class, engine.ErrPermission) {
		return "give the account the Role of examples/kubernetes/role.yaml; kubectl auth can-i --list shows what it may do"
	}
	return "check that the cluster answers: kubectl get --raw /readyz"
}

// Info implements [engine.Engine].
func (e *adapter) Info(ctx context.Context) (engine.Info, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	server, err := e.askVersion(ctx)
	if err != nil {
		return engine.Info{}, err
	}
	id := sha256.Sum256([]byte(e.rest.Host + "\n" + e.config.Namespace))
	return engine.Info{
		Name: "Kubernetes", Version: server.String(), APIVersion: fmt.Sprintf("%d.%d", server.Major(), server.Minor()),
		ID: "kubernetes-" + hex.EncodeToString(id[:8]), OS: "linux", Address: e.rest.Host,
		Seccomp: true, MemoryLimit: true, CPUQuota: true, Refills: true,
		Host: spec.Host{Seccomp: true, Unenforced: e.unenforced(), Filter: e.config.filter(), GPUs: e.config.gpus(), Claims: true},
	}, nil
}

// unenforced lists what a pod cannot promise.
func (e *adapter) unenforced() []string {
	limits := []string{spec.LimitSwap, spec.LimitPIDs, spec.LimitInodes, spec.LimitSeccomp, spec.LimitInterfaces}
	if e.config.AllowOpenNetwork {
		limits = append(limits, spec.LimitNetwork)
	}
	return limits
}

// version is the version of the API server, which is asked for it once.
func (e *adapter) version(ctx context.Context) (*version.Version, error) {
	e.mu.Lock()
	known := e.server
	e.mu.Unlock()
	if known != nil {
		return known, nil
	}
	return e.askVersion(ctx)
}

func (e *adapter) askVersion(ctx context.Context) (*version.Version, error) {
	text, err := e.api.core.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for its version: %w", clusterError(ctx, err))
	}
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("the version of the cluster: %w", err)
	}
	server, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("the version of the cluster: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = server
	return server, nil
}

// imageVolumes is the first version in which every cluster mounts images.
var imageVolumes = version.MustParseGeneric("1.35")

// claims is the first version that has resource claims.
var claims = version.MustParseGeneric("1.34")

// Resolve implements [engine.Engine]. A pod names its image by digest, so that every node runs the
// same one. The digest of a tag is only known to the registry.
func (e *adapter) Resolve(ctx context.Context, ref string) (images.Resolved, error) {
	return resolve(ctx, ref)
}

// FindNetwork implements [engine.Networks].
func (e *adapter) FindNetwork(_ context.Context, name string) error {
	return &policy.FieldError{Field: "network", Value: fmt.Sprintf("%q", name), Rule: "is not a network of this engine: a pod has that of its namespace, or none"}
}

// List implements [engine.Engine].
func (e *adapter) List(ctx context.Context) ([]engine.Found, error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	jobs, err := e.api.jobs().List(ctx, metav1.ListOptions{LabelSelector: spec.LabelManaged + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing Jobs: %w", clusterError(ctx, err))
	}
	pods, err := e.api.pods().List(ctx, metav1.ListOptions{LabelSelector: spec.LabelManaged + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", clusterError(ctx, err))
	}
	podOf := map[string]*corev1.Pod{}
	for i, pod := range pods.Items {
		podOf[pod.Labels[jobLabel]] = &pods.Items[i]
	}
	found := make([]engine.Found, 0, len(jobs.Items))
	for _, job := range jobs.Items {
		if job.DeletionTimestamp == nil {
			found = append(found, foundOf(&job, podOf[job.Name]))
		}
	}
	return found, nil
}

// foundOf describes the container of a Job. The porter may outlive it. The function is pure.
func foundOf(job *batchv1.Job, pod *corev1.Pod) engine.Found {
	_, over := statusOfMain(pod)
	over = over || job.Status.Failed+job.Status.Succeeded > 0
	f := engine.Found{
		ID: job.Name, Name: job.Annotations[nameAnnotation], Labels: labelsOf(job.Annotations),
		Running: !over && pod != nil && pod.Status.Phase == corev1.PodRunning, Ended: over,
		CreatedAt: job.CreationTimestamp.UTC(), Status: statusOf(job.Status),
	}
	if containers := job.Spec.Template.Spec.Containers; len(containers) > 0 {
		f.Image = containers[0].Image
	}
	return f
}

// Remove implements [engine.Engine].
func (e *adapter) Remove(ctx context.Context, name string) error {
	job := jobName(name)
	defer e.pods.removed(job)
	// The pods go first, and soon: the Job would give them their whole grace period.
	podErr := e.removePods(ctx, job)
	ctx, cancel := changeContext(ctx)
	defer cancel()
	background := metav1.DeletePropagationBackground
	err := e.api.jobs().Delete(ctx, job, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing Job %s: %w", job, clusterError(ctx, err))
	}
	return podErr
}

// removePods kills the pods of a Job. Sessions of this engine with them end, so that nobody takes the
// last words of an init that is being killed for a report.
func (e *adapter) removePods(ctx context.Context, job string) error {
	ctx, cancel := changeContext(ctx)
	defer cancel()
	err := e.api.pods().DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
		metav1.ListOptions{LabelSelector: jobLabel + "=" + job + "," + spec.LabelManaged + "=true"})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the pod of Job %s: %w", job, clusterError(ctx, err))
	}
	e.mu.Lock()
	var talking []*instance
	for c := range e.open {
		if c.job == job {
			talking = append(talking, c)
		}
	}
	e.mu.Unlock()
	for _, c := range talking {
		c.Disconnect()
	}
	return nil
}

// Close implements [engine.Engine].
func (e *adapter) Close() error {
	e.mu.Lock()
	open := e.open
	e.open = nil
	e.mu.Unlock()
	for c := range open {
		c.Disconnect()
	}
	e.pods.close()
	return nil
}
