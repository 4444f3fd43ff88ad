//go:build unix

package collect

import "syscall"

// openFlags keep an open from following a last link, waiting for the other end
// of a FIFO, or taking a terminal.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY
