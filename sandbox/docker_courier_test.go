package sandbox

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// TestHelperRequestsGolden asserts every field of the create calls of the helpers
// of a run whose files are copied.
func TestHelperRequestsGolden(t *testing.T) {
	req := fullRequest()
	req.Transfer = TransferCopy
	spec, err := Plan(req, policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	spec.Class.Image.ID = "sha256:0123"
	labels := map[string]string{LabelManaged: "true"}
	strict, err := withoutReadEverything(seccompJSON)
	require.NoError(t, err)
	for name, request := range map[string]func(Spec, map[string]string) (*container.Config, *container.HostConfig, error){
		"create-courier.json": courierRequest, "create-watcher.json": watcherRequest,
	} {
		config, host, err := request(spec, labels)
		require.NoError(t, err)
		if host.SecurityOpt[0] == "seccomp="+strict {
			host.SecurityOpt[0] = "seccomp=(" + seccompName + " without " + readEverything + ")"
		} else {
			require.Equal(t, "seccomp="+seccompJSON, host.SecurityOpt[0])
			host.SecurityOpt[0] = "seccomp=(" + seccompName + ")"
		}
		requireGolden(t, name, createBody{config, host})
	}
	require.Equal(t, map[string]string{LabelManaged: "true"}, labels, "the run's own labels stay as they are")
}

// TestCopyHasTheSameShape: but for the propagation, which the engine insists on for
// its own folder, a run whose files are copied is the same container.
func TestCopyHasTheSameShape(t *testing.T) {
	bind := createBodyOf(t, scriptRequest())
	req := scriptRequest()
	req.Transfer = TransferCopy
	copied := createBodyOf(t, req)
	for i := range copied.HostConfig.Mounts {
		require.Equal(t, mount.PropagationRSlave, copied.HostConfig.Mounts[i].BindOptions.Propagation)
		copied.HostConfig.Mounts[i].BindOptions.Propagation = mount.PropagationRPrivate
	}
	require.Equal(t, bind, copied)
}

// TestWatchersProfileOpensNoHandles: with CAP_DAC_READ_SEARCH the usual profile
// permits a call that opens files of the host.
func TestWatchersProfileOpensNoHandles(t *testing.T) {
	text, err := withoutReadEverything(seccompJSON)
	require.NoError(t, err)
	require.Contains(t, seccompJSON, `"open_by_handle_at"`)
	require.NotContains(t, text, "open_by_handle_at")
	var all, rest map[string]any
	require.NoError(t, json.Unmarshal([]byte(seccompJSON), &all))
	require.NoError(t, json.Unmarshal([]byte(text), &rest))
	require.Len(t, rest["syscalls"], len(all["syscalls"].([]any))-1)
	delete(all, "syscalls")
	delete(rest, "syscalls")
	require.Equal(t, all, rest)
	_, err = withoutReadEverything("{")
	require.Error(t, err)
}

func TestDepotPaths(t *testing.T) {
	req := scriptRequest()
	spec, err := Plan(req, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, HostPaths{RoleInput: "/v/_data/input", RoleFinal: "/v/_data/final", RoleProgram: "/v/_data/program/train.py"},
		depotPaths("/v/_data", spec))
	names := []string{depotName("x"), courierName("x"), watcherName("x")}
	require.False(t, slices.ContainsFunc(names[1:], func(name string) bool { return strings.HasPrefix(name, Job{}.ContainerName()) }),
		"no run can have the name of a helper")
}
