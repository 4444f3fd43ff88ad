package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// wanted is a request in the form of a lease.
func wanted(g spec.GPURequest) gpu.Want {
	return gpu.Want{All: g.All, Count: g.Count, IDs: g.IDs, Share: g.Share}
}

// planGPUs reads the request for GPUs and chooses how the engine is asked.
func planGPUs(req Request) (GPURequest, error) {
	gpus, err := ParseGPUs(req.GPUs)
	if err != nil {
		return GPURequest{}, err
	}
	if !gpus.Any() {
		return GPURequest{}, checkGPUDriver(req.GPUDriver)
	}
	if req.GPUWait < 0 {
		return GPURequest{}, &policy.FieldError{Field: "gpu_wait", Value: req.GPUWait.String(), Rule: "must not be negative"}
	}
	gpus.Share = req.GPUShare
	gpus.Driver, err = planGPUDriver(req.GPUDriver, req.Host)
	if errors.Is(err, errNoGPUs) {
		err = &policy.FieldError{Field: "gpus", Value: fmt.Sprintf("%q", req.GPUs), Rule: errNoGPUs.Error()}
	}
	if err != nil {
		return GPURequest{}, err
	}
	return gpus, nil
}

// ParseGPUs reads [Request.GPUs]. Whether such GPUs are there is not asked. The
// error is a [*policy.FieldError].
func ParseGPUs(text string) (GPURequest, error) {
	var gpus GPURequest
	refused := &policy.FieldError{Field: "gpus", Value: fmt.Sprintf("%q", text),
		Rule: `must be "all", a number from 1 to 64, or different device IDs: "0,1", or "device=0" for one`}
	devices, named := strings.CutPrefix(text, "device=")
	switch count, err := strconv.Atoi(text); {
	case text == "":
		return gpus, nil
	case text == "all":
		gpus.All = true
	case err == nil && (count < 1 || count > 64):
		return GPURequest{}, refused
	case err == nil:
		gpus.Count = count
	case !named && !strings.ContainsAny(text, ",-:"):
		return GPURequest{}, refused
	default:
		for id := range strings.SplitSeq(devices, ",") {
			if !isGPU(id) || slices.Contains(gpus.IDs, id) {
				return GPURequest{}, refused
			}
			gpus.IDs = append(gpus.IDs, id)
		}
	}
	return gpus, nil
}

// isGPU accepts what may name a device: an index, a UUID ("GPU-…"), a part of a
// GPU ("MIG-…", "0:1"), which is refused later with a reason.
func isGPU(id string) bool { return len(id) <= 64 && gpuID.MatchString(id) }

var gpuID = regexp.MustCompile(`^([0-9]+(:[0-9]+)*|(?i:GPU|MIG)-[0-9A-Za-z:-]+)$`)

func checkGPUDriver(driver string) error {
	if !slices.Contains([]string{"", "auto", gpu.DriverNVIDIA, gpu.DriverCDI}, driver) {
		return &policy.FieldError{Field: "gpu_driver", Value: fmt.Sprintf("%q", driver), Rule: "must be auto, nvidia or cdi"}
	}
	return nil
}

// planGPUDriver chooses how the engine is asked. What was asked for and is not
// there is refused, never replaced.
func planGPUDriver(driver string, host Host) (string, error) {
	if err := checkGPUDriver(driver); err != nil {
		return "", err
	}
	known, has := host.CPUs > 0, host.GPUs
	refuse := func(rule string) (string, error) {
		return "", &policy.FieldError{Field: "gpu_driver", Value: orDefault(driver, "auto"), Rule: rule}
	}
	switch driver {
	case gpu.DriverNVIDIA:
		if known && !has.NVIDIA {
			return refuse("the engine has no runtime nvidia (install the NVIDIA container toolkit)")
		}
		return driver, nil
	case gpu.DriverCDI:
		if known && !has.CDI {
			return refuse("the engine cannot hand out CDI devices: that takes API 1.44 (Docker 25), with CDI switched on")
		}
		if known && has.CDIDevices != nil && len(has.CDIDevices) == 0 {
			return refuse("the engine has found no CDI device of NVIDIA (make their list with: nvidia-ctk cdi generate)")
		}
		return driver, nil
	}
	switch {
	case len(has.CDIDevices) > 0:
		return gpu.DriverCDI, nil
	case has.NVIDIA || !known:
		return gpu.DriverNVIDIA, nil
	case has.CDI && has.CDIDevices == nil:
		return gpu.DriverCDI, nil
	}
	return "", errNoGPUs
}

// errNoGPUs means that the engine has no way to hand out GPUs.
var errNoGPUs = errors.New("the engine has neither a runtime nvidia nor CDI devices of NVIDIA (install the NVIDIA container toolkit)")

// gpuEnv is the part of the environment that says which GPUs a program sees.
func gpuEnv(gpus GPURequest) map[string]string {
	env := map[string]string{}
	if gpus.Driver != gpu.DriverNVIDIA {
		// With the NVIDIA runtime as the engine's default, a variable of the
		// image alone would grant GPUs, also beside CDI devices.
		env["NVIDIA_VISIBLE_DEVICES"] = "void"
		env["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
	}
	if n := gpus.Visible(); n > 0 {
		// The container sees its own devices only, and numbers them from 0.
		var visible []string
		for i := range n {
			visible = append(visible, strconv.Itoa(i))
		}
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(visible, ",")
	}
	return env
}
