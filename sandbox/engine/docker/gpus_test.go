package docker

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestGPUsOnTheWire checks the requests to an engine with the NVIDIA runtime, and how its
// answers are read in each API version.
func TestGPUsOnTheWire(t *testing.T) {
	var created createBody
	info := `{"Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}}, "CDISpecDirs": ["/etc/cdi"],
		"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/info"):
			_, _ = w.Write([]byte(info))
		case strings.HasSuffix(r.URL.Path, "/containers/create"):
			if err := json.NewDecoder(r.Body).Decode(&created); err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = w.Write([]byte(`{"Id": "c1"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	at := func(version string) engine.Engine {
		api, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithVersion(version))
		require.NoError(t, err)
		return New(api)
	}
	for version, want := range map[string]spec.HostGPUs{
		"1.41": {NVIDIA: true}, "1.44": {NVIDIA: true, CDI: true},
		"1.51": {NVIDIA: true, CDI: true, CDIDevices: []string{"nvidia.com/gpu=0"}},
	} {
		facts, err := at(version).Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, facts.Host.GPUs, version)
	}
	class := scriptClass()
	class.GPUs = spec.GPURequest{Driver: "nvidia", IDs: []string{"1", "3"}}
	_, err := at("1.41").Prepare(t.Context(), class, engine.Meta{Name: "x", Sources: sources(class)})
	require.Error(t, err, "the server does not support attach")
	require.Equal(t, []container.DeviceRequest{{Driver: "nvidia", DeviceIDs: []string{"1", "3"}, Capabilities: [][]string{{"gpu"}}}},
		created.HostConfig.DeviceRequests)
}

func TestDeviceRequests(t *testing.T) {
	capabilities := [][]string{{"gpu"}}
	for name, test := range map[string]struct {
		gpus spec.GPURequest
		want []container.DeviceRequest
	}{
		"none": {},
		"two by the runtime": {spec.GPURequest{Driver: "nvidia", IDs: []string{"0", "3"}},
			[]container.DeviceRequest{{Driver: "nvidia", DeviceIDs: []string{"0", "3"}, Capabilities: capabilities}}},
		"one with CDI": {spec.GPURequest{Driver: "cdi", IDs: []string{"nvidia.com/gpu=5"}},
			[]container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=5"}}}},
		"all of an unknown number": {spec.GPURequest{Driver: "nvidia", All: true},
			[]container.DeviceRequest{{Driver: "nvidia", Count: -1, Capabilities: capabilities}}},
		"the same with CDI": {spec.GPURequest{Driver: "cdi", All: true},
			[]container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=all"}}}},
	} {
		got, err := deviceRequests(test.gpus)
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
	}
}
