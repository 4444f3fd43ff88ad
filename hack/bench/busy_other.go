//go:build !linux

package main

import "time"

// busy is not implemented on this system.
func busy() time.Duration { return 0 }
