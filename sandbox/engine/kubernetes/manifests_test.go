package kubernetes

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests are the objects of examples/kubernetes. A field that their kind does not have is an error.
func manifests(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	files, err := filepath.Glob("../../../examples/kubernetes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			object, _, err := strict.Decode(part, nil, nil)
			require.NoError(t, err, name)
			objects = append(objects, object)
		}
	}
	return objects
}

// TestManifests: the controller of the examples has the account of the Role, and a pod that the
// restricted profile of its namespace accepts. The policy of the programs leaves its network open.
func TestManifests(t *testing.T) {
	kinds := map[string]runtime.Object{}
	for _, object := range manifests(t) {
		kinds[object.GetObjectKind().GroupVersionKind().Kind] = object
	}
	binding, ok := kinds["RoleBinding"].(*rbacv1.RoleBinding)
	require.True(t, ok)
	account, ok := kinds["ServiceAccount"].(*corev1.ServiceAccount)
	require.True(t, ok)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name}}, binding.Subjects)
	claim, ok := kinds["PersistentVolumeClaim"].(*corev1.PersistentVolumeClaim)
	require.True(t, ok)
	job, ok := kinds["Job"].(*batchv1.Job)
	require.True(t, ok)
	pod := job.Spec.Template.Spec
	require.Equal(t, account.Name, pod.ServiceAccountName)
	require.Equal(t, claim.Name, pod.Volumes[0].PersistentVolumeClaim.ClaimName)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	}
	policy, ok := kinds["NetworkPolicy"].(*networkingv1.NetworkPolicy)
	require.True(t, ok)
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	require.NoError(t, err)
	require.False(t, selector.Matches(labels.Set(job.Spec.Template.Labels)), "the controller needs the API server")
	role, ok := kinds["Role"].(*rbacv1.Role)
	require.True(t, ok)
	require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, binding.RoleRef)
}
