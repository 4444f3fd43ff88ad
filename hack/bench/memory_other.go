//go:build !linux

package main

import "os"

// peakMemory is not implemented: the unit differs between systems.
func peakMemory(*os.ProcessState) int64 { return 0 }
