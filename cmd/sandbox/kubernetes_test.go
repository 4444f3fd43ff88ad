package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// clusterVariables say which cluster is meant.
var clusterVariables = []string{
	"KUBECONFIG", "SANDBOX_ENGINE", "SANDBOX_IMAGE", "SANDBOX_CPUS", "SANDBOX_MEMORY",
	"SANDBOX_KUBERNETES_PROGRAMS",
}

// TestScriptKubernetes runs the scripts below kubernetes/ with the setting engine: kubernetes. They
// need a cluster; without one only a Docker engine is tested.
func TestScriptKubernetes(t *testing.T) {
	image, programs := os.Getenv("EVALBOX_KUBERNETES_IMAGE"), os.Getenv("EVALBOX_KUBERNETES_PROGRAMS")
	if os.Getenv("EVALBOX_ENGINE") != "kubernetes" && image == "" {
		t.SkipNow()
	}
	require.NotEmpty(t, image, "the image of the programs: make test ENGINES=kubernetes sets EVALBOX_KUBERNETES_IMAGE")
	require.NotEmpty(t, programs, "the image of evalbox: make test ENGINES=kubernetes sets EVALBOX_KUBERNETES_PROGRAMS")
	params := scriptsOf("testdata/script/kubernetes")
	params.Setup = func(env *testscript.Env) error {
		// Many scripts share one node.
		for name, text := range map[string]string{
			"SANDBOX_ENGINE": "kubernetes", "SANDBOX_IMAGE": image, "SANDBOX_KUBERNETES_PROGRAMS": programs,
			"SANDBOX_CPUS": "0.3", "SANDBOX_MEMORY": "256m", "KUBECONFIG": os.Getenv("KUBECONFIG"), "IMAGE": image,
		} {
			env.Setenv(name, text)
		}
		return setupScript(env)
	}
	testscript.Run(t, params)
}
