package hostpath

import (
	"path"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"
)

// The directories of the Filesystem Hierarchy Standard, and those of macOS.
var (
	// secretTrees hold what no program may see, at any depth.
	secretTrees = []string{"/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/private/etc"}
	// systemTrees hold what no run may empty, at any depth.
	systemTrees = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/Library", "/System"}
	// sharedDirs belong to everybody; a directory in them may be somebody's.
	sharedDirs = []string{
		"/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var",
		"/Applications", "/Users", "/Volumes", "/private", "/private/tmp", "/private/var",
	}
)

// showsTooMuch reports whether a cleaned, absolute path is a directory of the
// system that a program must not see.
func showsTooMuch(real string) bool {
	slashed := filepath.ToSlash(real)
	return below(slashed, secretTrees) || slices.Contains(sharedDirs, slashed)
}

// belongsToSystem reports whether a cleaned, absolute path is a directory that
// must never be emptied.
func belongsToSystem(real string) bool {
	slashed := filepath.ToSlash(real)
	// /var/lib, /var/log and their like hold what other programs keep.
	return showsTooMuch(real) || below(slashed, systemTrees) || path.Dir(slashed) == "/var"
}

// below reports whether a path is one of the trees or lies in one.
func below(slashed string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return fsx.Within(slashed, tree) })
}
