package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Device is one GPU.
type Device struct {
	// ID is the GPU's index, such as "0". Requests and locks name the GPU by it.
	ID string `json:"index"`
	// UUID is the driver's permanent name, such as "GPU-8f6…"; empty if unknown.
	UUID string `json:"uuid"`
	// Name is that of the product; empty if unknown.
	Name string `json:"name"`
	// TotalBytes and UsedBytes are the GPU's memory; -1 ([Unknown]) if unknown.
	TotalBytes int64 `json:"memory_total_bytes"`
	UsedBytes  int64 `json:"memory_used_bytes"`
	// Problem is why the GPU cannot be lent, as far as nvidia-smi reports it:
	// unreadable, broken memory, split into parts. Empty if there is none.
	Problem string `json:"problem"`
	// engine is the engine's name of the GPU; empty for the usual one.
	engine string
}

// Unknown is an amount of memory that is not known.
const Unknown = -1

// A GPU without a holder counts as used by somebody else if more than usedPercent of its
// memory and more than usedBytes are in use. A desktop, a monitoring daemon and the
// driver's own reserve stay below one of the two.
const (
	usedPercent = 10
	usedBytes   = 1 << 30
)

// usedByOthers returns why the memory of a GPU without a holder makes it unfit for an
// exclusive lease; empty if it does not.
func (d Device) usedByOthers() string {
	if d.TotalBytes <= 0 || d.UsedBytes <= usedBytes || d.UsedBytes*100/d.TotalBytes <= usedPercent {
		return ""
	}
	return fmt.Sprintf("%d MiB of its %d MiB are used by somebody else", d.UsedBytes>>20, d.TotalBytes>>20)
}

// The fields of a query. Drivers from before 2020 do not know the last one.
const (
	baseFields = "index,uuid,name,memory.total,memory.used,ecc.errors.uncorrected.volatile.total"
	allFields  = baseFields + ",mig.mode.current"
)

// Probe asks nvidia-smi for the GPUs of this machine, their health and their memory. A GPU
// that it cannot read is a Device with a Problem, as long as it can read another. The error
// is a [*SMIError], or [ErrNoTool]. Probe takes 10 seconds at most.
func Probe(ctx context.Context) ([]Device, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, smiLimit, fmt.Errorf("no answer within %v", smiLimit))
	defer cancel()
	fields := allFields
	devices, err := query(ctx, fields)
	var said *SMIError
	if errors.As(err, &said) && strings.Contains(said.Text, "is not a valid field to query") {
		fields = baseFields
		devices, err = query(ctx, fields)
	}
	if errors.As(err, &said) && strings.HasPrefix(said.Text, handleText) {
		// With one lost GPU some drivers report none of the others.
		return queryEach(ctx, fields, err)
	}
	return devices, err
}

// query is one call of nvidia-smi.
func query(ctx context.Context, fields string, more ...string) ([]Device, error) {
	out, err := smi(ctx, append([]string{"--query-gpu=" + fields, "--format=csv,noheader,nounits"}, more...)...)
	if err != nil {
		var said *SMIError
		// The exit code is that of any GPU; the rows show which one.
		if devices, parseErr := parseDevices(out); errors.As(err, &said) && parseErr == nil {
			return devices, nil
		}
		return nil, err
	}
	return parseDevices(out)
}

// maxGPUs is more than any machine has.
const maxGPUs = 64

// queryEach asks for one GPU after the other, until an index does not exist.
func queryEach(ctx context.Context, fields string, first error) ([]Device, error) {
	var devices []Device
	readable := false
	for i := range maxGPUs {
		id := strconv.Itoa(i)
		found, err := query(ctx, fields, "--id="+id)
		var said *SMIError
		switch {
		case err == nil:
			devices, readable = append(devices, found...), true
		case errors.As(err, &said) && strings.HasPrefix(said.Text, handleText):
			devices = append(devices, Device{ID: id, TotalBytes: Unknown, UsedBytes: Unknown, Problem: said.Text})
		default: // no such GPU, or no time left
			return readableOr(devices, readable, first)
		}
	}
	return readableOr(devices, readable, first)
}

// readableOr returns the devices if one of them could be read, else the error.
func readableOr(devices []Device, readable bool, first error) ([]Device, error) {
	if !readable {
		return nil, first
	}
	return devices, nil
}

// Info says whether GPUs are there (EX-003). The wire form always has all three keys, and a
// list.
type Info struct {
	// CUDAAvailable says that nvidia-smi names at least one GPU.
	CUDAAvailable bool `json:"cuda_available"`
	// GPUCount is the number of names.
	GPUCount int `json:"gpu_count"`
	// GPUNames are the names of the products, in the order of the indexes; never nil.
	GPUNames []string `json:"gpu_names"`
}

// DetectGPUInfo asks nvidia-smi for the names of the GPUs of this machine (EX-003). It takes
// 10 seconds at most and never fails: after any error there is no GPU. An error message of
// the driver is not taken for a name.
func DetectGPUInfo(ctx context.Context) Info {
	out, err := smi(ctx, "--query-gpu=name", "--format=csv,noheader")
	if err != nil {
		return Info{GPUNames: []string{}}
	}
	names := parseNames(out)
	return Info{CUDAAvailable: len(names) > 0, GPUCount: len(names), GPUNames: names}
}

// Lost returns which of the GPUs of a run are lost at its end, by the result of a [Probe];
// empty if none is. A lost GPU may change the indexes of the others.
func Lost(had, devices []Device, err error) string {
	if err != nil {
		return err.Error()
	}
	var lost []string
	for _, h := range had {
		i := slices.IndexFunc(devices, func(d Device) bool { return d.UUID != "" && d.UUID == h.UUID })
		if i < 0 {
			// The UUID of a GPU that cannot be read any more is unknown.
			i = slices.IndexFunc(devices, func(d Device) bool { return d.ID == h.ID && (d.UUID == "" || h.UUID == "") })
		}
		switch {
		case i < 0:
			lost = append(lost, fmt.Sprintf("GPU %s: nvidia-smi does not list it any more", h.ID))
		case devices[i].Problem != "":
			lost = append(lost, fmt.Sprintf("GPU %s: %s", h.ID, devices[i].Problem))
		}
	}
	return strings.Join(lost, "; ")
}
