package docker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// copiedRun is a run whose files are copied.
func copiedRun(class spec.Class) spec.Spec {
	class.Transfer = spec.TransferCopy
	return spec.Spec{Class: class, Job: spec.Job{RunID: "r1"}}
}

// TestHelperRequestsGolden asserts every field of the create calls of the helpers.
func TestHelperRequestsGolden(t *testing.T) {
	run, labels := copiedRun(fullClass()), map[string]string{spec.LabelManaged: "true"}
	for name, request := range map[string]func() (*container.Config, *container.HostConfig, error){
		"create-helper.json":  func() (*container.Config, *container.HostConfig, error) { return helperRequest(run, labels) },
		"create-monitor.json": func() (*container.Config, *container.HostConfig, error) { return monitorRequest(run, labels) },
		"create-init.json": func() (*container.Config, *container.HostConfig, error) {
			return initHelper(run.Class, initSet{volume: "evalbox-init-0123"}, initLabels())
		},
	} {
		config, host, err := request()
		require.NoError(t, err)
		if host.SecurityOpt[0] == "seccomp="+spec.SeccompMonitor {
			host.SecurityOpt[0] = "seccomp=(" + spec.DefaultSeccomp().Name + " without CAP_DAC_READ_SEARCH)"
		} else {
			require.Equal(t, "seccomp="+spec.SeccompProfile, host.SecurityOpt[0])
			host.SecurityOpt[0] = "seccomp=(" + spec.DefaultSeccomp().Name + ")"
		}
		treetest.GoldenJSON(t, "testdata/"+name, createBody{config, host})
	}
	require.Equal(t, map[string]string{spec.LabelManaged: "true"}, labels, "the run's own labels do not change")
}

// TestFetchTellsALostEngine: the caller of a fetch waits for a lost engine to return, so
// a fetch must report the loss as such.
func TestFetchTellsALostEngine(t *testing.T) {
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+filepath.Join(t.TempDir(), "nobody")), client.WithVersion("1.41"))
	require.NoError(t, err)
	_, err = newAdapter(api, nil).FetchVolume(t.Context(), "r1", "final")
	require.True(t, isLoss(err), "%v", err)
}

// TestCreateVolumeLeavesNoHelperInAnothersVolume: another run's volume may appear between
// the check for the volume and its creation.
func TestCreateVolumeLeavesNoHelperInAnothersVolume(t *testing.T) {
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
	_, err = newAdapter(api, nil).CreateVolume(t.Context(), copiedRun(scriptClass()), map[string]string{spec.LabelManaged: "true"})
	require.ErrorIs(t, err, engine.ErrNameTaken)
	require.Equal(t, "evalbox_courier-r1", removed)
}
