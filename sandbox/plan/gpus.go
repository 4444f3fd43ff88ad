package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// planGPUs reads the request for GPUs and chooses the engine's mechanism.
func planGPUs(req spec.Request, host spec.Host) (spec.GPURequest, error) {
	gpus, err := spec.ParseGPUs(req.GPUs)
	if err != nil {
		return spec.GPURequest{}, err
	}
	if !gpus.Any() {
		return spec.GPURequest{}, checkGPUDriver(req.GPUDriver)
	}
	if req.GPUWait < 0 {
		return spec.GPURequest{}, &policy.FieldError{Field: "gpu_wait", Value: req.GPUWait.String(), Rule: "must not be negative"}
	}
	if host.GPUs.Kind != "" {
		return planChosenGPUs(req, gpus, host.GPUs)
	}
	gpus.Share = req.GPUShare
	gpus.Driver, err = GPUDriver(req.GPUDriver, host)
	if errors.Is(err, errNoGPUs) {
		err = &policy.FieldError{Field: "gpus", Value: fmt.Sprintf("%q", req.GPUs), Rule: errNoGPUs.Error()}
	}
	if err != nil {
		return spec.GPURequest{}, err
	}
	return gpus, nil
}

// planChosenGPUs asks an engine that chooses the GPUs itself for a number of them.
func planChosenGPUs(req spec.Request, gpus spec.GPURequest, host spec.HostGPUs) (spec.GPURequest, error) {
	if err := checkGPUDriver(req.GPUDriver); err != nil {
		return spec.GPURequest{}, err
	}
	refuse := func(field, value, rule, hint string) (spec.GPURequest, error) {
		return spec.GPURequest{}, &policy.FieldError{Field: field, Value: value, Rule: rule, Hint: hint}
	}
	switch {
	case gpus.Count == 0:
		return refuse("gpus", fmt.Sprintf("%q", req.GPUs), "names devices, and the cluster chooses them itself", "ask for a number of them, such as --gpus 1")
	case req.GPUShare:
		return refuse("gpu_share", "", "is not possible on a cluster, which itself decides who has a GPU", "leave --gpu-share out")
	case req.GPUDriver != "" && req.GPUDriver != "auto":
		return refuse("gpu_driver", req.GPUDriver, "is not possible on a cluster, which has a driver of its own", "leave --gpu-driver out")
	}
	gpus.Driver, gpus.Kind = host.Driver, host.Kind
	return gpus, nil
}

func checkGPUDriver(driver string) error {
	if !slices.Contains([]string{"", "auto", spec.DriverNVIDIA, spec.DriverCDI}, driver) {
		return &policy.FieldError{Field: "gpu_driver", Value: fmt.Sprintf("%q", driver), Rule: "must be auto, nvidia or cdi"}
	}
	return nil
}

// GPUDriver chooses the mechanism by which the engine provides GPUs: the requested one, or
// for "auto" and "" one that the engine has. A requested mechanism that the engine does not
// have is refused. The error is a [*policy.FieldError], or says that the engine has none.
func GPUDriver(driver string, host spec.Host) (string, error) {
	if err := checkGPUDriver(driver); err != nil {
		return "", err
	}
	known, has := host.CPUs > 0, host.GPUs
	refuse := func(rule string) (string, error) {
		return "", &policy.FieldError{Field: "gpu_driver", Value: cmp.Or(driver, "auto"), Rule: rule}
	}
	switch driver {
	case spec.DriverNVIDIA:
		if known && !has.NVIDIA {
			return refuse("the engine has no runtime nvidia (install the NVIDIA container toolkit)")
		}
		return driver, nil
	case spec.DriverCDI:
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
		return spec.DriverCDI, nil
	case has.NVIDIA || !known:
		return spec.DriverNVIDIA, nil
	case has.CDI && has.CDIDevices == nil:
		return spec.DriverCDI, nil
	}
	return "", errNoGPUs
}

// errNoGPUs means that the engine cannot provide GPUs.
var errNoGPUs = errors.New("the engine has neither a runtime nvidia nor CDI devices of NVIDIA (install the NVIDIA container toolkit)")
