package kubernetes

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestExamples reads the manifests of examples/kubernetes as the cluster does.
func TestExamples(t *testing.T) {
	read := func(name string, into any) {
		file, err := os.Open("../../../examples/kubernetes/" + name)
		require.NoError(t, err)
		defer file.Close()
		require.NoError(t, yaml.NewYAMLOrJSONDecoder(file, 4096).Decode(into))
	}
	var policy networkingv1.NetworkPolicy
	read("networkpolicy.yaml", &policy)
	require.Equal(t, *NetworkPolicy(""), policy)
	var namespace corev1.Namespace
	read("namespace.yaml", &namespace)
	require.Equal(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}, namespace.Labels)
}
