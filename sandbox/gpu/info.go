package gpu

import "context"

// Info is what programs ask about GPUs first (EX-003). The wire form always has
// all three keys, and a list.
type Info struct {
	// CUDAAvailable says that nvidia-smi names at least one GPU.
	CUDAAvailable bool `json:"cuda_available"`
	// GPUCount is the number of names.
	GPUCount int `json:"gpu_count"`
	// GPUNames are the names of the products, in the order of the indexes;
	// never nil.
	GPUNames []string `json:"gpu_names"`
}

// DetectGPUInfo asks nvidia-smi for the names of the GPUs of this machine. It
// takes 10 seconds at most and never fails: whatever goes wrong, there is no GPU
// (EX-003). A text of the driver about a failure is not a name.
func DetectGPUInfo(ctx context.Context) Info {
	out, err := smi(ctx, "--query-gpu=name", "--format=csv,noheader")
	if err != nil {
		return Info{GPUNames: []string{}}
	}
	names := parseNames(out)
	return Info{CUDAAvailable: len(names) > 0, GPUCount: len(names), GPUNames: names}
}
