package evidence

import (
	"strings"

	"github.com/evalbox/evalbox/internal/text"
)

// Versions of documents: names of their wire forms.
const (
	TestsV1         = "evalbox/tests/v1"
	ObservationsV1  = "evalbox/observations/v1"
	NormalizationV1 = "evalbox/normalization/v1"
	EnvSnapshotV1   = "evalbox/env-snapshot/v1"
	WorkspaceV1     = "evalbox/workspace/v1"
	// manifestVersion is the version of [Manifest] (RO-07).
	manifestVersion = "1.0.0"
)

// Plan is plan.json: the 13 keys of RO-07, and the commands that are going to be run.
type Plan struct {
	SkillVersion            string           `json:"skill_version"`
	Profile                 string           `json:"profile"`
	StopReason              string           `json:"stop_reason"`
	LastKnownState          string           `json:"last_known_state"`
	LoopBudgets             map[string]int64 `json:"loop_budgets"`
	LocalizationSummary     []string         `json:"localization_summary"`
	VerificationRungTarget  int              `json:"verification_rung_target"`
	VerificationRung        int              `json:"verification_rung"`
	SeedAgreement           bool             `json:"seed_agreement"`
	NullChecksPerformed     bool             `json:"null_checks_performed"`
	ForecastSummary         []string         `json:"forecast_summary"`
	EnvSnapshotPointer      string           `json:"env_snapshot_pointer"`
	EvidenceManifestPointer string           `json:"evidence_manifest_pointer"`
	GateCommands            []string         `json:"gate_commands"`
}

// EnvSnapshot is the environment of the gates; RO-07 has the keys from GitCommit to Locale.
type EnvSnapshot struct {
	Schema           string            `json:"schema"`
	GitCommit        string            `json:"git_commit"`
	GitDirty         bool              `json:"git_dirty"`
	RepoRoot         string            `json:"repo_root"`
	OS               string            `json:"os"`
	Arch             string            `json:"arch"`
	LanguageRuntimes map[string]string `json:"language_runtimes"`
	ToolVersions     map[string]string `json:"tool_versions"`
	Timezone         string            `json:"timezone"`
	Locale           string            `json:"locale"`
	Image            string            `json:"image"` // the one that the gates really ran in
	ImageID          string            `json:"image_id"`
	ImageLocked      bool              `json:"image_locked"`
	Workspace        string            `json:"workspace"` // the hash of the tree that the gates got
	Toolchain        []ToolMount       `json:"toolchain"`
	Engine           string            `json:"engine"` // carried the containers, as Runtime
	Runtime          string            `json:"runtime"`
}

// Workspace is workspace.json: what the hash of the workspace in [EnvSnapshot] covers. It says
// which files differ if that hash does. A directory with more than 20,000 entries has none.
type Workspace struct {
	Schema string `json:"schema"`
	// Entries are the kind and the content of each entry, by its path.
	Entries map[string]string `json:"entries"`
}

// Outcome is the end of a test case.
type Outcome string

// Outcomes of test cases.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Errored Outcome = "error"   // the test itself could not be carried out
	Skipped Outcome = "skipped" // not run; proves nothing
	XFailed Outcome = "xfailed" // failed as expected
	XPassed Outcome = "xpassed" // passed although a failure was expected
)

// Tests is tests.json: the commands and their test cases. The four keys after Schema are those
// of RO-07, over all commands.
type Tests struct {
	Schema  string `json:"schema"`
	Command string `json:"command"` // all commands, joined with " && "
	// ExitCode is 0 if all gates met their expectation, else that of the first that did not;
	// null if it has none.
	ExitCode           *int           `json:"exit_code"`
	FailingTestsBefore []string       `json:"failing_tests_before"`
	PassingTestsAfter  []string       `json:"passing_tests_after"`
	Commands           []CommandTests `json:"commands"` // one for each gate that ran, in order
}

