package sandbox

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
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
	require.Equal(t, HostPaths{RoleInput: "/v/_data/input", RoleFinal: "/v/_data/out/final", RoleProgram: "/v/_data/program/train.py"},
		depotPaths("/v/_data", spec))
	names := []string{depotName("x"), courierName("x"), watcherName("x")}
	require.False(t, slices.ContainsFunc(names[1:], func(name string) bool { return strings.HasPrefix(name, Job{}.ContainerName()) }),
		"no run can have the name of a helper")
}

// TestFetchTellsALostEngine: whoever fetches waits for an engine that comes back.
func TestFetchTellsALostEngine(t *testing.T) {
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+filepath.Join(t.TempDir(), "nobody")), client.WithVersion("1.41"))
	require.NoError(t, err)
	_, err = DockerEngine(api).FetchDepot(t.Context(), "r1", "final")
	require.True(t, isLoss(err), "%v", err)
}

// TestMakeDepotLeavesNoCourierInAnothersVolume: the volume may appear between the
// look for it and its making.
func TestMakeDepotLeavesNoCourierInAnothersVolume(t *testing.T) {
	looks, removed := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			removed = path.Base(r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"Id": "0123"}`)
		case looks == 0:
			looks++
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message": "no such volume"}`)
		default:
			_, _ = io.WriteString(w, `{"Name": "evalbox-r1", "Driver": "local", "Mountpoint": "/v", "Labels": {}}`)
		}
	}))
	defer server.Close()
	api, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithVersion("1.41"))
	require.NoError(t, err)
	req := scriptRequest()
	req.ID, req.Transfer = "r1", TransferCopy
	spec, err := Plan(req, policy.Policy{})
	require.NoError(t, err)
	spec.Class.Image.ID = "sha256:0123"
	_, err = DockerEngine(api).MakeDepot(t.Context(), spec, map[string]string{LabelManaged: "true"})
	require.ErrorIs(t, err, ErrNameTaken)
	require.Equal(t, "evalbox_courier-r1", removed)
}
