//go:build cluster

package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestScriptKubernetes runs the scripts below kubernetes/ with the setting engine: kubernetes, on a
// cluster.
func TestScriptKubernetes(t *testing.T) {
	image, programs := os.Getenv("EVALBOX_KUBERNETES_IMAGE"), os.Getenv("EVALBOX_KUBERNETES_PROGRAMS")
	require.NotEmpty(t, image, "the image of the programs: make test-kubernetes sets EVALBOX_KUBERNETES_IMAGE")
	require.NotEmpty(t, programs, "the image of evalbox: make test-kubernetes sets EVALBOX_KUBERNETES_PROGRAMS")
	params := scriptsOf("testdata/script/kubernetes")
	params.Setup = func(env *testscript.Env) error {
		// Many scripts share one node.
		for name, text := range map[string]string{
			"SANDBOX_ENGINE": "kubernetes", "SANDBOX_IMAGE": image, "SANDBOX_KUBERNETES_PROGRAMS": programs,
			"SANDBOX_KUBERNETES_CPU_SHARE": "0.05", "SANDBOX_MEMORY": "256m", "KUBECONFIG": os.Getenv("KUBECONFIG"), "IMAGE": image,
		} {
			env.Setenv(name, text)
		}
		return setupScript(env)
	}
	testscript.Run(t, params)
}