// CommandTests is one gate.
type CommandTests struct {
	Index   int      `json:"index"`
	Command string   `json:"command"`
	Argv    []string `json:"argv"`
	Kind    GateKind `json:"kind"`
	// Started is false if the command never ran. Ending is the status of the sandbox's
	// result ("exited", "timed_out", …).
	Started      bool   `json:"started"`
	Ending       string `json:"ending"`
	ExitCode     *int   `json:"exit_code"`
	ExpectExit   int    `json:"expect_exit"`
	LogsComplete bool   `json:"logs_complete"` // false if bytes of the output were dropped
	LogSHA256    string `json:"log_sha256"`    // of the gate's part of run_log.txt; empty if not known
	// UnorderedSHA256 is the hash of the same lines, sorted in each stream, stdout before stderr. It is
	// empty if their order counts: the tests did not run in parallel.
	UnorderedSHA256 string `json:"unordered_sha256,omitempty"`
	// Source is the format of the report that the cases come from, "none" or empty without
	// one. Problem says why a report could not be read. Counts is null without a report.
	Source       ReportFormat `json:"source"`
	Problem      string       `json:"problem"`
	Counts       *Counts      `json:"counts"`
	Cases        []Case       `json:"cases"`         // sorted by ID
	CasesDropped int          `json:"cases_dropped"` // those beyond the limit
	// The cases that failed on the baseline, and those that pass now (RO-07, RO-04).
	FailingTestsBefore []string  `json:"failing_tests_before"`
	PassingTestsAfter  []string  `json:"passing_tests_after"`
	Baseline           *Baseline `json:"baseline"`
}

// Baseline is the same gate on the baseline revision.
type Baseline struct {
	Started      bool     `json:"started"`
	Ending       string   `json:"ending"`
	ExitCode     *int     `json:"exit_code"`
	Counts       *Counts  `json:"counts"`
	FailingTests []string `json:"failing_tests"`
	// PassingTests are the cases that passed there, including unexpected passes: a gate must
	// not lose them (RO-04).
	PassingTests []string `json:"passing_tests"`
}

// Counts are numbers of test cases.
type Counts struct {
	Total   int `json:"total"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Errored int `json:"errored"`
	Skipped int `json:"skipped"`
	XFailed int `json:"xfailed"`
	XPassed int `json:"xpassed"`
}

// Value returns the counts; zero if they are not known.
func (c *Counts) Value() Counts {
	if c == nil {
		return Counts{}
	}
	return *c
}

// Executed is the number of cases that really ran.
func (c Counts) Executed() int { return c.Passed + c.Failed + c.Errored + c.XFailed + c.XPassed }

// Succeeded is the number of cases that passed, including unexpected passes. An expected
// failure proves nothing (No test, no pass).
func (c Counts) Succeeded() int { return c.Passed + c.XPassed }

// Broken is the number of cases that failed or could not be carried out.
func (c Counts) Broken() int { return c.Failed + c.Errored }

// Add counts one more case.
func (c *Counts) Add(o Outcome) {
	c.Total++
	if n := map[Outcome]*int{
		Passed: &c.Passed, Failed: &c.Failed, Errored: &c.Errored, Skipped: &c.Skipped, XFailed: &c.XFailed, XPassed: &c.XPassed,
	}[o]; n != nil {
		*n++
	}
}

// Case is one test case.
type Case struct {
	// ID names the case for people and for the comparison with the baseline, such as
	// "tests/test_a.py::test_b" or "example.com/m/pkg.TestA/sub".
	ID      string  `json:"id"`
	Suite   string  `json:"suite"`
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"` // the beginning, normalized; empty for a pass
}

// Observations lists attempts that the boundary or the mode forbids (RT-08). The container
// prevented each of them; an attempt that was observed blocks. Text that reports one is a note:
// a program can print anything.
type Observations struct {
	Schema   string        `json:"schema"`
	Commands []Observation `json:"commands"`
}

