package gpu

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Device is one GPU.
type Device struct {
	// ID is what requests and locks call the GPU: its index, such as "0".
	ID string `json:"index"`
	// UUID is the driver's lasting name, such as "GPU-8f6…"; empty when unknown.
	UUID string `json:"uuid"`
	// Name is the product's; empty when unknown.
	Name string `json:"name"`
	// TotalBytes and UsedBytes are the GPU's memory; -1 when unknown.
	TotalBytes int64 `json:"memory_total_bytes"`
	UsedBytes  int64 `json:"memory_used_bytes"`
	// Problem is why the GPU cannot do its work, as far as nvidia-smi tells:
	// unreadable, broken memory, split into parts. Empty when there is none.
	Problem string `json:"problem"`
	// engine is what the engine calls the GPU; empty for the usual name.
	engine string
}

// Unknown is an amount of memory that nobody told.
const Unknown = -1

// A GPU that nobody of ours holds counts as used by somebody else when more than
// UsedPercent of its memory and more than UsedBytes are taken. A desktop, a
// monitoring daemon and the driver's own reserve stay below one of the two.
const (
	usedPercent = 10
	usedBytes   = 1 << 30
)

// usedByOthers says why the memory of a GPU that nobody of ours holds makes it
// unfit for an exclusive lease; empty when it does not.
func (d Device) usedByOthers() string {
	if d.TotalBytes <= 0 || d.UsedBytes <= usedBytes || d.UsedBytes*100/d.TotalBytes <= usedPercent {
		return ""
	}
	return fmt.Sprintf("%d MiB of its %d MiB are used by somebody else", d.UsedBytes>>20, d.TotalBytes>>20)
}

// The fields of a look at the GPUs. Drivers of before 2020 do not know the last.
const (
	baseFields = "index,uuid,name,memory.total,memory.used,ecc.errors.uncorrected.volatile.total"
	allFields  = baseFields + ",mig.mode.current"
)

// Probe asks nvidia-smi for the GPUs of this machine and how they are. A GPU that
// it cannot read is a Device with a Problem as long as it can name others; the
// error is an [SMIError], or [ErrNoTool]. It takes 10 seconds at most.
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
		// One GPU that is lost makes some drivers tell nothing of the others.
		return queryEach(ctx, fields, err)
	}
	return devices, err
}

// query is one call of nvidia-smi.
func query(ctx context.Context, fields string, more ...string) ([]Device, error) {
	out, err := smi(ctx, append([]string{"--query-gpu=" + fields, "--format=csv,noheader,nounits"}, more...)...)
	if err != nil {
		var said *SMIError
		// The exit code tells of any GPU; the rows tell of which.
		if devices, parseErr := parseDevices(out); errors.As(err, &said) && parseErr == nil {
			return devices, nil
		}
		return nil, err
	}
	return parseDevices(out)
}

// maxGPUs is more than any machine has.
const maxGPUs = 64

// queryEach asks for one GPU after the other, until there is no further one.
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

// readableOr is the devices if one of them could be read, else the error.
func readableOr(devices []Device, readable bool, first error) ([]Device, error) {
	if !readable {
		return nil, first
	}
	return devices, nil
}
