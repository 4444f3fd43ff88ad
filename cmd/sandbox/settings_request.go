package main

import "github.com/evalbox/evalbox/sandbox"

// requestKeys are the settings that every command has as flags which runs
// programs.
var requestKeys = []string{
	"image", "allow_unlocked", "timeout", "grace", "memory", "cpus",
	"gpus", "gpu_driver", "gpu_share", "gpu_wait", "network", "user", "runtime", "transfer",
	"pids_limit", "shm_size", "tmp_size", "scratch_size", "disk", "output_limit",
}

// request is what the settings say of every run.
func (s settings) request() sandbox.Request {
	return sandbox.Request{
		Image: s.Image, AllowUnlocked: s.AllowUnlocked, Runtime: s.Runtime, User: s.User, Network: s.Network, Transfer: s.Transfer,
		GPUs: s.GPUs, GPUDriver: s.GPUDriver, GPUShare: s.GPUShare, GPUWait: s.GPUWait, Limits: s.Limits,
	}
}
