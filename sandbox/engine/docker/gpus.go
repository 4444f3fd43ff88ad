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
	// cdiAPI is the first API version that provides CDI devices, cdiListAPI the first
	// that lists them.
	cdiAPI     = "1.44"
	cdiListAPI = "1.50"
	// driverCDI is the driver of a request for CDI devices; other drivers are the
	// engine's own.
	driverCDI = "cdi"
	// cdiNVIDIA is the prefix of the names of NVIDIA's CDI devices.
	cdiNVIDIA = "nvidia.com/gpu="
)

// hostGPUs derives from Docker's system info how the engine can provide GPUs.
func hostGPUs(info system.Info, api string) spec.HostGPUs {
	var gpus spec.HostGPUs
	_, gpus.NVIDIA = info.Runtimes["nvidia"]
	api = cmp.Or(api, OldestAPI)
	// An engine with CDI disabled has no directories for it.
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

// deviceRequests requests exactly the leased devices. "All" remains only if the devices
// are unknown.
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
		// A CDI request has no capabilities: the device's specification lists what it
		// needs.
		request.Capabilities = [][]string{{"gpu"}}
	}
	return []container.DeviceRequest{request}, nil
}
