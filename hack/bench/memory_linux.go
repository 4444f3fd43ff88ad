package main

import (
	"os"
	"syscall"
)

// peakMemory returns the peak resident memory of a process that has ended. The kernel
// includes the time before exec, when the process was a copy of this one: the figure
// can be too high, but not too low.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return int64(usage.Maxrss) << 10 //nolint:unconvert // int32 on some platforms
}
