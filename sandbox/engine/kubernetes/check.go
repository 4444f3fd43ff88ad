package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A Grade says what a [Finding] means for runs.
type Grade int

// The grades. Seen is neither good nor bad.
const (
	Seen Grade = iota
	Good
	Doubtful
	Bad
)

// A Finding is the result of one check of a cluster.
type Finding struct {
	Check string
	Grade Grade
	// Text is the observation. Advice suggests a fix; it may be empty.
	Text, Advice string
}

// CheckPermissions is the [Finding] about [Report].Missing.
const CheckPermissions = "permissions"

// A Report is the result of all checks of a cluster.
type Report struct {
	Findings  []Finding
	Namespace string
	// Missing are the permissions of [Role] that the account lacks.
	Missing []Permission
}

const (
	// listLimit bounds every list that a check requests.
	listLimit = 500
	// textBytes bounds every text of the cluster in a finding.
	textBytes = 400
)

// Check examines a cluster for runs with a runtime class, which may be empty. It changes nothing. What
// the account may not see is a finding, not an error. An error says that no cluster answers.
func Check(ctx context.Context, to engine.Cluster, runtimeClass string) (Report, error) {
	connected, err := Connect(to)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = connected.Close() }() // it has no session
	e, ok := connected.(*adapter)
	if !ok {
		return Report{}, fmt.Errorf("%T is not an engine of this package", connected)
	}
	ctx, cancel := callContext(ctx)
	defer cancel()
	r := Report{Namespace: e.config.Namespace}
	server, err := e.version(ctx)
	if err != nil {
		return r, err
	}
	r.add(Finding{"cluster", Good, e.rest.Host + ", namespace " + e.config.Namespace, ""}, judgeVersion(server))
	if r.Missing, err = e.missing(ctx); err != nil {
		return r, fmt.Errorf("asking for permissions: %w", clusterError(ctx, err))
	}
	r.add(judgePermissions(r.Missing), judgePrograms(e.config.Programs))
	r.add(e.checkAdmission(ctx, server, runtimeClass)...)
	r.add(e.checkPolicies(ctx, r.Missing), e.checkRuntimes(ctx, runtimeClass), e.checkNodes(ctx), e.checkQuota(ctx))
	if e.config.Queue != "" {
		r.add(e.checkQueue(ctx))
	}
	return r, ctx.Err()
}

func (r *Report) add(findings ...Finding) { r.Findings = append(r.Findings, findings...) }

// judgeVersion says how the programs of evalbox reach pods of this version.
func judgeVersion(server *version.Version) Finding {
	if server.AtLeast(imageVolumes) {
		return Finding{"version", Good, server.String() + ": image volumes", ""}
	}
	return Finding{"version", Doubtful, fmt.Sprintf("%s: no image volumes before %s, so every start copies the programs first, in about a second", server, imageVolumes),
		"upgrade the cluster to Kubernetes " + imageVolumes.String() + " or newer"}
}

// missing asks which permissions of the engine the account lacks.
func (e *adapter) missing(ctx context.Context) (missing []Permission, err error) {
	for _, p := range Role() {
		resource, sub, _ := strings.Cut(p.Resource, "/")
		lacks := Permission{Group: p.Group, Resource: p.Resource}
		for _, verb := range p.Verbs {
			answer, err := e.api.reviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: e.config.Namespace, Group: p.Group, Resource: resource, Subresource: sub, Verb: verb}},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, err
			}
			if !answer.Status.Allowed {
				lacks.Verbs = append(lacks.Verbs, verb)
			}
		}
		if len(lacks.Verbs) > 0 {
			missing = append(missing, lacks)
		}
	}
	return missing, nil
}

func judgePermissions(missing []Permission) Finding {
	if len(missing) == 0 {
		return Finding{CheckPermissions, Good, "the account may do all that runs need", ""}
	}
	var lacks []string
	for _, p := range missing {
		lacks = append(lacks, strings.Join(p.Verbs, ", ")+" of "+p.Resource)
	}
	return Finding{CheckPermissions, Bad, "the account lacks: " + strings.Join(lacks, "; "),
		"have an administrator apply the Role and bind it to the account"}
}

func judgePrograms(image string) Finding {
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		if _, ok := named.(reference.Digested); ok {
			return Finding{"programs", Good, image, ""}
		}
	}
	return Finding{"programs", Bad, image + " is not an image with a digest", "set kubernetes.programs to REGISTRY/REPOSITORY@sha256:… of this release"}
}

