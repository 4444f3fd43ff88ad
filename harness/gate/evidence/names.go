// Package evidence holds the files between the nodes of a gate: their names and types, how
// they are written, read and hashed.
//
// A gate directory is self-contained: its owner can judge it again on another machine. All
// documents are JSON with sorted keys and no floating-point numbers, so that equal facts are
// equal bytes (RO-08). A reader trusts none of them: sizes are bounded, unknown keys are
// ignored, and every file is compared with its hash.
package evidence

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Files of a gate directory, relative to it (RT-04, RT-10, RT-15, RT-16).
const (
	WishLockFile    = "wish.lock.json"        // the sealed wish that the gate carried out
	RunManifestFile = "RunManifest.json"      // the decision of node 1, and all that node 2 sees
	VerdictFile     = "ExecutionVerdict.json" // the judgement of node 5
	GatesFile       = "GATES.json"            // the input of a replay
	AttestationFile = "attestation.dsse.json" // the signed statement about manifest and verdict
	IgnoreFile      = ".gitignore"            // keeps the directory out of a repository, with IgnoreText

	Dir               = "evidence"                  // holds all files below
	PlanFile          = Dir + "/plan.json"          // the plan in the form of RO-07
	RawDir            = Dir + "/raw"                // the unchanged output of node 2
	OutputsDir        = Dir + "/outputs"            // the declared artifacts of the gates
	RunLogFile        = Dir + "/run_log.txt"        // the normalized log of all gates
	TestsFile         = Dir + "/tests.json"         // commands and test cases
	ObservationsFile  = Dir + "/observations.json"  // forbidden attempts of the gates
	NormalizationFile = Dir + "/normalization.json" // rules, and text that still looks unstable
	BehaviorHashFile  = Dir + "/behavior_hash.txt"  // of the normalized log (RO-12 without the seed)
	EnvSnapshotFile   = Dir + "/env_snapshot.json"  // the environment of the gates (RO-07)
	WorkspaceFile     = Dir + "/workspace.json"     // the files that the gates got
	FindingsFile      = Dir + "/findings.json"      // the findings of nodes 1 to 4
	ChangesFile       = Dir + "/changes.json"       // with a baseline only (RO-04), as the patch
	PatchFile         = Dir + "/patch.diff"
	ArtifactsFile     = Dir + "/artifacts.json"    // the hashes of node 4
	ManifestFile      = Dir + "/evidence.manifest" // the hashes of all files of nodes 1 to 4
)

// IgnoreText is the content of [IgnoreFile].
const IgnoreText = "# Created by sandbox gate.\n*\n"

// Required are the files without which no gate passes (RT-04).
var Required = []string{PlanFile, RunLogFile, TestsFile, ArtifactsFile}

// Boundary is the path of the workspace in the containers of the gates.
const Boundary = "/repo"

// BaselinePass is the name of the pass over the gates on the baseline. The pass over the
// workspace has the empty name.
const BaselinePass = "baseline"

// RepeatPass is the name of the k-th pass over the gates; the second is the first repeat.
func RepeatPass(k int) string { return "repeat-" + strconv.Itoa(k) }

// Passes lists the passes that a manifest asks for, in the order in which they run.
func Passes(m RunManifest) []string {
	var passes []string
	if m.Baseline != "" {
		passes = append(passes, BaselinePass)
	}
	passes = append(passes, "")
	for k := 2; k <= m.Mode.Repeats; k++ {
		passes = append(passes, RepeatPass(k))
	}
	return passes
}

// PassDir is the directory of the raw files of a pass.
func PassDir(pass string) string { return path.Join(RawDir, pass) }

// RawFile is the raw file of one gate in a pass. name is "stdout.log", "stderr.log",
// "result.json", "outputs.json" or "report".
func RawFile(pass string, index int, name string) string {
	return path.Join(PassDir(pass), Number(index)+"."+name)
}

// OutputDir is the directory of the artifacts of one gate in a pass. The baseline keeps none.
func OutputDir(pass string, index int) string {
	if pass == "" {
		return path.Join(OutputsDir, Number(index))
	}
	return path.Join(PassDir(pass), "outputs", Number(index))
}

// Number is the index of a gate in names of files.
func Number(index int) string { return fmt.Sprintf("%02d", index) }

// Role is the purpose of a file (RO-07).
type Role string

// Roles of files.
const (
	RolePlan     Role = "plan"
	RoleLog      Role = "log"
	RoleTest     Role = "test"
	RoleArtifact Role = "artifact"
	RoleProof    Role = "proof"
	RoleSnapshot Role = "snapshot"
)

func roleOf(name string) Role {
	switch {
	case name == WishLockFile, name == RunManifestFile, name == PlanFile:
		return RolePlan
	case name == EnvSnapshotFile, name == WorkspaceFile:
		return RoleSnapshot
	case name == PatchFile, below(name, OutputsDir), below(name, RawDir) && strings.Contains(name, "/outputs/"): // of a repeat
		return RoleArtifact
	case name == TestsFile, below(name, RawDir) && strings.HasSuffix(name, ".report"):
		return RoleTest
	case name == RunLogFile, below(name, RawDir):
		return RoleLog
	}
	return RoleProof
}

// isArtifact reports whether node 4 hashes a file (RT-13): patch, logs, test outputs and
// artifacts of the gates.
func isArtifact(name string) bool {
	return name == PatchFile || name == RunLogFile || name == TestsFile || below(name, RawDir) || below(name, OutputsDir)
}

// isEvidence reports whether the manifest lists a file.
func isEvidence(name string) bool {
	return name == WishLockFile || name == RunManifestFile || below(name, Dir) && name != ManifestFile
}

// below reports whether a file is in a directory or in one of its subdirectories.
func below(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }
