package evidence

// VerdictV1 names the wire form of [Verdict].
const VerdictV1 = "evalbox/verdict/v1"

// Status is the judgement (RT-15).
type Status string

// Judgements.
const (
	Pass     Status = "PASS"
	Blocked  Status = "BLOCKED"
	NeedInfo Status = "NEED_INFO"
)

// StopReason is the reason of a judgement. The forbidden states of RT-08 have their own words.
type StopReason string

// Stop reasons.
const (
	ReasonPass              StopReason = "PASS"
	ReasonModeViolation     StopReason = "ERROR_MODE_VIOLATION"
	ReasonToolsDisabled     StopReason = "TOOLS_DISABLED"
	ReasonNotSealed         StopReason = "WISH_NOT_SEALED"
	ReasonNoCommands        StopReason = "NULL_INPUT"
	ReasonNoWorkspace       StopReason = "MISSING_WORKSPACE"
	ReasonToolRefused       StopReason = "SECURITY_BLOCKED"
	ReasonDirty             StopReason = "DIRTY_TREE"
	ReasonTampered          StopReason = "EVIDENCE_TAMPERED"
	ReasonOutsideBoundary   StopReason = "RUN_OUTSIDE_IO_BOUNDARY"
	ReasonNetwork           StopReason = "NETWORK_ACCESS_WHEN_OFFLINE"
	ReasonUnpinned          StopReason = "UNPINNED_TOOLCHAIN"
	ReasonEnvironment       StopReason = "ENVIRONMENT_MISMATCH"
	ReasonUndeclared        StopReason = "UNDECLARED_COMMAND"
	ReasonTimeout           StopReason = "GATE_TIMED_OUT"
	ReasonGateFailed        StopReason = "GATE_FAILED"
	ReasonRegression        StopReason = "REGRESSION"
	ReasonNoTests           StopReason = "PASS_WITHOUT_TEST_EXECUTION"
	ReasonIncomplete        StopReason = "EVIDENCE_INCOMPLETE"
	ReasonNondeterministic  StopReason = "NONDETERMINISTIC_LOG_FIELDS_UNSCRUBBED"
	ReasonNonReproducible   StopReason = "NON_REPRODUCIBLE"
	ReasonMissingDependency StopReason = "MISSING_DEPENDENCY"
)

// severity lists all reasons against a pass, the most severe first: forbidden acts before
// missing proofs, and damaged evidence before the content of the evidence. class is the word
// of RO-09, and hint advice.
var severity = []struct {
	reason      StopReason
	class, hint string
}{
	{ReasonModeViolation, "INVARIANT_VIOLATION", "run it with --mode execute"},
	{ReasonToolsDisabled, "BLOCKED", "leave --no-tools out"},
	{ReasonNotSealed, "INVARIANT_VIOLATION", "seal the wish with: sandbox gate seal WISH.yaml; or run the wish with --seal"},
	{ReasonNoCommands, "NULL_INPUT", "name commands in gate_commands of the wish, and seal it"},
	{ReasonNoWorkspace, "NULL_INPUT", "io_boundary of the wish names the workspace, relative to the wish"},
	{ReasonToolRefused, "SECURITY_BLOCKED", "permit the command in the registry of --registry, or declare another command"},
	{ReasonDirty, "INVARIANT_VIOLATION", "strict mode demands a git repository without uncommitted changes: commit or stash what is named, or leave --strict out"},
	{ReasonTampered, "INVARIANT_VIOLATION", "the evidence is not what was hashed: run the gate again"},
	{ReasonOutsideBoundary, "INVARIANT_VIOLATION", "the evidence has the paths in evidence/observations.json; a gate may touch the workspace, /tmp and /work"},
	{ReasonNetwork, "CLAIM_POWER_INSUFFICIENT", "the kernel counts attempts and not where they go: look for it in the tests; or declare what they need with network in the wish, see docs/gate.md"},
	{ReasonUnpinned, "CLAIM_POWER_INSUFFICIENT", "lock the image with: sandbox image lock; or set claim_grade: false in the wish"},
	{ReasonEnvironment, "ENVIRONMENT_MISMATCH", "what the gates ran in is not what was sealed, or changed meanwhile: seal the wish again, restore image or folder, or leave the workspace alone while gates run"},
	{ReasonUndeclared, "INVARIANT_VIOLATION", "only commands of the sealed wish may be in the evidence: run the gate again"},
	{ReasonTimeout, "BLOCKED", "raise --timeout for a command or limits.timeout in the wish, or use -v to see what hangs"},
	{ReasonGateFailed, "BLOCKED", "the whole output is in evidence/run_log.txt of the gate directory"},
	{ReasonRegression, "INVARIANT_VIOLATION", "evidence/tests.json of the gate directory has the tests that failed before and now"},
	{ReasonNoTests, "EVIDENCE_INCOMPLETE", "a report of tests must have at least one test that ran, and one gate must be of the kind tests; see docs/gate.md"},
	{ReasonIncomplete, "EVIDENCE_INCOMPLETE", "fix what is named and run the gate again; the wish may need a higher limits.log for output that was cut, allow_unobserved for an engine that cannot observe attempts, a report for tests without one, or the setting allow_unenforced for a limit that a cluster does not enforce; see docs/gate.md"},
	{ReasonNondeterministic, "NON_REPRODUCIBLE", "evidence/normalization.json has the places; add rules with normalize in the wish, or allow_suspects"},
	{ReasonNonReproducible, "NON_REPRODUCIBLE", "something differs from run to run: order, time, or random numbers without a seed"},
	// The last one: a gate without its program needs information only if nothing else is wrong.
	{ReasonMissingDependency, "NEED_INFO", "choose an image that has the program, or mount it with toolchain in the wish"},
}

