//go:build !unix

package collect

// OpenFlags are none here.
const OpenFlags = 0
