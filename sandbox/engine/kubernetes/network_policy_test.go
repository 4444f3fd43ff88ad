package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestPoliciesOfANamespace: policies add up, so one that permits traffic of these pods opens them.
func TestPoliciesOfANamespace(t *testing.T) {
	off := *NetworkPolicy("box")
	changed := *NetworkPolicy("box")
	changed.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	other := func(selector map[string]string, rules ...networkingv1.NetworkPolicyEgressRule) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "dns"},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: selector}, Egress: rules}}
	}
	for name, test := range map[string]struct {
		policies []networkingv1.NetworkPolicy
		why      string
	}{
		"that of evalbox":         {[]networkingv1.NetworkPolicy{off}, ""},
		"none":                    {nil, "there is no NetworkPolicy evalbox-network-off"},
		"changed":                 {[]networkingv1.NetworkPolicy{changed}, "NetworkPolicy evalbox-network-off is not the one of evalbox"},
		"one for all pods":        {[]networkingv1.NetworkPolicy{off, other(nil, networkingv1.NetworkPolicyEgressRule{})}, "NetworkPolicy dns permits traffic of the pods of evalbox"},
		"one without rules":       {[]networkingv1.NetworkPolicy{off, other(nil)}, ""},
		"one for other pods":      {[]networkingv1.NetworkPolicy{off, other(map[string]string{"app": "web"}, networkingv1.NetworkPolicyEgressRule{})}, ""},
		"only one for other pods": {[]networkingv1.NetworkPolicy{other(map[string]string{"app": "web"})}, "there is no NetworkPolicy evalbox-network-off"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.why, openBy(test.policies, labels.Set{spec.LabelManaged: "true"}))
		})
	}
}

// TestNobodyWaitsForThePoliciesLongerThanItsContext: callers share one look at a cluster that hangs. It
// goes on without the caller who came first, and a failure is not remembered.
func TestNobodyWaitsForThePoliciesLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan int)
		asked := 0
		e, err := newAdapter(cluster{Programs: "registry.example/init@sha256:0"}, &rest.Config{Host: "https://cluster.example",
			Transport: transport(func(*http.Request) (*http.Response, error) {
				asked++
				text, err := json.Marshal(networkingv1.NetworkPolicyList{Items: []networkingv1.NetworkPolicy{*NetworkPolicy("box")}})
				return &http.Response{StatusCode: <-answers, Body: io.NopCloser(bytes.NewReader(text)), Header: http.Header{"Content-Type": {"application/json"}}}, err
			})})
		require.NoError(t, err)
		closeNetwork := func() (end func(), result chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			result = make(chan error, 1)
			go func() { result <- e.closeNetwork(ctx) }()
			synctest.Wait()
			return cancel, result
		}
		end1, first := closeNetwork()
		end2, second := closeNetwork()
		end3, third := closeNetwork()
		defer end3()
		end2()
		require.ErrorIs(t, <-second, context.Canceled)
		end1()
		require.ErrorIs(t, <-first, context.Canceled)
		answers <- http.StatusBadGateway
		require.Error(t, <-third)
		require.Equal(t, 1, asked)

		end4, fourth := closeNetwork()
		defer end4()
		answers <- http.StatusOK
		require.NoError(t, <-fourth)
		require.NoError(t, e.closeNetwork(t.Context()), "remembered")
		require.Equal(t, 2, asked)
		require.NoError(t, e.Close())
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestProbedAddresses(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{HostIPs: []corev1.HostIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}}}
	require.Equal(t, []string{"10.0.0.7:10250", "[fd00::7]:10250", "10.1.1.1:6443"}, probed("https://10.1.1.1:6443", pod))
	require.Equal(t, []string{"10.0.0.7:10250", "[fd00::7]:10250", "[fd00::1]:443"}, probed("https://[fd00::1]", pod))
	require.Empty(t, probed("https://cluster.example.org", &corev1.Pod{}), "a name needs a name server, which is tried as such")
}

// TestWhatIsKnownOfANetwork: only a place that was closed at once is remembered, for a while.
func TestWhatIsKnownOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(node string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{spec.LabelManaged: "true"}}, Spec: corev1.PodSpec{NodeName: node}}
		}
		n := network{policies: []networkingv1.NetworkPolicy{*NetworkPolicy("box")}}
		probes := 0
		// open is how many attempts of a pod get out.
		why := func(node string, open int, hasty bool) string {
			probes = 0
			why, err := n.whyOpen(t.Context(), pod(node), hasty, func(context.Context, *corev1.Pod) ([]string, error) {
				if probes++; probes <= open {
					return []string{"tcp 10.0.0.1:443"}, nil
				}
				return nil, nil
			})
			require.NoError(t, err)
			return why
		}
		require.Empty(t, why("late", 3, false))
		require.Empty(t, why("late", 3, false))
		require.Equal(t, 4, probes, "a policy that comes late is waited for, each time")

		require.Empty(t, why("closed", 0, false))
		require.Equal(t, 1, probes)
		require.Empty(t, why("closed", 1000, false))
		require.Zero(t, probes, "remembered")
		time.Sleep(networkMemory)
		require.Empty(t, why("closed", 0, false))
		require.Equal(t, 1, probes, "forgotten")
		time.Sleep(networkMemory)
		require.Empty(t, why("another", 0, false))
		require.Len(t, n.closed, 1, "nothing is kept of a node that may be gone")

		const answered = "it answered from the pod: tcp 10.0.0.1:443"
		began := time.Now()
		require.Equal(t, answered, why("open", 1000, false))
		require.Greater(t, time.Since(began), policyPatience)
		require.Equal(t, answered, why("open", 1000, true))
		require.Equal(t, 1, probes, "who permits it does not wait")

		n.policies = nil
		require.NotEmpty(t, why("closed", 0, false), "a network that nothing closes is not off")
		require.Zero(t, probes)
	})
}