// hidden is the finding of a check whose answer the account may not see.
func hidden(check, permission string, err error) Finding {
	if apierrors.IsForbidden(err) {
		return Finding{check, Seen, "cannot be seen: the account may not " + permission, ""}
	}
	return Finding{check, Doubtful, "cannot be seen: " + short(err.Error()), ""}
}

func short(text string) string { return fmt.Sprintf("%.*s", textBytes, text) }

// examplePlan is a small run, for a request that changes nothing.
func (e *adapter) examplePlan(server *version.Version, runtimeClass string) plan {
	return plan{config: e.config, window: e.config.Window, imageVolume: server.AtLeast(imageVolumes), meta: engine.Meta{Name: "evalbox-doctor"},
		class: spec.Class{Image: spec.Image{Digest: e.config.Programs}, User: spec.DedicatedUser, Runtime: runtimeClass,
			Cgroup: spec.Cgroup{MemoryBytes: 64 << 20, NanoCPUs: 1e9}}}
}

// Labels of Pod Security admission.
const (
	enforceLabel      = "pod-security.kubernetes.io/enforce"
	restrictedProfile = "restricted"
)

// checkAdmission tries a Job and its pod without creating them, and reads the profile of the namespace.
func (e *adapter) checkAdmission(ctx context.Context, server *version.Version, runtimeClass string) []Finding {
	namespace, err := e.api.namespaces().Get(ctx, e.config.Namespace, metav1.GetOptions{})
	var profile Finding
	if err == nil {
		profile = judgeProfile(namespace.Labels[enforceLabel])
	} else {
		profile = hidden("pod security", "get the namespace", err)
	}
	job, err := e.examplePlan(server, runtimeClass).job()
	if err != nil {
		return []Finding{profile, {"admission", Bad, short(err.Error()), ""}}
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err = e.api.jobs().Create(ctx, job, dry)
	jobs := judgeTry("Job", "jobs", err)
	pod := &corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	pod.Name = job.Name
	_, err = e.api.pods().Create(ctx, pod, dry)
	return []Finding{profile, jobs, judgeTry("pod", "pods", err)}
}

func judgeProfile(profile string) Finding {
	switch profile {
	case restrictedProfile:
		return Finding{"pod security", Good, "the namespace enforces restricted", ""}
	case "":
		profile = "nothing"
	}
	return Finding{"pod security", Doubtful, "the namespace enforces " + short(profile) + "; pods of runs satisfy restricted",
		"enforce it for others as well: kubectl label namespace NAME " + enforceLabel + "=" + restrictedProfile}
}

// judgeTry judges the answer to a request that creates nothing.
func judgeTry(kind, resource string, err error) Finding {
	check := strings.ToLower(kind) + " admission"
	switch {
	case err == nil:
		return Finding{check, Good, "the cluster accepts the " + kind + " of a run", ""}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `cannot create resource "`+resource+`"`):
		return Finding{check, Seen, "cannot be tried: the account may not create " + resource, ""}
	}
	return Finding{check, Bad, "the cluster refuses the " + kind + " of a run: " + short(err.Error()),
		"change the admission policy or the quota of the namespace, or choose another with kubernetes.namespace"}
}

// checkPolicies looks at the NetworkPolicies as a run does. missing are the permissions that the account
// lacks.
func (e *adapter) checkPolicies(ctx context.Context, missing []Permission) Finding {
	list, err := e.api.policies().List(ctx, metav1.ListOptions{Limit: listLimit})
	if err != nil {
		return hidden("network policy", "list networkpolicies", err)
	}
	creates := !slices.ContainsFunc(missing, func(p Permission) bool {
		return p.Resource == "networkpolicies" && slices.Contains(p.Verbs, "create")
	})
	return judgePolicies(list.Items, creates, e.config.AllowOpenNetwork)
}

// judgePolicies says whether the policies of the namespace close the network of the pods of runs. creates
// says that the account may create the missing one, and allowed that the configuration permits a network.
func judgePolicies(policies []networkingv1.NetworkPolicy, creates, allowed bool) Finding {
	const check = "network policy"
	if creates && !slices.ContainsFunc(policies, func(p networkingv1.NetworkPolicy) bool { return p.Name == NetworkPolicyName }) {
		policies = append(slices.Clone(policies), *NetworkPolicy(""))
	}
	why := openBy(policies, labels.Set{spec.LabelManaged: "true"})
	switch {
	case why == "":
		return Finding{check, Good, NetworkPolicyName + " denies all traffic of the pods of runs; the first run creates it if it is missing, and checks that the cluster enforces it", ""}
	case allowed:
		return Finding{check, Doubtful, why + "; kubernetes.allow_open_network permits the runs all the same", "set kubernetes.allow_open_network to false, unless the programs may have a network"}
	}
	return Finding{check, Bad, why + ": runs whose pods have a network interface are refused", (&OpenNetworkError{}).Hint()}
}