// Rank orders reasons by severity; the most severe is 0. It is -1 for one that does not stop a
// gate.
func (r StopReason) Rank() int {
	for i, s := range severity {
		if s.reason == r {
			return i
		}
	}
	return -1
}

// Class is the word of RO-09 for a reason.
func (r StopReason) Class() string {
	if i := r.Rank(); i >= 0 {
		return severity[i].class
	}
	return "PASS"
}

// Hint is advice for a reason to stop; empty for a pass.
func (r StopReason) Hint() string {
	if i := r.Rank(); i >= 0 {
		return severity[i].hint
	}
	return ""
}

// Verdict is ExecutionVerdict.json (RT-15).
type Verdict struct {
	Schema string `json:"schema"`
	Status Status `json:"status"`
	// StopReason is the most severe of Findings; StopClass is its word of RO-09.
	StopReason StopReason `json:"stop_reason"`
	StopClass  string     `json:"stop_class"`
	// Findings are all reasons against a pass, the most severe first; empty for a pass.
	Findings []Finding `json:"findings"`
	// Warnings are facts that only strict mode holds against a pass. Their reasons are the stop
	// reasons of strict mode.
	Warnings        []Finding `json:"warnings,omitempty"`
	EvidenceSummary Summary   `json:"evidence_summary"`
	// ReplayCommands are command lines that run the same again.
	ReplayCommands []string `json:"replay_commands"`
	WishSHA256     string   `json:"wish_sha256"`
	// ManifestSHA256 is the hash of evidence.manifest, and so of all evidence.
	ManifestSHA256 string `json:"manifest_sha256"`
	BehaviorHash   string `json:"behavior_hash"`
}

// Finding is one reason against a pass, or a warning.
type Finding struct {
	Reason  StopReason `json:"reason"`
	Gate    int        `json:"gate"`    // the index of the command, 0 for the whole run
	Subject string     `json:"subject"` // a file, path or test
	Detail  string     `json:"detail"`  // one sentence
}

// Summary is the evidence in numbers.
type Summary struct {
	Commands int    `json:"commands"`
	Counts   Counts `json:"counts"`
	// NetworkCounted and Watched say how attempts were observed, over all gates: the weaker
	// one if they differ.
	NetworkCounted string   `json:"network_counted"`
	Watched        bool     `json:"watched"`
	Files          int      `json:"files"`
	Missing        []string `json:"missing"`
}

// Gates is GATES.json (RT-16): the input of a replay. A reader ignores unknown keys.
type Gates struct {
	IOBoundary string        `json:"io_boundary"`
	Offline    bool          `json:"offline"`
	Commands   []GateCommand `json:"commands"`
	// A document without the keys below can only be run, not compared.
	Image        string       `json:"image,omitempty"`
	ImageID      string       `json:"image_id,omitempty"`
	Commit       string       `json:"commit,omitempty"`
	Workspace    string       `json:"workspace,omitempty"`
	WishSHA256   string       `json:"wish_sha256,omitempty"`
	BehaviorHash string       `json:"behavior_hash,omitempty"`
	Artifacts    []HashedFile `json:"artifacts,omitempty"` // the declared outputs
}

// GateCommand is one command of [Gates]. Ending, Passed and LogSHA256 are the expected signals
// beside the exit code.
type GateCommand struct {
	Cmd        string `json:"cmd"`
	ExpectExit int    `json:"expect_exit" evidence:"optional"`
	Ending     string `json:"ending,omitempty"`
	Passed     int    `json:"passed,omitzero"`
	LogSHA256  string `json:"log_sha256,omitempty"`
}
