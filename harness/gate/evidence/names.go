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
	// WishLockFile is the sealed wish that the gate carried out.
	WishLockFile = "wish.lock.json"
	// RunManifestFile is the decision of node 1, and all that node 2 sees.
	RunManifestFile = "RunManifest.json"
	// VerdictFile is the judgement.
	VerdictFile = "ExecutionVerdict.json"
	// GatesFile holds what a replay needs.
	GatesFile = "GATES.json"
	// AttestationFile is the signed statement about the manifest and the verdict.
	AttestationFile = "attestation.dsse.json"

	// Dir holds all files below.
	Dir = "evidence"
	// PlanFile is the plan in the form of RO-07.
	PlanFile = Dir + "/plan.json"
	// RawDir holds the unchanged output of node 2.
	RawDir = Dir + "/raw"
	// OutputsDir holds the declared artifacts of the gates.
	OutputsDir = Dir + "/outputs"
	// RunLogFile is the normalized log of all gates.
	RunLogFile = Dir + "/run_log.txt"
	// TestsFile lists commands and test cases.
	TestsFile = Dir + "/tests.json"
	// ObservationsFile lists forbidden attempts of the gates.
	ObservationsFile = Dir + "/observations.json"
	// NormalizationFile counts the applied rules and lists the text that still looks as if it
	// changes from run to run.
	NormalizationFile = Dir + "/normalization.json"
	// BehaviorHashFile is the hash of the normalized log (RO-12 without the seed).
	BehaviorHashFile = Dir + "/behavior_hash.txt"
	// EnvSnapshotFile describes the environment of the gates (RO-07).
	EnvSnapshotFile = Dir + "/env_snapshot.json"
	// FindingsFile has the findings of the other nodes.
	FindingsFile = Dir + "/findings.json"
	// ChangesFile and PatchFile compare the workspace with its baseline (RO-04). They exist
	// with a baseline only.
	ChangesFile = Dir + "/changes.json"
	PatchFile   = Dir + "/patch.diff"
	// ArtifactsFile has the hashes of node 4.
	ArtifactsFile = Dir + "/artifacts.json"
	// ManifestFile has the hashes of all files of nodes 1 to 4.
	ManifestFile = Dir + "/evidence.manifest"
)

// Required are the files without which no gate passes (RT-04).
var Required = []string{PlanFile, RunLogFile, TestsFile, ArtifactsFile}

// Boundary is the path of the workspace in the containers of the gates.
const Boundary = "/repo"

// BaselinePass is the name of the pass over the gates on the baseline. The pass over the
// workspace has the empty name.
const BaselinePass = "baseline"

// repeatPrefix begins the names of the passes that repeat the gates.
const repeatPrefix = "repeat-"

// RepeatPass is the name of the k-th pass over the gates; the second is the first repeat.
func RepeatPass(k int) string { return repeatPrefix + strconv.Itoa(k) }

// IsRepeat reports whether a pass repeats the gates.
func IsRepeat(pass string) bool { return strings.HasPrefix(pass, repeatPrefix) }

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

var roles = map[string]Role{
	WishLockFile: RolePlan, RunManifestFile: RolePlan, PlanFile: RolePlan, RunLogFile: RoleLog,
	TestsFile: RoleTest, EnvSnapshotFile: RoleSnapshot, PatchFile: RoleArtifact,
}

func roleOf(name string) Role {
	role, known := roles[name]
	switch {
	case known:
		return role
	case below(name, OutputsDir), below(name, RawDir) && strings.Contains(name, "/outputs/"): // those of a repeat
		return RoleArtifact
	case below(name, RawDir) && strings.HasSuffix(name, ".report"):
		return RoleTest
	case below(name, RawDir):
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