// checkRuntimes lists the runtime classes.
func (e *adapter) checkRuntimes(ctx context.Context, wanted string) Finding {
	list, err := e.api.runtimeClasses().List(ctx, metav1.ListOptions{Limit: listLimit})
	if err != nil {
		return hidden("runtimes", "list runtimeclasses", err)
	}
	names := []string{}
	for _, class := range list.Items {
		names = append(names, class.Name)
	}
	return judgeRuntimes(names, wanted)
}

func judgeRuntimes(names []string, wanted string) Finding {
	all := "none but the default"
	if len(names) > 0 {
		all = short(strings.Join(names, ", "))
	}
	if wanted != "" && !slices.Contains(names, wanted) {
		return Finding{"runtimes", Bad, fmt.Sprintf("there is no runtime class %q; there are: %s", wanted, all), "choose one of them with --runtime, or leave it out"}
	}
	return Finding{"runtimes", Seen, all, ""}
}

// checkNodes counts the GPUs.
func (e *adapter) checkNodes(ctx context.Context) Finding {
	list, err := e.api.nodes().List(ctx, metav1.ListOptions{Limit: listLimit})
	if err != nil {
		return hidden("GPUs", "list nodes", err)
	}
	return judgeNodes(list.Items, corev1.ResourceName(e.config.GPUResource), list.Continue != "")
}

func judgeNodes(nodes []corev1.Node, gpu corev1.ResourceName, more bool) Finding {
	total, with := int64(0), 0
	for _, node := range nodes {
		if n := node.Status.Allocatable[gpu]; n.Value() > 0 {
			total, with = total+n.Value(), with+1
		}
	}
	text := fmt.Sprintf("%d %s on %d of %d nodes", total, gpu, with, len(nodes))
	if more {
		text += ", and there are more nodes"
	}
	return Finding{"GPUs", Seen, text, ""}
}

// checkQuota lists the resources of which the namespace has little.
func (e *adapter) checkQuota(ctx context.Context) Finding {
	list, err := e.api.quotas().List(ctx, metav1.ListOptions{Limit: listLimit})
	if err != nil {
		return hidden("quota", "list resourcequotas", err)
	}
	return judgeQuota(list.Items)
}

func judgeQuota(quotas []corev1.ResourceQuota) Finding {
	var used, full []string
	for _, q := range quotas {
		for name, hard := range q.Status.Hard {
			now := q.Status.Used[name]
			text := fmt.Sprintf("%s %s of %s", name, now.String(), hard.String())
			if used = append(used, text); now.Cmp(hard) >= 0 {
				full = append(full, text)
			}
		}
	}
	slices.Sort(used)
	slices.Sort(full)
	switch {
	case len(full) > 0:
		return Finding{"quota", Doubtful, "used up: " + short(strings.Join(full, ", ")), "wait for other pods, or have the quota raised: kubectl describe quota"}
	case len(used) > 0:
		return Finding{"quota", Seen, "used: " + short(strings.Join(used, ", ")), ""}
	}
	return Finding{"quota", Seen, "none", ""}
}

const queueGroup = "/apis/kueue.x-k8s.io"

// checkQueue looks for the queue, in the version that the cluster prefers.
func (e *adapter) checkQueue(ctx context.Context) Finding {
	var group metav1.APIGroup
	data, err := e.api.core.Get().AbsPath(queueGroup).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &group)
	}
	if err == nil {
		err = e.api.core.Get().AbsPath(queueGroup, group.PreferredVersion.Version, "namespaces", e.config.Namespace, "localqueues", e.config.Queue).Do(ctx).Error()
		return judgeQueue(e.config.Queue, true, err)
	}
	return judgeQueue(e.config.Queue, false, err)
}

// judgeQueue judges the answer to the question for a queue. installed says that the cluster has Kueue.
func judgeQueue(name string, installed bool, err error) Finding {
	switch {
	case err == nil:
		return Finding{"queue", Good, "LocalQueue " + name, ""}
	case !apierrors.IsNotFound(err):
		return hidden("queue", "get localqueues of kueue.x-k8s.io", err)
	case !installed:
		return Finding{"queue", Bad, "the cluster does not have Kueue, so Jobs for the queue " + name + " would wait forever", "install Kueue, or leave kubernetes.queue out"}
	}
	return Finding{"queue", Bad, "the namespace does not have a LocalQueue " + name, "choose one of: kubectl get localqueues; with kubernetes.queue"}
}
