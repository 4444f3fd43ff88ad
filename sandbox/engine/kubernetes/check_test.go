package kubernetes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestJudge checks each judgment: its grade, its text, and that what is not good comes with advice.
func TestJudge(t *testing.T) {
	const digest = "registry.test/p@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New(text))
	}
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "localqueues"}, "q")
	opens := *NetworkPolicy("")
	opens.Name, opens.Spec.Egress = "opens", []networkingv1.NetworkPolicyEgressRule{{}}
	changed := *NetworkPolicy("")
	changed.Spec.PolicyTypes = changed.Spec.PolicyTypes[:1]
	others := opens
	others.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{spec.LabelManaged: "no"}}
	policies := func(p ...networkingv1.NetworkPolicy) []networkingv1.NetworkPolicy { return p }
	node := func(gpus string) corev1.Node {
		return corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"x.test/gpu": resource.MustParse(gpus)}}}
	}
	quota := func(used, hard string) []corev1.ResourceQuota {
		return []corev1.ResourceQuota{{Status: corev1.ResourceQuotaStatus{
			Used: corev1.ResourceList{"pods": resource.MustParse(used)}, Hard: corev1.ResourceList{"pods": resource.MustParse(hard)}}}}
	}
	for name, test := range map[string]struct {
		got   Finding
		grade Grade
		text  string
	}{
		"version":               {judgeVersion(version.MustParseGeneric("1.36.3")), Good, "1.36.3: image volumes"},
		"old version":           {judgeVersion(version.MustParseGeneric("1.34.9")), Doubtful, "no image volumes before 1.35"},
		"permissions":           {judgePermissions(nil), Good, "the account may do all that runs need"},
		"missing permissions":   {judgePermissions([]Permission{{"", "pods/exec", []string{"create", "get"}}, {"batch", "jobs", []string{"list"}}}), Bad, "the account lacks: create, get of pods/exec; list of jobs"},
		"programs":              {judgePrograms(digest), Good, digest},
		"programs by tag":       {judgePrograms("registry.test/p:1"), Bad, "registry.test/p:1 is not an image with a digest"},
		"no programs":           {judgePrograms(""), Bad, "is not an image with a digest"},
		"restricted":            {judgeProfile("restricted"), Good, "the namespace enforces restricted"},
		"baseline":              {judgeProfile("baseline"), Doubtful, "the namespace enforces baseline; "},
		"no profile":            {judgeProfile(""), Doubtful, "the namespace enforces nothing; "},
		"accepted":              {judgeTry("Job", "jobs", nil), Good, "the cluster accepts the Job of a run"},
		"refused":               {judgeTry("pod", "pods", forbidden("violates PodSecurity")), Bad, "the cluster refuses the pod of a run: "},
		"not tried":             {judgeTry("pod", "pods", forbidden(`User "u" cannot create resource "pods" in API group ""`)), Seen, "cannot be tried: the account may not create pods"},
		"hidden":                {hidden("quota", "list resourcequotas", forbidden("no")), Seen, "cannot be seen: the account may not list resourcequotas"},
		"policy":                {judgePolicies(policies(*NetworkPolicy(""), others), false, false), Good, NetworkPolicyName},
		"policy can be created": {judgePolicies(nil, true, false), Good, NetworkPolicyName},
		"no policy":             {judgePolicies(nil, false, false), Bad, "there is no NetworkPolicy " + NetworkPolicyName},
		"open policy":           {judgePolicies(policies(*NetworkPolicy(""), opens), true, false), Bad, "NetworkPolicy opens permits traffic"},
		"changed policy":        {judgePolicies(policies(changed), true, false), Bad, "is not the one of evalbox"},
		"open and allowed":      {judgePolicies(policies(*NetworkPolicy(""), opens), true, true), Doubtful, "kubernetes.allow_open_network permits"},
		"runtimes":              {judgeRuntimes([]string{"gvisor", "kata"}, "kata"), Seen, "gvisor, kata"},
		"no runtimes":           {judgeRuntimes(nil, ""), Seen, "none but the default"},
		"unknown runtime":       {judgeRuntimes([]string{"gvisor"}, "kata"), Bad, `there is no runtime class "kata"; there are: gvisor`},
		"GPUs":                  {judgeNodes([]corev1.Node{node("4"), node("0"), {}, node("2")}, "x.test/gpu", false), Seen, "6 x.test/gpu on 2 of 4 nodes"},
		"more nodes":            {judgeNodes([]corev1.Node{node("1")}, "x.test/gpu", true), Seen, "and there are more nodes"},
		"no quota":              {judgeQuota(nil), Seen, "none"},
		"quota":                 {judgeQuota(quota("1", "2")), Seen, "used: pods 1 of 2"},
		"quota used up":         {judgeQuota(quota("2", "2")), Doubtful, "used up: pods 2 of 2"},
		"queue":                 {judgeQueue("q", true, nil), Good, "LocalQueue q"},
		"no queue":              {judgeQueue("q", true, missing), Bad, "the namespace does not have a LocalQueue q"},
		"no Kueue":              {judgeQueue("q", false, missing), Bad, "the cluster does not have Kueue"},
		"hidden queue":          {judgeQueue("q", true, forbidden("no")), Seen, "the account may not get localqueues"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.grade, test.got.Grade, test.got)
			require.Contains(t, test.got.Text, test.text)
			require.Equal(t, test.grade == Bad || test.grade == Doubtful, test.got.Advice != "", test.got)
		})
	}
	unknown := hidden("quota", "list resourcequotas", errors.New("the connection broke"))
	require.Equal(t, Finding{"quota", Doubtful, "cannot be seen: the connection broke", ""}, unknown)
}
