package hostpath

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The folders of the Filesystem Hierarchy Standard, and those of macOS.
var (
	// secretTrees hold what no program may see, at any depth.
	secretTrees = []string{"/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/private/etc"}
	// systemTrees hold what no run may empty, at any depth.
	systemTrees = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/Library", "/System"}
	// sharedFolders belong to everybody; a folder in them may be somebody's.
	sharedFolders = []string{
		"/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var",
		"/Applications", "/Users", "/Volumes", "/private", "/private/tmp", "/private/var",
	}
)

// showsTooMuch reports whether a cleaned, absolute path is a folder of the system
// that a program must not be shown.
func showsTooMuch(real string) bool {
	slashed := filepath.ToSlash(real)
	return below(slashed, secretTrees) || slices.Contains(sharedFolders, slashed)
}

// belongsToSystem reports whether a cleaned, absolute path is a folder that it
// would be a catastrophe to empty.
func belongsToSystem(real string) bool {
	slashed := filepath.ToSlash(real)
	// /var/lib, /var/log and their like hold what other programs keep.
	return showsTooMuch(real) || below(slashed, systemTrees) || path.Dir(slashed) == "/var"
}

func below(slashed string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return slashed == tree || strings.HasPrefix(slashed, tree+"/")
	})
}
