//go:build !linux

package build

import "syscall"

// ownMounts does nothing where mmdebstrap does not run.
func ownMounts(*syscall.SysProcAttr) {}
