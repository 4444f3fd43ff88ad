//go:build !unix

package collect

const openFlags = 0
