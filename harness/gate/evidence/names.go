package evidence

// Files of a gate directory, relative to it (RT-04, RT-10, RT-15, RT-16).
const (
	// WishLockFile is the sealed wish that the gate carried out.
	WishLockFile = "wish.lock.json"
	// RunManifestFile is what node 1 decided, and all that node 2 sees.
	RunManifestFile = "RunManifest.json"
	// VerdictFile is the judgement.
	VerdictFile = "ExecutionVerdict.json"
	// GatesFile is what a replay needs.
	GatesFile = "GATES.json"

	// Dir holds everything below.
	Dir = "evidence"
	// PlanFile is the plan in the form of RO-07.
	PlanFile = Dir + "/plan.json"
	// RawDir holds what node 2 saw, unchanged.
	RawDir = Dir + "/raw"
	// OutputsDir holds the declared artifacts of the gates.
	OutputsDir = Dir + "/outputs"
	// RunLogFile is the normalized log of all gates.
	RunLogFile = Dir + "/run_log.txt"
	// TestsFile tells commands and test cases.
	TestsFile = Dir + "/tests.json"
	// ObservationsFile tells what the gates tried that they may not.
	ObservationsFile = Dir + "/observations.json"
	// NormalizationFile tells which rules were applied how often, and what still
	// looks as if it changes from run to run.
	NormalizationFile = Dir + "/normalization.json"
	// BehaviorHashFile is the hash of the normalized log (RO-12 without the seed).
	BehaviorHashFile = Dir + "/behavior_hash.txt"
	// EnvSnapshotFile is what the gates ran in (RO-07).
	EnvSnapshotFile = Dir + "/env_snapshot.json"
	// ChangesFile and PatchFile tell what the workspace has that the baseline had not
	// (RO-04); they are there with a baseline only.
	ChangesFile = Dir + "/changes.json"
	PatchFile   = Dir + "/patch.diff"
	// ArtifactsFile has the hashes of node 4.
	ArtifactsFile = Dir + "/artifacts.json"
	// ManifestFile has the hashes of all files of nodes 1 to 4.
	ManifestFile = Dir + "/evidence.manifest"
	// AttestationFile is the signed statement about the manifest and the verdict.
	AttestationFile = "attestation.dsse.json"
)

// Required are the files without which nothing is judged as passed (RT-04).
var Required = []string{PlanFile, RunLogFile, TestsFile, ArtifactsFile}
