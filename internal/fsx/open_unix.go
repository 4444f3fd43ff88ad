//go:build unix

package fsx

import "syscall"

// nonBlocking lets the opening of a pipe return at once; a regular file is read as ever.
const nonBlocking = syscall.O_NONBLOCK
