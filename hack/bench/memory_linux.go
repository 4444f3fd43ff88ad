package main

import (
	"os"
	"syscall"
)

// peakMemory is the largest resident memory of a process that has ended. The
// kernel also counts the moment before the process became its program, when it
// was a copy of this one: the figure can be too high, not too low.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return int64(usage.Maxrss) << 10 //nolint:unconvert // int32 on some platforms
}
