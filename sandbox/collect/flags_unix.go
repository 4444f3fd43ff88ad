//go:build unix

package collect

import "syscall"

// OpenFlags keep an open from following a last link, waiting for the other end
// of a FIFO, or taking a terminal.
const OpenFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY
