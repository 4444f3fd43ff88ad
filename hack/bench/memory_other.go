//go:build !linux

package main

import "os"

// peakMemory is unknown: the unit differs from system to system.
func peakMemory(*os.ProcessState) int64 { return 0 }
