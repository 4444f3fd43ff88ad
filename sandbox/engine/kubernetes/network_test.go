//go:build linux && cluster

package kubernetes_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// linked is the runtime class of the test cluster whose pods have an interface, which no policy closes.
const linked = "network"

// namespace makes a namespace of the test, and returns it with a client.
func namespace(t *testing.T) (string, *rest.Config) {
	t.Helper()
	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	require.NoError(t, err)
	core, err := coreclient.NewForConfig(client)
	require.NoError(t, err)
	made, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "evalbox-network-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, core.Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{}))
	})
	return made.Name, client
}

// prepare prepares a container of a runtime class in a namespace.
func prepare(t *testing.T, config engine.Cluster, runtime string) (engine.Engine, engine.Container, error) {
	t.Helper()
	e, err := kubernetes.Connect(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	image, err := e.Resolve(t.Context(), os.Getenv("EVALBOX_KUBERNETES_IMAGE"))
	require.NoError(t, err)
	c, err := e.Prepare(t.Context(), classOf(t, e, image, runtime), engine.Meta{Name: "evalbox-network", Labels: map[string]string{spec.LabelManaged: "true"}})
	return e, c, err
}

func classOf(t *testing.T, e engine.Engine, image images.Resolved, runtime string) spec.Class {
	t.Helper()
	info, err := e.Info(t.Context())
	require.NoError(t, err)
	return spec.Class{
		Image: spec.Image{ID: image.ID, Digest: image.Digest}, Runtime: runtime, User: spec.DedicatedUser, WorkDir: spec.WorkDir, Network: "none",
		ReadOnlyRoot: true, NoNewPrivileges: true, CapDrop: []string{"ALL"}, Seccomp: spec.Seccomp{Name: info.Host.Filter},
		Cgroup:     spec.Cgroup{MemoryBytes: int64(128 * policy.MiB), NanoCPUs: 5e8},
		Tmpfs:      []spec.Tmpfs{{Target: spec.TmpDir, SizeBytes: int64(policy.MiB)}, {Target: spec.WorkDir, SizeBytes: int64(policy.MiB)}},
		Unenforced: info.Host.Unenforced,
	}
}

// TestNetworkOff: a pod with its loopback alone runs, and its namespace has the policy.
func TestNetworkOff(t *testing.T) {
	config := config(t)
	name, client := namespace(t)
	config.Namespace = name
	_, c, err := prepare(t, config, "")
	require.NoError(t, err)
	require.False(t, engine.HasInterfaces(c.Ready()), "%v", c.Ready().Interfaces)
	require.Empty(t, c.Warnings())
	policies, err := networkingclient.NewForConfig(client)
	require.NoError(t, err)
	is, err := policies.NetworkPolicies(name).Get(t.Context(), kubernetes.NetworkPolicyName, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, kubernetes.NetworkPolicy(name).Spec, is.Spec)
	require.NoError(t, c.Remove(t.Context()))
}

// TestOpenNetworkIsRefused: the network plugin of the test cluster enforces no policy, so a pod with an
// interface gets out.
func TestOpenNetworkIsRefused(t *testing.T) {
	config := config(t)
	name, client := namespace(t)
	config.Namespace = name
	_, _, err := prepare(t, config, linked)
	require.ErrorIs(t, err, engine.ErrUnenforceable)
	var open *kubernetes.OpenNetworkError
	require.ErrorAs(t, err, &open)
	require.Regexp(t, `^it answered from the pod: tcp 198\.(18|19)\.`, open.Why)
	require.Contains(t, open.Hint(), "kubernetes.allow_open_network")
	jobs, err := batchclient.NewForConfig(client)
	require.NoError(t, err)
	left, err := jobs.Jobs(name).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, job := range left.Items {
		require.NotNil(t, job.DeletionTimestamp, job.Name)
	}

	config.AllowOpenNetwork = true
	e, c, err := prepare(t, config, linked)
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	require.Regexp(t, `^the network of the program was not off: it answered from the pod: tcp 198\.`, c.Warnings()[0])
	info, err := e.Info(t.Context())
	require.NoError(t, err)
	require.Contains(t, info.Host.Unenforced, spec.LimitNetwork)
	require.NoError(t, c.Remove(t.Context()))
}

// TestResultsNameUnenforcedLimits: a result claims no limit that the pod did not have.
func TestResultsNameUnenforcedLimits(t *testing.T) {
	config := config(t)
	config.Namespace, _ = namespace(t)
	config.AllowOpenNetwork, config.Window = true, 0
	e, err := kubernetes.Connect(config)
	require.NoError(t, err)
	r, err := sandbox.New(sandbox.WithEngine(e), sandbox.WithStateDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	request := sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Command: []string{"true"}, Limits: policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB}}

	result, err := r.Run(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, "RuntimeDefault", result.Enforced.Seccomp)
	require.Equal(t, "RuntimeDefault", result.Enforced.Isolation.Seccomp)
	require.Equal(t, "none", result.Enforced.Network)
	require.Subset(t, result.Enforced.Unenforced, []string{spec.LimitInodes, spec.LimitSeccomp})
	require.NotContains(t, result.Enforced.Unenforced, spec.LimitInterfaces)
	require.NotContains(t, result.Enforced.Unenforced, spec.LimitNetwork)

	request.Runtime = linked
	result, err = r.Run(t.Context(), request)
	require.NoError(t, err)
	require.Subset(t, result.Enforced.Unenforced, []string{spec.LimitInterfaces, spec.LimitNetwork})
	require.Contains(t, strings.Join(result.Warnings, "\n"), "the network of the program was not off: it answered from the pod: tcp 198.")

	request.Limits.PIDs = 20
	_, err = r.Run(t.Context(), request)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "pids-limit", field.Field)
}
