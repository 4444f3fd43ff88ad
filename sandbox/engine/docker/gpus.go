package docker

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"

	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// cdiAPI is the first version of the API that hands out CDI devices, and
	// cdiListAPI the first that lists them.
	cdiAPI     = "1.44"
	cdiListAPI = "1.50"
	// driverCDI is the driver of a request for CDI devices; any other is the engine's own.
	driverCDI = "cdi"
	// cdiNVIDIA begins the names of NVIDIA's CDI devices.
	cdiNVIDIA = "nvidia.com/gpu="
)

// hostGPUs finds in Docker's description of itself how it can hand out GPUs.
func hostGPUs(info system.Info, api string) spec.HostGPUs {
	var gpus spec.HostGPUs
	_, gpus.NVIDIA = info.Runtimes["nvidia"]
	api = cmp.Or(api, OldestAPI)
	// An engine with CDI switched off has no folders for it.
	gpus.CDI = versions.GreaterThanOrEqualTo(api, cdiAPI) && len(info.CDISpecDirs) > 0
	if gpus.CDI && versions.GreaterThanOrEqualTo(api, cdiListAPI) {
		gpus.CDIDevices = []string{}
		for _, d := range info.DiscoveredDevices {
			if d.Source == "cdi" && strings.HasPrefix(d.ID, cdiNVIDIA) {
				gpus.CDIDevices = append(gpus.CDIDevices, d.ID)
			}
		}
		slices.Sort(gpus.CDIDevices)
	}
	return gpus
}

// deviceRequests asks for exactly the leased devices. "All" is only left where
// nobody knows which there are.
func deviceRequests(gpus spec.GPURequest) ([]container.DeviceRequest, error) {
	request := container.DeviceRequest{Driver: gpus.Driver, DeviceIDs: gpus.IDs}
	switch {
	case !gpus.Any():
		return nil, nil
	case gpus.Count > 0:
		return nil, errors.New("a number of GPUs was asked for, and none are leased")
	case gpus.Driver == driverCDI && gpus.All:
		request.DeviceIDs = []string{cdiNVIDIA + "all"}
	case gpus.All:
		request.Count = -1
	}
	if gpus.Driver != driverCDI {
		// A CDI request has no capabilities: the device's own list says what
		// comes with it.
		request.Capabilities = [][]string{{"gpu"}}
	}
	return []container.DeviceRequest{request}, nil
}
