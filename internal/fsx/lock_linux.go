package fsx

import "golang.org/x/sys/unix"

// setByteLock takes a lock that belongs to an opening of a file, not to a process.
const setByteLock = unix.F_OFD_SETLK
