package evidence

import (
	"io/fs"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// roleOf is what a file is for (RO-07).
func roleOf(name string) Role {
	switch name {
	case WishLockFile, RunManifestFile, PlanFile:
		return RolePlan
	case RunLogFile:
		return RoleLog
	case TestsFile:
		return RoleTest
	case EnvSnapshotFile:
		return RoleSnapshot
	case PatchFile:
		return RoleArtifact
	}
	switch {
	case below(name, OutputsDir), below(name, RawDir) && strings.Contains(name, "/outputs/"): // those of a repetition
		return RoleArtifact
	case below(name, RawDir) && strings.HasSuffix(name, ".report"):
		return RoleTest
	case below(name, RawDir):
		return RoleLog
	}
	return RoleProof
}

// isArtifact says whether a file is one that node 4 hashes (RT-13): patch, logs, test
// outputs and what the gates made.
func isArtifact(name string) bool {
	switch name {
	case PatchFile, RunLogFile, TestsFile:
		return true
	}
	return below(name, RawDir) || below(name, OutputsDir)
}

// isEvidence says whether a file is one that the manifest lists.
func isEvidence(name string) bool {
	return name == WishLockFile || name == RunManifestFile || below(name, Dir) && name != ManifestFile
}

func kindProblem(mode fs.FileMode) string {
	return "is " + fsx.Kind(mode) + ", not a regular file"
}

// below reports whether a name is that of a file below a directory.
func below(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }
