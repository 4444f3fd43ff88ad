package kubernetes

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes/porter"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// NetworkPolicyName is the name of the NetworkPolicy that closes the network of all pods of evalbox in a
// namespace.
const NetworkPolicyName = "evalbox-network-off"

const (
	// networkMemory is how long an answer of the cluster counts that concerns its network.
	networkMemory = 10 * time.Minute
	// policyPatience is how long the cluster may take to apply a NetworkPolicy to a new pod, and
	// probePeriod the time between two attempts to get out.
	policyPatience = 10 * time.Second
	probePeriod    = 500 * time.Millisecond
	// probeLimit bounds one attempt, and probeBytes what it prints.
	probeLimit = 30 * time.Second
	probeBytes = 16 << 10
)

// NetworkPolicy is what the engine creates in a namespace, or requires there.
func NetworkPolicy(namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: NetworkPolicyName, Namespace: namespace},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{spec.LabelManaged: "true"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

// place is where all pods have the same network.
type place struct{ node, runtime string }

// network remembers what is known of the network of the pods. It is safe for concurrent use.
type network struct {
	// closing is the look at the policies that is in progress. No lock is held over it.
	closing singleflight.Group

	mu sync.Mutex
	// policies are those of the namespace, as of looked; unseen says why they cannot be listed.
	policies []networkingv1.NetworkPolicy
	unseen   error
	looked   time.Time
	// closed has the places that nothing got out of, and when that was seen.
	closed map[place]time.Time
}

// closeNetwork creates the NetworkPolicy, unless the namespace has it. It must precede the pods. Callers at
// one time share the calls of the cluster: each waits for them as long as its own ctx lasts.
func (e *adapter) closeNetwork(ctx context.Context) error {
	n := &e.network
	n.mu.Lock()
	known := !n.looked.IsZero() && time.Since(n.looked) < networkMemory
	n.mu.Unlock()
	if known {
		return nil
	}
	closed := n.closing.DoChan("", func() (any, error) {
		ctx, cancel := changeContext(ctx)
		defer cancel()
		return nil, e.ensurePolicy(ctx)
	})
	select {
	case is := <-closed:
		return is.Err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
}

// ensurePolicy creates the NetworkPolicy, unless the namespace has it, and remembers the policies.
func (e *adapter) ensurePolicy(ctx context.Context) error {
	policies := e.api.policies()
	list, unseen := policies.List(ctx, metav1.ListOptions{})
	if unseen != nil && !apierrors.IsForbidden(unseen) {
		return fmt.Errorf("listing NetworkPolicies: %w", clusterError(ctx, unseen))
	}
	var all []networkingv1.NetworkPolicy
	if unseen == nil {
		all = list.Items
	}
	if !slices.ContainsFunc(all, func(p networkingv1.NetworkPolicy) bool { return p.Name == NetworkPolicyName }) {
		created, err := policies.Create(ctx, NetworkPolicy(e.config.Namespace), metav1.CreateOptions{})
		switch {
		case err == nil:
			all = append(all, *created)
		case apierrors.IsAlreadyExists(err) && unseen == nil:
			all = append(all, *NetworkPolicy(e.config.Namespace)) // of another controller, just now
		case !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err):
			return fmt.Errorf("creating NetworkPolicy %s: %w", NetworkPolicyName, clusterError(ctx, err))
		}
	}
	n := &e.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.policies, n.unseen, n.looked = all, unseen, time.Now()
	return nil
}

// openBy says why the policies of a namespace do not close the network of a pod; empty if they do. It
// is pure.
func openBy(policies []networkingv1.NetworkPolicy, pod labels.Set) string {
	wanted, found := NetworkPolicy(""), false
	for _, p := range policies {
		if p.Name == NetworkPolicyName {
			if found = true; !equality.Semantic.DeepEqual(p.Spec, wanted.Spec) {
				return "NetworkPolicy " + p.Name + " is not the one of evalbox"
			}
			continue
		}
		// What one policy allows, no other one forbids.
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if rules := len(p.Spec.Egress) + len(p.Spec.Ingress); rules > 0 && (err != nil || selector.Matches(pod)) {
			return fmt.Sprintf("NetworkPolicy %s permits traffic of the pods of evalbox", p.Name)
		}
	}
	if !found {
		return "there is no NetworkPolicy " + NetworkPolicyName
	}
	return ""
}

// OpenNetworkError means that the cluster lets the pods of evalbox reach a network. It is an
// [engine.ErrUnenforceable].
type OpenNetworkError struct {
	Namespace string
	// Why says what is wrong.
	Why string
}

func (e *OpenNetworkError) Error() string {
	return fmt.Sprintf("the network is not off in namespace %s: %s", e.Namespace, e.Why)
}

// Unwrap makes it an [engine.ErrUnenforceable].
func (e *OpenNetworkError) Unwrap() error { return engine.ErrUnenforceable }

// Hint says what to try.
func (e *OpenNetworkError) Hint() string {
	return "create the NetworkPolicy of examples/kubernetes and delete those that permit more, in a cluster whose network plugin enforces them; " +
		"or permit programs a network with kubernetes.allow_open_network"
}

// checkNetwork refuses a pod whose network is not off, or warns of it where the configuration permits
// that. A pod with its loopback alone needs no attempt to get out. In others the porter tries, in the
// network of the program, before anything of the image runs.
func (c *instance) checkNetwork(ctx context.Context) error {
	e := c.engine
	if c.class.Network != "none" || !engine.HasInterfaces(c.ready) {
		return nil
	}
	pod, err := e.scheduled(ctx, c.job, time.Now())
	if err != nil {
		return e.porterError(ctx, c.job, err)
	}
	why, err := e.network.whyOpen(ctx, pod, e.config.AllowOpenNetwork, e.probe)
	if err != nil || why == "" {
		return err
	}
	if !e.config.AllowOpenNetwork {
		return &OpenNetworkError{Namespace: e.config.Namespace, Why: why}
	}
	c.warnings = append(c.warnings, fmt.Sprintf("the network of the program was not off: %s", why))
	return nil
}

// whyOpen says why the network of a pod is not off; empty if it is. Unless hasty, it gives the cluster
// time to apply its policies. Probe returns the addresses that answer the pod.
func (n *network) whyOpen(ctx context.Context, pod *corev1.Pod, hasty bool, probe func(context.Context, *corev1.Pod) ([]string, error)) (string, error) {
	at := place{node: pod.Spec.NodeName}
	if pod.Spec.RuntimeClassName != nil {
		at.runtime = *pod.Spec.RuntimeClassName
	}
	n.mu.Lock()
	policies, unseen, seen := n.policies, n.unseen, n.closed[at]
	n.mu.Unlock()
	if unseen == nil {
		if why := openBy(policies, pod.Labels); why != "" {
			return why, nil
		}
	}
	if !seen.IsZero() && time.Since(seen) < networkMemory {
		return "", nil
	}
	began := time.Now()
	for try := 1; ; try++ {
		answers, err := probe(ctx, pod)
		if err != nil {
			return "", fmt.Errorf("looking for a way out of pod %s: %w", pod.Name, err)
		}
		switch {
		case len(answers) == 0 && try == 1:
			n.mu.Lock()
			if n.closed == nil {
				n.closed = map[place]time.Time{}
			}
			// Nodes of a cluster come and go.
			maps.DeleteFunc(n.closed, func(_ place, seen time.Time) bool { return time.Since(seen) >= networkMemory })
			n.closed[at] = began
			n.mu.Unlock()
			return "", nil
		case len(answers) == 0:
			return "", nil // late: the next pod may be open at first as well
		case hasty || time.Since(began) > policyPatience:
			return "it answered from the pod: " + strings.Join(answers, ", "), nil
		}
		select {
		case <-time.After(probePeriod):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// probe tries to get out of a pod, and returns what answered.
func (e *adapter) probe(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	command := append([]string{porterPath, "probe"}, probed(e.rest.Host, pod)...)
	x, err := e.execute(ctx, pod.Name, porterContainer, nil, command...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = x.Close() }() // never fails
	text, err := io.ReadAll(io.LimitReader(x, probeBytes))
	if err != nil {
		return nil, clusterError(ctx, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := len(lines) - 1
	if lines[last] != porter.ProbeEnd {
		return nil, fmt.Errorf("%w: the probe said %.200q", engine.ErrProtocol, text)
	}
	return lines[:last], nil
}

// probed are the addresses of the cluster that the pod itself may not know: its node, and the API
// server as this controller reaches it.
func probed(server string, pod *corev1.Pod) (addresses []string) {
	for _, ip := range pod.Status.HostIPs {
		addresses = append(addresses, net.JoinHostPort(ip.IP, "10250"))
	}
	if at, err := url.Parse(server); err == nil {
		port := at.Port()
		if port == "" {
			port = "443"
		}
		if address, err := netip.ParseAddr(at.Hostname()); err == nil {
			addresses = append(addresses, net.JoinHostPort(address.String(), port))
		}
	}
	return addresses
}
