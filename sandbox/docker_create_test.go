package sandbox

import (
	"encoding/json"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// createBody is the body of the create call as the engine receives it.
type createBody struct {
	*container.Config
	HostConfig *container.HostConfig
}

func createBodyOf(t *testing.T, req Request) createBody {
	t.Helper()
	spec, err := Plan(req, policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	spec.Class.Image.ID = "sha256:0123"
	config, host, err := createRequest(spec,
		HostPaths{RoleInput: "/h/input", RoleFinal: "/h/final", RoleProgram: "/h/train.py"},
		map[string]string{LabelManaged: "true"})
	require.NoError(t, err)
	return createBody{config, host}
}

// TestCreateRequestGolden asserts every field of the create call. The seccomp
// profile has its own test and is shortened here.
func TestCreateRequestGolden(t *testing.T) {
	for name, req := range map[string]Request{"create-script.json": scriptRequest(), "create-full.json": fullRequest()} {
		body := createBodyOf(t, req)
		require.Equal(t, "seccomp="+seccompJSON, body.HostConfig.SecurityOpt[0])
		body.HostConfig.SecurityOpt[0] = "seccomp=(" + seccompName + ")"
		requireGolden(t, name, body)
	}
}

// TestCreateRequestOpensNothing walks the marshalled body: what would weaken the
// sandbox must not be in it, however it got there.
func TestCreateRequestOpensNothing(t *testing.T) {
	text, err := json.Marshal(createBodyOf(t, scriptRequest()))
	require.NoError(t, err)
	var body map[string]any
	require.NoError(t, json.Unmarshal(text, &body))
	host, ok := body["HostConfig"].(map[string]any)
	require.True(t, ok)
	for _, field := range []string{"Privileged", "PublishAllPorts", "AutoRemove"} {
		require.Equal(t, false, host[field], field)
	}
	for _, field := range []string{"Binds", "CapAdd", "Devices", "DeviceRequests", "GroupAdd", "VolumesFrom",
		"PortBindings", "Links", "MaskedPaths", "ReadonlyPaths", "DeviceCgroupRules", "Sysctls", "ExtraHosts"} {
		require.Empty(t, host[field], field)
	}
	for _, field := range []string{"PidMode", "UTSMode", "UsernsMode", "CgroupParent", "VolumeDriver"} {
		require.Empty(t, host[field], field)
	}
	require.Equal(t, host["Memory"], host["MemorySwap"], "no swap")
	require.Equal(t, "none", host["NetworkMode"])
	require.Equal(t, "private", host["IpcMode"])
	require.Equal(t, "private", host["CgroupnsMode"])
	require.NotContains(t, string(text), "docker.sock")
	require.Equal(t, false, body["Tty"])
	require.Equal(t, false, body["OpenStdin"])
	require.Equal(t, "1000:1000", body["User"])
}

func TestCreateRequestRefusesWhatIsNotResolved(t *testing.T) {
	spec, err := Plan(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	_, _, err = createRequest(spec, HostPaths{}, nil)
	require.ErrorContains(t, err, "not resolved to an ID")
	spec.Class.Image.ID = "sha256:0123"
	_, _, err = createRequest(spec, HostPaths{RoleInput: "/i"}, nil)
	require.ErrorContains(t, err, "no host path for mount /work/final")
}

func TestJobEnvironmentWins(t *testing.T) {
	body := createBodyOf(t, fullRequest())
	require.Contains(t, body.Env, "OMP_NUM_THREADS=1")
	require.NotContains(t, body.Env, "OMP_NUM_THREADS=2")
	require.Contains(t, body.Env, "SEED=7")
}
