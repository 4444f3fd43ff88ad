//go:build !unix

package hostfile

// nonBlocking is not known here.
const nonBlocking = 0
