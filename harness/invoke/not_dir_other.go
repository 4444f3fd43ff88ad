//go:build !unix

package invoke

// isNotDir is for Unix; elsewhere such a name does not exist.
func isNotDir(error) bool { return false }
