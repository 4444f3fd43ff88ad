//go:build !linux

package fsx

// setByteLock takes a lock that belongs to an opening of a file, not to a process: F_OFD_SETLK
// of macOS.
const setByteLock = 90
