// Package disk bounds what an untrusted program can hold in directories of the host, by a file
// system of their own in a file: the kernel refuses the rest. It knows neither runs nor containers,
// and needs root on Linux.
package disk

import (
	"errors"
	"fmt"
)

// Limit bounds the file system of an [Image].
type Limit struct {
	// Bytes counts the blocks of files and directories, Entries counts files and directories.
	Bytes, Entries int64
}

// Usage is what is there at the moment. Files that are deleted and still open count.
type Usage struct {
	// Bytes and Entries are in use.
	Bytes, Entries int64
	// Full says that the limit is reached: hardly anything more can be written.
	Full bool
}

const (
	// leastLeft and mostLeft bound how much may be left of a limit that counts as reached, in bytes.
	// A file system allocates many blocks at once (ext4 up to 2 MiB, for a large write), may
	// refuse all of them if one is missing, and keeps some for itself.
	leastLeft, mostLeft = 64 << 10, 2 << 20
	// fullEntries is the same for entries.
	fullEntries = 0
)

// full reports whether a limit is reached.
func full(freeBytes, limitBytes, freeEntries int64) bool {
	left := min(limitBytes/8, max(leastLeft, limitBytes/16), mostLeft)
	return freeBytes < left || freeEntries <= fullEntries
}

// ErrImpossible means that this process can make no such file system.
var ErrImpossible = errors.New("is not possible here")

// impossible is an [ErrImpossible] with its reason.
func impossible(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrImpossible}, args...)...)
}
