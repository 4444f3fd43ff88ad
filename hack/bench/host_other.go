//go:build !linux

package main

import (
	"context"
	"os"
	"time"
)

// init cannot be measured here, because the containers run in a virtual machine.
func (b bench) init(context.Context) ([]row, error) { return nil, nil }

// busy is not implemented on this system.
func busy() time.Duration { return 0 }

// peakMemory is not implemented: the unit differs between systems.
func peakMemory(*os.ProcessState) int64 { return 0 }
