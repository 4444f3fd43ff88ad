package sandbox

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
)

// TestGPUsOnTheWire looks at what an engine with the NVIDIA runtime is sent, and
// what is understood of its answers in each version of the API.
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
	engine := func(version string) Engine {
		api, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithVersion(version))
		require.NoError(t, err)
		return DockerEngine(api)
	}
	for version, want := range map[string]HostGPUs{
		"1.41": {NVIDIA: true}, "1.44": {NVIDIA: true, CDI: true},
		"1.51": {NVIDIA: true, CDI: true, CDIDevices: []string{"nvidia.com/gpu=0"}},
	} {
		facts, err := engine(version).Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, facts.Host.GPUs, version)
	}
	mounts := HostPaths{RoleInput: "/h/input", RoleFinal: "/h/final", RoleProgram: "/h/train.py"}
	_, _, err := engine("1.41").Create(t.Context(), leased(t, "2", "nvidia", "1", "3"), mounts, nil)
	require.NoError(t, err)
	require.Equal(t, []container.DeviceRequest{{Driver: "nvidia", DeviceIDs: []string{"1", "3"}, Capabilities: [][]string{{"gpu"}}}},
		created.HostConfig.DeviceRequests)
	require.Contains(t, created.Env, "CUDA_VISIBLE_DEVICES=0,1")
}
