package build

import "syscall"

// ownMounts gives a process a mount namespace of its own.
func ownMounts(attr *syscall.SysProcAttr) { attr.Unshareflags |= syscall.CLONE_NEWNS }
