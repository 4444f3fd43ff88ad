//go:build unix && !linux

package invoke

import "syscall"

// toolAttributes put the tool into a process group of its own.
func toolAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// groupLives reports whether the group has members.
func groupLives(group int) bool { return signalGroup(group, 0) }