// Observation is one gate in one pass.
type Observation struct {
	Index    int    `json:"index"`
	Pass     string `json:"set"`      // of [Passes]
	Complete bool   `json:"complete"` // false if the list of changed files was cut
	Network  string `json:"network"`  // "none", or the level that was enforced
	// NetworkAttempts counts attempts to reach something without a network. Counted is
	// "kernel" for the counters of the container's network, which no program can avoid, and
	// "output" for error messages alone, the first of which is NetworkLine, normalized.
	NetworkAttempts int64  `json:"network_attempts"`
	Counted         string `json:"counted"`
	NetworkLine     string `json:"network_line,omitempty"`
	Refused         int64  `json:"refused"` // requests that the proxy of a network level refused
	// Touched are protected paths and canary files that were opened, and paths outside of the
	// boundary whose refusal the output reports. Watched is true if the kernel watched opens.
	Touched []Touch `json:"touched"`
	Watched bool    `json:"watched"`
	// Changed are read-only paths that the gate changed in its copy, and Evidence paths of the
	// evidence that it wrote to.
	Changed  []string `json:"changed"`
	Evidence []string `json:"evidence"`
}

// Ways to count attempts at the network.
const (
	CountedByKernel = "kernel"
	CountedInOutput = "output"
)

// Touch is a forbidden path.
type Touch struct {
	Path string `json:"path"`
	How  string `json:"how"`  // [TouchOpened] or [TouchPrinted]
	Line string `json:"line"` // the line of the output that reports it, normalized
}

// Kinds of touches: the kernel saw the first, and only text reports the second.
const (
	TouchOpened  = "opened"
	TouchPrinted = "refused"
)

// maxTouch bounds the path of a touch, in bytes.
const maxTouch = 500

// TouchPath is a path in the container as touches have it. Paths in the repository become relative.
func TouchPath(name string) string {
	return text.Short(strings.ToValidUTF8(strings.TrimPrefix(name, Boundary+"/"), "\ufffd"), maxTouch)
}

// Opened are the touches that the kernel saw. A program that walks a directory only lists its
// canary files: that is none.
func Opened(paths []string) []Touch {
	var all []Touch
	for _, name := range paths {
		if !strings.HasSuffix(name, "/") {
			all = append(all, Touch{Path: TouchPath(name), How: TouchOpened})
		}
	}
	return all
}

// Normalization describes what node 3 did to the logs.
type Normalization struct {
	Schema string      `json:"schema"`
	Rules  []RuleCount `json:"rules"` // in the order of their application
	// Suspects are the first places of the normalized log that still look as if they change
	// from run to run; SuspectsTotal counts all.
	Suspects      []Suspect `json:"suspects"`
	SuspectsTotal int       `json:"suspects_total"`
}

// RuleCount is one rule.
type RuleCount struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Suspect is one place in the normalized log.
type Suspect struct {
	Detector string `json:"detector"` // the kind of text
	Line     int    `json:"line"`     // counts from 1
	Text     string `json:"text"`
}

// Findings is findings.json: the findings of all nodes but the judge.
type Findings struct {
	Pre         []Finding `json:"pre"`         // reasons that stopped the run, or that node 2 found
	Differences []Finding `json:"differences"` // of repeats
}

// Changes is changes.json: the differences between baseline and workspace, with the hashes
// before and after (RO-04). A file that did not exist has an empty hash.
type Changes struct {
	Baseline string   `json:"baseline"`
	Files    []Change `json:"files"`
}

// Change is one file of [Changes].
type Change struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Artifacts is artifacts.json (RT-13, RO-07).
type Artifacts struct {
	Artifacts []HashedFile `json:"artifacts"`
}

// Manifest is evidence.manifest: every file of nodes 1 to 4.
type Manifest struct {
	SchemaVersion string       `json:"schema_version"`
	Files         []HashedFile `json:"files"`
}

// HashedFile is one file of a gate directory, relative to it.
type HashedFile struct {
	FilePath string `json:"file_path"`
	SHA256   string `json:"sha256"`
	Role     Role   `json:"role"`
}
