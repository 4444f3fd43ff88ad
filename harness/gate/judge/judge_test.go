package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func TestJudgePasses(t *testing.T) {
	v := Judge(passing())
	assert.Equal(t, evidence.Verdict{
		Schema: evidence.VerdictV1, Status: evidence.Pass, StopReason: evidence.ReasonPass, StopClass: "PASS", Findings: []evidence.Finding{},
		EvidenceSummary: evidence.Summary{
			Commands: 1, Counts: evidence.Counts{Total: 2, Passed: 2}, NetworkCounted: "kernel", Watched: true, Files: 12, Missing: []string{},
		},
		ReplayCommands: []string{"sandbox replay GATES.json"}, WishSHA256: sealedWish.SHA256, ManifestSHA256: hash, BehaviorHash: hash,
	}, v)
}

func TestJudgeOfNothingIsBlocked(t *testing.T) {
	v := Judge(Input{})
	assert.Equal(t, evidence.Blocked, v.Status)
	assert.NotEmpty(t, v.Findings)
	assert.Empty(t, v.ReplayCommands)
}

// aspect is one thing that is wrong with passing evidence.
type aspect struct {
	name   string
	change func(in *Input)
	reason evidence.StopReason
	// detail is a part of the sentence that the finding has.
	detail string
}

func gate(in *Input) *evidence.Gate            { return &in.Manifest.Gates[0] }
func ran(in *Input) *evidence.CommandTests     { return &in.Tests.Commands[0] }
func observed(in *Input) *evidence.Observation { return &in.Observations.Commands[0] }
func exits(code int) *int                      { return &code }
func counts(in *Input, c evidence.Counts)      { ran(in).Counts, ran(in).Cases = &c, nil }

// noReport makes the gate one of which only the exit code is known.
func noReport(in *Input) {
	ran(in).Source, ran(in).Counts, ran(in).Cases = evidence.ReportNone, nil, nil
}

// withBaseline gives the gate a result on the baseline.
func withBaseline(in *Input, b *evidence.Baseline) {
	b.Started = true
	in.Manifest.Baseline, ran(in).Baseline = "/b", b
	also(in, evidence.Observation{Pass: evidence.BaselinePass})
}

// passed is a baseline on which these tests passed.
func passed(ids ...string) *evidence.Baseline {
	return &evidence.Baseline{Counts: &evidence.Counts{Total: len(ids), Passed: len(ids)}, PassingTests: ids}
}

// also is what was seen of the gate in another set.
func also(in *Input, o evidence.Observation) {
	o.Index, o.Network, o.Counted, o.Watched, o.Complete = 1, "none", "kernel", true, true
	in.Observations.Commands = append(in.Observations.Commands, o)
}

// repeated lets the gate run twice.
func repeated(in *Input) {
	in.Manifest.Mode.Repeats = 2
	for _, name := range rawFiles("repeat-2", 1) {
		in.Artifacts.Artifacts = append(in.Artifacts.Artifacts, evidence.HashedFile{FilePath: name, SHA256: hash})
	}
	also(in, evidence.Observation{Pass: "repeat-2"})
}

func observed2(in *Input) *evidence.Observation { return &in.Observations.Commands[1] }

// failing makes the gate one that is to fail, with these failing tests.
func failing(in *Input, ids ...string) {
	gate(in).ExpectExit, ran(in).ExpectExit, ran(in).ExitCode = 1, 1, exits(1)
	ran(in).Cases = nil
	for _, id := range ids {
		ran(in).Cases = append(ran(in).Cases, evidence.Case{ID: id, Outcome: evidence.Failed})
	}
	ran(in).Counts = &evidence.Counts{Total: len(ids), Failed: len(ids)}
}

// aspects provoke every reason, each by itself.
var aspects = []aspect{
	{"plan mode", func(in *Input) { in.Manifest.Mode.Execute = false }, evidence.ReasonModeViolation, "plan mode"},
	{"tools off", func(in *Input) { in.Manifest.Mode.Tools = false }, evidence.ReasonToolsDisabled, "switched off"},
	{"not sealed", func(in *Input) { in.Manifest.Mode.Sealed = false }, evidence.ReasonNotSealed, "not sealed"},
	{"no hash of the wish", func(in *Input) { in.Manifest.WishSHA256 = "" }, evidence.ReasonNotSealed, "no hash"},
	{"no workspace", func(in *Input) { in.Manifest.Workspace = "" }, evidence.ReasonNoWorkspace, "no workspace"},
	{"no boundary", func(in *Input) { in.Manifest.IOBoundary = "" }, evidence.ReasonNoWorkspace, "no workspace"},
	{"no program", func(in *Input) { gate(in).Argv, ran(in).Argv = nil, nil }, evidence.ReasonNoCommands, "names no program"},
	{"tool refused", func(in *Input) {
		in.Pre = []evidence.Finding{{Reason: evidence.ReasonToolRefused, Gate: 1, Detail: "curl is not registered."}}
	}, evidence.ReasonToolRefused, "not registered"},
	{"dirty", func(in *Input) { in.Manifest.Repo.Dirty = true }, evidence.ReasonDirty, "in no commit"},
	{"dirty when it ran", func(in *Input) { in.Env.GitDirty = true }, evidence.ReasonDirty, "in no commit"},
	{"no commit", func(in *Input) { in.Manifest.Repo.Commit, in.Env.GitCommit = "", "" }, evidence.ReasonDirty, "has none"},
	{"tampered", func(in *Input) {
		in.Check.Findings = []evidence.Finding{{Reason: evidence.ReasonTampered, Subject: evidence.RunLogFile, Detail: "was changed."}}
	}, evidence.ReasonTampered, "was changed"},
	{"opened", func(in *Input) { observed(in).Touched = []evidence.Touch{{Path: "/etc/shadow", How: "opened"}} }, evidence.ReasonOutsideBoundary, "opened /etc/shadow"},
	{"a printed refusal, strict", func(in *Input) { observed(in).Touched = printedTouch }, evidence.ReasonOutsideBoundary,
		`Gate 1 printed that it did not reach ~/.ssh: "cat: ~/.ssh: denied". Strict mode blocks on such a line, unless a pattern of allow_suspects in the wish matches it.`},
	{"a touch of no known kind", func(in *Input) {
		in.Manifest.Mode.Strict = false
		observed(in).Touched = []evidence.Touch{{Path: "/etc/shadow", How: "seen"}}
	}, evidence.ReasonOutsideBoundary, "opened /etc/shadow"},
	{"printed attempts at the network, strict", func(in *Input) { printedNetwork(in) }, evidence.ReasonNetwork,
		`Gate 1 printed 2 times that it did not reach the network: "Network is unreachable". Strict mode blocks on such a line, unless a pattern of allow_suspects`},
	{"attempts counted by nobody knows whom", func(in *Input) {
		in.Manifest.Mode.Strict, observed(in).Counted, observed(in).NetworkAttempts = false, "", 2
	}, evidence.ReasonNetwork, "tried to reach the network 2 times"},
	{"read-only changed", func(in *Input) { observed(in).Changed = []string{"core/x.py"} }, evidence.ReasonOutsideBoundary, "may only read"},
	{"evidence written", func(in *Input) { observed(in).Evidence = []string{"evidence/tests.json"} }, evidence.ReasonOutsideBoundary, "where the evidence lies"},
	{"network attempt", func(in *Input) { observed(in).NetworkAttempts = 3 }, evidence.ReasonNetwork, "3 times"},
	{"refused requests", func(in *Input) { observed(in).Refused = 2 }, evidence.ReasonNetwork, "2 requests"},
	{"a network", func(in *Input) { observed(in).Network = "bridge" }, evidence.ReasonNetwork, `"bridge"`},
	{"offline with a level", func(in *Input) { in.Manifest.Egress = &evidence.Egress{Level: "registries"} }, evidence.ReasonNetwork, `"registries"`},
	{"image not locked", func(in *Input) { in.Manifest.Toolchain.Locked = false }, evidence.ReasonUnpinned, "not the locked one when"},
	{"image that ran not locked", func(in *Input) { in.Env.ImageLocked = false }, evidence.ReasonUnpinned, "ran in was not the locked one"},
	{"no image ID", func(in *Input) { in.Manifest.Toolchain.ImageID = "" }, evidence.ReasonUnpinned, "without the ID"},
	{"Python unknown", func(in *Input) { in.Env.LanguageRuntimes = nil }, evidence.ReasonUnpinned, "does not say which"},
	{"mount not pinned", func(in *Input) { in.Manifest.Toolchain.Mounts[0].Hash = "" }, evidence.ReasonUnpinned, "not pinned by a hash"},
	{"other image", func(in *Input) { in.Env.ImageID = "sha256:other" }, evidence.ReasonEnvironment, "sha256:other"},
	{"Python of another part", func(in *Input) { in.Manifest.Toolchain.Python = "3.1" }, evidence.ReasonEnvironment, "pins Python 3.1, and"},
	{"other Python", func(in *Input) { in.Env.LanguageRuntimes["python"] = "3.12.0" }, evidence.ReasonEnvironment, "3.12.0"},
	{"other commit", func(in *Input) { in.Env.GitCommit = "other" }, evidence.ReasonEnvironment, "other"},
	{"other toolchain", func(in *Input) { in.Env.Toolchain[0].Hash = "other" }, evidence.ReasonEnvironment, "other"},
	{"toolchain gone", func(in *Input) { in.Env.Toolchain = nil }, evidence.ReasonEnvironment, "did not have the toolchain"},
	{"toolchain more", func(in *Input) {
		in.Env.Toolchain = append(in.Env.Toolchain, evidence.ToolMount{Target: "/host/x"})
	}, evidence.ReasonEnvironment, "was not sealed"},
	{"undeclared command", func(in *Input) {
		in.Tests.Commands = append(in.Tests.Commands, evidence.CommandTests{Index: 2, Command: "rm -rf x"})
		in.Observations.Commands = append(in.Observations.Commands, evidence.Observation{Index: 2, Network: "none", Counted: "kernel", Watched: true, Complete: true})
		for _, name := range rawFiles("", 2) {
			in.Artifacts.Artifacts = append(in.Artifacts.Artifacts, evidence.HashedFile{FilePath: name, SHA256: hash})
		}
	}, evidence.ReasonUndeclared, "nobody declared"},
	{"ran twice", func(in *Input) { in.Tests.Commands = append(in.Tests.Commands, *ran(in)) }, evidence.ReasonUndeclared, "more than one result"},
	{"other words", func(in *Input) { ran(in).Command = "pytest -q -x" }, evidence.ReasonUndeclared, "pytest -q -x"},
	{"other argv", func(in *Input) { ran(in).Argv = []string{"true"} }, evidence.ReasonUndeclared, `["true"]`},
	{"other kind", func(in *Input) { ran(in).Kind = evidence.KindCheck }, evidence.ReasonUndeclared, `"check"`},
	{"other expectation", func(in *Input) { ran(in).ExpectExit = 5 }, evidence.ReasonUndeclared, "exit code 5 expected"},
	{"other wish", func(in *Input) { in.Manifest.GateCommands = []string{"true"}; in.Plan.GateCommands = []string{"true"} }, evidence.ReasonUndeclared, "were wished"},
	{"other plan", func(in *Input) { in.Plan.GateCommands = nil }, evidence.ReasonUndeclared, "plan.json"},
	{"index out of place", func(in *Input) { gate(in).Index = 0 }, evidence.ReasonUndeclared, "at place 1"},
	{"observation of nobody", func(in *Input) {
		in.Observations.Commands = append(in.Observations.Commands, evidence.Observation{Index: 9, Network: "none", Counted: "kernel", Watched: true, Complete: true})
	}, evidence.ReasonUndeclared, "gate 9"},
	{"no image", func(in *Input) {
		in.Pre = []evidence.Finding{{Reason: evidence.ReasonMissingDependency, Subject: "image", Detail: "There is no such image."}}
	}, evidence.ReasonMissingDependency, "no such image"},
	{"not started", func(in *Input) { ran(in).Started, ran(in).Ending, ran(in).ExitCode = false, "start_failed", nil }, evidence.ReasonMissingDependency, "pytest is not in the image"},
	{"127", func(in *Input) { ran(in).ExitCode = exits(127) }, evidence.ReasonMissingDependency, "ended with 127: pytest"},
	{"126", func(in *Input) { ran(in).ExitCode = exits(126) }, evidence.ReasonMissingDependency, "ended with 126"},
	{"timed out", func(in *Input) { ran(in).Ending, ran(in).ExitCode = "timed_out", exits(-1) }, evidence.ReasonTimeout, "within 60000 ms"},
	{"memory", func(in *Input) { ran(in).Ending = "out_of_memory" }, evidence.ReasonGateFailed, "memory limit"},
	{"exit code", func(in *Input) { ran(in).ExitCode = exits(1) }, evidence.ReasonGateFailed, "the code 1; 0 was expected"},
	{"no tests collected", func(in *Input) { ran(in).ExitCode = exits(5) }, evidence.ReasonGateFailed, "the code 5"},
	{"signal", func(in *Input) { ran(in).Ending, ran(in).ExitCode = "signaled", exits(-9) }, evidence.ReasonGateFailed, "by a signal"},
	{"disk", func(in *Input) { ran(in).Ending = "disk_limit" }, evidence.ReasonGateFailed, "disk limit"},
	{"output", func(in *Input) { ran(in).Ending = "output_limit" }, evidence.ReasonGateFailed, "limit of its output"},
	{"failures are expected", func(in *Input) { gate(in).ExpectExit, ran(in).ExpectExit = 1, 1 }, evidence.ReasonGateFailed, "the code 0; 1 was expected"},
	{"failures with exit 0", func(in *Input) { counts(in, evidence.Counts{Total: 3, Passed: 1, Failed: 1, Errored: 1}) }, evidence.ReasonGateFailed, "has 2 failing tests"},
	{"more failures than before", func(in *Input) {
		failing(in, "a", "b")
		withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 2, Failed: 1, Passed: 1}, FailingTests: []string{"a"}})
	}, evidence.ReasonRegression, "has 2 failing tests, and had 1 on the baseline: b"},
	{"another failure than before", func(in *Input) {
		failing(in, "b")
		withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 2, Failed: 1, Passed: 1}, FailingTests: []string{"a"}})
	}, evidence.ReasonRegression, "did not fail on the baseline: b"},
	{"a passing test is gone", func(in *Input) { withBaseline(in, passed("t.py::a", "t.py::b", "t.py::c")) }, evidence.ReasonRegression, "lacks 1 passing test of the baseline, now removed, skipped or expected to fail: t.py::c."},
	{"a passing test is skipped", func(in *Input) {
		withBaseline(in, passed("t.py::a", "t.py::b"))
		ran(in).Cases[1].Outcome, ran(in).Counts = evidence.Skipped, &evidence.Counts{Total: 2, Passed: 1, Skipped: 1}
	}, evidence.ReasonRegression, "t.py::b"},
	{"a passing test is expected to fail", func(in *Input) {
		withBaseline(in, passed("t.py::a", "t.py::b"))
		ran(in).Cases[1].Outcome, ran(in).Counts = evidence.XFailed, &evidence.Counts{Total: 2, Passed: 1, XFailed: 1}
	}, evidence.ReasonRegression, "t.py::b"},
	{"fewer passing tests without names", func(in *Input) {
		counts(in, evidence.Counts{Total: 2, Passed: 2})
		withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 3, Passed: 3}})
	}, evidence.ReasonRegression, "has 2 passing tests, and had 3"},
	{"zero tests", func(in *Input) { counts(in, evidence.Counts{}) }, evidence.ReasonNoTests, "executed no test."},
	{"all skipped", func(in *Input) { counts(in, evidence.Counts{Total: 4, Skipped: 4}) }, evidence.ReasonNoTests, "(4 skipped)"},
	{"only expected failures", func(in *Input) { counts(in, evidence.Counts{Total: 2, XFailed: 2}) }, evidence.ReasonNoTests, "no test that passed"},
	{"checks only", func(in *Input) { gate(in).Kind, ran(in).Kind = evidence.KindCheck, evidence.KindCheck }, evidence.ReasonNoTests, "a check alone"},
	{"no result", func(in *Input) { in.Tests.Commands = nil }, evidence.ReasonNoTests, "was not run"},
	{"file missing", func(in *Input) { in.Check.Missing = []string{evidence.RunLogFile} }, evidence.ReasonIncomplete, "run_log.txt is missing"},
	{"no report, strict", func(in *Input) { noReport(in) }, evidence.ReasonIncomplete, "left no report of its tests, and strict mode demands one: name its report"},
	{"no report, wished", func(in *Input) {
		noReport(in)
		in.Manifest.Mode.Strict, gate(in).Report = false, evidence.ReportGoTest
	}, evidence.ReasonIncomplete, "left no report of its tests, and the wish asks for one (go-test)"},
	{"no report, failed", func(in *Input) {
		noReport(in)
		in.Manifest.Mode.Strict, ran(in).ExitCode = false, exits(1)
	}, evidence.ReasonGateFailed, "the code 1; 0 was expected"},
	{"numbers without a source", func(in *Input) { ran(in).Source = evidence.ReportNone }, evidence.ReasonIncomplete, "counts cases and names no report"},
	{"no manifest", func(in *Input) { in.Check.ManifestSHA256 = "" }, evidence.ReasonIncomplete, "no manifest"},
	{"no run manifest", func(in *Input) { in.Manifest = evidence.RunManifest{} }, evidence.ReasonIncomplete, "RunManifest.json is not a document"},
	{"no tests.json", func(in *Input) { in.Tests = evidence.Tests{} }, evidence.ReasonIncomplete, "tests.json is not a document"},
	{"no observations.json", func(in *Input) { in.Observations.Schema = "" }, evidence.ReasonIncomplete, "observations.json is not a document"},
	{"no normalization.json", func(in *Input) { in.Normalization.Schema = "" }, evidence.ReasonIncomplete, "normalization.json is not a document"},
	{"no env_snapshot.json", func(in *Input) { in.Env.Schema = "" }, evidence.ReasonIncomplete, "env_snapshot.json is not a document"},
	{"no workspace hash", func(in *Input) { in.Env.Workspace = "" }, evidence.ReasonIncomplete, "no hash of the workspace"},
	{"no behaviour hash", func(in *Input) { in.BehaviorHash = "x" }, evidence.ReasonIncomplete, "behavior_hash.txt"},
	{"log not hashed", func(in *Input) { in.Artifacts.Artifacts = in.Artifacts.Artifacts[1:] }, evidence.ReasonIncomplete, "01.stdout.log"},
	{"no artifacts", func(in *Input) { in.Artifacts = evidence.Artifacts{} }, evidence.ReasonIncomplete, "has no hash of evidence/run_log.txt"},
	{"log cut", func(in *Input) { ran(in).LogsComplete = false }, evidence.ReasonIncomplete, "is not complete"},
	{"report cut", func(in *Input) { ran(in).Problem = "report.xml ends in the middle" }, evidence.ReasonIncomplete, "ends in the middle"},
	{"canceled", func(in *Input) { ran(in).Ending = "canceled" }, evidence.ReasonIncomplete, "was not seen"},
	{"engine lost", func(in *Input) { ran(in).Started, ran(in).Ending = false, "engine_lost" }, evidence.ReasonIncomplete, "was not seen"},
	{"odd ending", func(in *Input) { ran(in).Ending = "well" }, evidence.ReasonIncomplete, "not a way to end"},
	{"no exit code", func(in *Input) { ran(in).ExitCode = nil }, evidence.ReasonIncomplete, "nothing says"},
	{"odd kind", func(in *Input) { gate(in).Kind, ran(in).Kind = "other", "other" }, evidence.ReasonIncomplete, `"other"`},
	{"own exit code", func(in *Input) { in.Tests.ExitCode = exits(1) }, evidence.ReasonIncomplete, "contradicts itself: its exit_code is 1, and by its results it is 0."},
	{"no own exit code", func(in *Input) { in.Tests.ExitCode = nil }, evidence.ReasonIncomplete, "contradicts itself: its exit_code is null, and by"},
	{"own command", func(in *Input) { in.Tests.Command = "pytest -q slow" }, evidence.ReasonIncomplete, `The command of evidence/tests.json is "pytest -q slow"; the gate_commands of RunManifest.json are "pytest -q".`},
	{"own passing tests", func(in *Input) { in.Tests.PassingTestsAfter = []string{"t.py::a", "t.py::b", "t.py::c"} }, evidence.ReasonIncomplete,
		"contradicts itself: its passing_tests_after has tests that its results lack: t.py::c."},
	{"fewer own passing tests", func(in *Input) { in.Tests.PassingTestsAfter = []string{"t.py::b"} }, evidence.ReasonIncomplete,
		"contradicts itself: its passing_tests_after lacks tests of its results: t.py::a."},
	{"own passing tests twice", func(in *Input) { in.Tests.PassingTestsAfter = []string{"t.py::a", "t.py::b", "t.py::b"} }, evidence.ReasonIncomplete,
		"its passing_tests_after has a test twice or out of order."},
	{"own failing tests", func(in *Input) { in.Tests.FailingTestsBefore = []string{"t.py::a"} }, evidence.ReasonIncomplete,
		"contradicts itself: its failing_tests_before has tests that its results lack: t.py::a."},
	{"passing tests of a gate", func(in *Input) {
		ran(in).PassingTestsAfter = []string{"t.py::a"}
		in.Tests.PassingTestsAfter = []string{"t.py::a", "t.py::b"}
	}, evidence.ReasonIncomplete, "contradicts itself: its passing_tests_after of gate 1 lacks tests of its results: t.py::b."},
	{"failing tests of a gate", func(in *Input) { ran(in).FailingTestsBefore = []string{"t.py::x"} }, evidence.ReasonIncomplete,
		"contradicts itself: its failing_tests_before of gate 1 has tests that its results lack: t.py::x."},
	{"failing tests that the baseline lacks", func(in *Input) {
		withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 1, Failed: 1}, FailingTests: []string{"t.py::a"}})
		in.Tests.Summarize(in.Manifest)
		in.Tests.FailingTestsBefore = nil
	}, evidence.ReasonIncomplete, "contradicts itself: its failing_tests_before lacks tests of its results: t.py::a."},
	{"negative count", func(in *Input) { counts(in, evidence.Counts{Total: 2, Passed: 4, Failed: -2}) }, evidence.ReasonIncomplete, "negative"},
	{"other total", func(in *Input) { counts(in, evidence.Counts{Total: 9, Passed: 4}) }, evidence.ReasonIncomplete, "not the sum"},
	{"failing case beside dropped ones", func(in *Input) {
		ran(in).Cases[0].Outcome = evidence.Failed
		ran(in).Counts, ran(in).CasesDropped = &evidence.Counts{Total: 3, Passed: 3}, 1
	}, evidence.ReasonIncomplete, "other outcomes"},
	{"other cases", func(in *Input) { ran(in).Counts = &evidence.Counts{Total: 3, Passed: 3} }, evidence.ReasonIncomplete, "another number of cases"},
	{"other outcomes", func(in *Input) { ran(in).Cases[0].Outcome = evidence.Skipped }, evidence.ReasonIncomplete, "other outcomes"},
	{"odd outcome", func(in *Input) { ran(in).Cases[0].Outcome = "great" }, evidence.ReasonIncomplete, "great"},
	{"no baseline result", func(in *Input) { in.Manifest.Baseline = "/b" }, evidence.ReasonIncomplete, "no result on the baseline"},
	{"attempts not counted", func(in *Input) { observed(in).Counted = "" }, evidence.ReasonIncomplete, "Nobody counted"},
	{"attempts counted in the output", func(in *Input) { observed(in).Counted = "output" }, evidence.ReasonIncomplete, "only looked for in its output"},
	{"attempts of the baseline", func(in *Input) {
		withBaseline(in, passed("t.py::a"))
		observed(in).Pass, observed(in).NetworkAttempts = evidence.BaselinePass, 1
	}, evidence.ReasonNetwork, "Gate 1 on the baseline tried to reach the network 1 time,"},
	{"opened on the baseline", func(in *Input) {
		withBaseline(in, passed("t.py::a"))
		also(in, evidence.Observation{Pass: evidence.BaselinePass, Touched: []evidence.Touch{{Path: "/etc/shadow", How: "opened"}}})
	}, evidence.ReasonOutsideBoundary, "Gate 1 on the baseline opened /etc/shadow"},
	{"opened in a repetition", func(in *Input) {
		repeated(in)
		observed2(in).Touched = []evidence.Touch{{Path: "/etc/shadow", How: "opened"}}
	}, evidence.ReasonOutsideBoundary, "Gate 1 in repeat-2 opened /etc/shadow"},
	{"network in a repetition", func(in *Input) { repeated(in); observed2(in).NetworkAttempts = 2 }, evidence.ReasonNetwork, "Gate 1 in repeat-2 tried to reach the network 2 times"},
	{"read-only changed in a repetition", func(in *Input) { repeated(in); observed2(in).Changed = []string{"x"} }, evidence.ReasonOutsideBoundary, "Gate 1 in repeat-2 changed x"},
	{"repetition not observed", func(in *Input) { repeated(in); in.Observations.Commands = in.Observations.Commands[:1] }, evidence.ReasonIncomplete, "has nothing on gate 1 in repeat-2"},
	{"repetition not watched", func(in *Input) { repeated(in); observed2(in).Watched = false }, evidence.ReasonIncomplete, "Nobody watched what gate 1 in repeat-2 opened"},
	{"baseline not observed", func(in *Input) {
		withBaseline(in, passed("t.py::a"))
		in.Observations.Commands = in.Observations.Commands[:1]
	}, evidence.ReasonIncomplete, "has nothing on gate 1 on the baseline"},
	{"a set that nobody asked for", func(in *Input) { also(in, evidence.Observation{Pass: "repeat-2"}) }, evidence.ReasonUndeclared, "nobody asked for"},
	{"changes cut", func(in *Input) { in.Manifest.Mode.Strict, observed(in).Complete = false, false }, evidence.ReasonIncomplete, "is cut"},
	{"unobserved, not strict", func(in *Input) { in.Manifest.Mode.Strict, observed(in).Counted = false, "output" }, evidence.ReasonIncomplete, "does not accept that (allow_unobserved)"},
	{"not watched, not strict", func(in *Input) { in.Manifest.Mode.Strict, observed(in).Watched = false, false }, evidence.ReasonIncomplete, "does not accept that (allow_unobserved)"},
	{"accepted, and strict", func(in *Input) { in.Manifest.Mode.AllowUnobserved, observed(in).Counted = true, "output" }, evidence.ReasonIncomplete, "strict mode demands it"},
	{"negative attempts", func(in *Input) { observed(in).NetworkAttempts = -1 }, evidence.ReasonIncomplete, "has fewer than no attempts"},
	{"not watched", func(in *Input) { observed(in).Watched = false }, evidence.ReasonIncomplete, "Nobody watched"},
	{"not observed", func(in *Input) { in.Observations.Commands = nil }, evidence.ReasonIncomplete, "has nothing on gate 1"},
	{"observed twice", func(in *Input) { in.Observations.Commands = append(in.Observations.Commands, *observed(in)) }, evidence.ReasonIncomplete, "more than once"},
	{"no repetition", func(in *Input) { in.Manifest.Mode.Repeats = 2 }, evidence.ReasonIncomplete, "has no hash of evidence/raw/repeat-2/01.stdout.log"},
	{"too many repetitions", func(in *Input) { in.Manifest.Mode.Repeats = 1 << 40 }, evidence.ReasonIncomplete, "more than are looked at"},
	{"finding without a reason", func(in *Input) { in.Pre = []evidence.Finding{{Detail: "something"}} }, evidence.ReasonIncomplete, "something"},
	{"finding that says pass", func(in *Input) { in.Pre = []evidence.Finding{{Reason: evidence.ReasonPass, Detail: "fine"}} }, evidence.ReasonIncomplete, "fine"},
	{"suspect", func(in *Input) {
		in.Normalization.Suspects = []evidence.Suspect{{Detector: "a clock time", Line: 7, Text: "12:30:01"}}
		in.Normalization.SuspectsTotal = 1
	}, evidence.ReasonNondeterministic, `Line 7 of the normalized log still has what looks like a clock time: "12:30:01"`},
	{"more suspects", func(in *Input) { in.Normalization.SuspectsTotal = 40 }, evidence.ReasonNondeterministic, "40 places"},
	{"difference", func(in *Input) {
		in.Differences = []evidence.Finding{{Reason: evidence.ReasonNonReproducible, Subject: "evidence/run_log.txt", Detail: "Line 3 differs."}}
	}, evidence.ReasonNonReproducible, "Line 3 differs"},
	{"difference without a reason", func(in *Input) { in.Differences = []evidence.Finding{{Detail: "Line 3 differs."}} }, evidence.ReasonNonReproducible, "Line 3 differs"},
}

// consistent is what tests.json says that follows from its commands.
func consistent(in Input) string {
	t := in.Tests
	all := fmt.Sprint(t.Command, codeText(t.ExitCode), t.FailingTestsBefore, t.PassingTestsAfter)
	for _, c := range t.Commands {
		all += fmt.Sprint(c.FailingTestsBefore, c.PassingTestsAfter)
	}
	return all
}

// summarized has a tests.json that follows from its commands.
func summarized(in Input) Input {
	in.Tests.Summarize(in.Manifest)
	return in
}

// printedTouch is a refusal that only the output of the gate reports.
var printedTouch = []evidence.Touch{{Path: "~/.ssh", How: evidence.TouchPrinted, Line: "cat: ~/.ssh: denied"}}

// printedNetwork are attempts that only the output of the gate reports.
func printedNetwork(in *Input) {
	o := observed(in)
	o.Counted, o.NetworkAttempts, o.NetworkLine = "output", 2, "Network is unreachable"
}

// TestWarnings: without strict mode, text of a gate and a missing report are notes and do not
// change the verdict. Each has the reason of strict mode.
func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(in *Input)
		reason evidence.StopReason // of strict mode
		want   []string
	}{
		"a printed refusal": {func(in *Input) { observed(in).Touched = printedTouch }, evidence.ReasonOutsideBoundary, []string{
			`Gate 1 printed that it did not reach ~/.ssh: "cat: ~/.ssh: denied". Strict mode blocks on such a line, unless a pattern of allow_suspects in the wish matches it.`,
		}},
		"printed attempts at the network": {func(in *Input) { in.Manifest.Mode.AllowUnobserved = true; printedNetwork(in) }, evidence.ReasonNetwork, []string{
			`Gate 1 printed 2 times that it did not reach the network: "Network is unreachable". Strict mode blocks on such a line, unless a pattern of allow_suspects in the wish matches it.`,
		}},
		"no report": {noReport, evidence.ReasonIncomplete, []string{
			"Gate 1 (pytest -q): no test was seen. Only its exit code counted; strict mode demands a report of its tests.",
		}},
		"a check owes no test": {func(in *Input) {
			noReport(in)
			check := *gate(in)
			check.Index, check.Kind = 2, evidence.KindCheck
			one := *ran(in)
			one.Index, one.Kind = 2, evidence.KindCheck
			*in = passing()
			in.Manifest.Mode.Strict = false
			in.Manifest.Gates, in.Tests.Commands = append(in.Manifest.Gates, check), append(in.Tests.Commands, one)
			in.Manifest.GateCommands = []string{"pytest -q", "pytest -q"}
			in.Plan.GateCommands = in.Manifest.GateCommands
			also(in, evidence.Observation{})
			observed2(in).Index = 2
			for _, name := range rawFiles("", 2) {
				in.Artifacts.Artifacts = append(in.Artifacts.Artifacts, evidence.HashedFile{FilePath: name, SHA256: hash})
			}
		}, "", nil},
		"a network that was asked for": {func(in *Input) {
			in.Manifest.Mode.Offline, in.Manifest.Egress = false, &evidence.Egress{Level: "registry"}
			observed(in).Network = "registry"
			printedNetwork(in)
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := passing()
			in.Manifest.Mode.Strict = false
			c.change(&in)
			in = summarized(in)
			v := Judge(in)
			assert.Equal(t, evidence.Pass, v.Status, "%+v", v.Findings)
			var got []string
			for _, w := range v.Warnings {
				assert.Equal(t, c.reason, w.Reason)
				got = append(got, w.Detail)
			}
			assert.Equal(t, c.want, got)
			if in.Manifest.Mode.Strict, in.Manifest.Mode.AllowUnobserved = true, false; c.reason != "" {
				v = Judge(in)
				assert.Equal(t, evidence.Blocked, v.Status)
				assert.Contains(t, reasonsOf(v), c.reason)
				assert.Empty(t, v.Warnings)
			}
		})
	}
}

// TestNoTestOfAFailedGate: a gate that failed needs no warning.
func TestNoTestOfAFailedGate(t *testing.T) {
	in := passing()
	in.Manifest.Mode.Strict = false
	noReport(&in)
	ran(&in).ExitCode = exits(1)
	assert.Empty(t, Judge(in).Warnings)
}

func reasonsOf(v evidence.Verdict) (all []evidence.StopReason) {
	for _, f := range v.Findings {
		all = append(all, f.Reason)
	}
	return all
}

func TestJudgeFindsEveryAspect(t *testing.T) {
	provoked := map[evidence.StopReason]bool{}
	for _, a := range aspects {
		t.Run(a.name, func(t *testing.T) {
			in := passing()
			a.change(&in)
			if consistent(in) == consistent(passing()) {
				in = summarized(in) // the aspect is another one
			}
			v := Judge(in)
			found := false
			for _, f := range v.Findings {
				found = found || f.Reason == a.reason && strings.Contains(f.Detail, a.detail)
				assert.NotEmpty(t, f.Detail)
			}
			require.True(t, found, "%+v", v.Findings)
			assert.Equal(t, a.reason, v.StopReason, "%+v", v.Findings)
			want := evidence.Blocked
			if a.reason == evidence.ReasonMissingDependency {
				want = evidence.NeedInfo
			}
			assert.Equal(t, want, v.Status)
			assert.Equal(t, a.reason.Class(), v.StopClass)
		})
		provoked[a.reason] = true
	}
	for _, reason := range order {
		assert.True(t, provoked[reason], "%s is provoked by no case", reason)
	}
}

// TestClasses: the words of RO-09.
func TestClasses(t *testing.T) {
	words := map[evidence.StopReason]string{
		evidence.ReasonPass:          "PASS",
		evidence.ReasonModeViolation: "INVARIANT_VIOLATION", evidence.ReasonToolsDisabled: "BLOCKED", evidence.ReasonNotSealed: "INVARIANT_VIOLATION",
		evidence.ReasonNoCommands: "NULL_INPUT", evidence.ReasonNoWorkspace: "NULL_INPUT", evidence.ReasonToolRefused: "SECURITY_BLOCKED",
		evidence.ReasonDirty: "INVARIANT_VIOLATION", evidence.ReasonTampered: "INVARIANT_VIOLATION", evidence.ReasonOutsideBoundary: "INVARIANT_VIOLATION",
		evidence.ReasonNetwork: "CLAIM_POWER_INSUFFICIENT", evidence.ReasonUnpinned: "CLAIM_POWER_INSUFFICIENT",
		evidence.ReasonEnvironment: "ENVIRONMENT_MISMATCH", evidence.ReasonUndeclared: "INVARIANT_VIOLATION", evidence.ReasonMissingDependency: "NEED_INFO",
		evidence.ReasonTimeout: "BLOCKED", evidence.ReasonGateFailed: "BLOCKED", evidence.ReasonRegression: "INVARIANT_VIOLATION",
		evidence.ReasonNoTests: "EVIDENCE_INCOMPLETE", evidence.ReasonIncomplete: "EVIDENCE_INCOMPLETE",
		evidence.ReasonNondeterministic: "NON_REPRODUCIBLE", evidence.ReasonNonReproducible: "NON_REPRODUCIBLE",
	}
	require.Len(t, words, len(order)+1)
	for reason, word := range words {
		assert.Equal(t, word, reason.Class(), reason)
	}
}

func TestNoCommands(t *testing.T) {
	in := passing()
	in.Manifest.GateCommands, in.Manifest.Gates, in.Tests.Commands = nil, nil, nil
	v := Judge(in)
	assert.Equal(t, evidence.ReasonNoCommands, v.StopReason)
	assert.Equal(t, "NULL_INPUT", v.StopClass)
	assert.Len(t, v.Findings, 1)
	assert.Empty(t, v.ReplayCommands)
}

// order has all reasons against a pass, the most severe first.
var order = []evidence.StopReason{
	evidence.ReasonModeViolation, evidence.ReasonToolsDisabled, evidence.ReasonNotSealed, evidence.ReasonNoCommands, evidence.ReasonNoWorkspace,
	evidence.ReasonToolRefused, evidence.ReasonDirty, evidence.ReasonTampered, evidence.ReasonOutsideBoundary, evidence.ReasonNetwork,
	evidence.ReasonUnpinned, evidence.ReasonEnvironment, evidence.ReasonUndeclared, evidence.ReasonTimeout,
	evidence.ReasonGateFailed, evidence.ReasonRegression, evidence.ReasonNoTests, evidence.ReasonIncomplete, evidence.ReasonNondeterministic,
	evidence.ReasonNonReproducible, evidence.ReasonMissingDependency,
}

// TestSeverity puts two things wrong at once: the graver one decides, both are reported.
func TestSeverity(t *testing.T) {
	alone := map[evidence.StopReason]aspect{}
	for _, a := range aspects {
		if _, has := alone[a.reason]; !has {
			alone[a.reason] = a
		}
	}
	for i, grave := range order {
		assert.Equal(t, i, grave.Rank())
		for _, light := range order[i+1:] {
			in := passing()
			alone[light].change(&in)
			alone[grave].change(&in)
			v := Judge(in)
			assert.Equal(t, grave, v.StopReason, "%s with %s", grave, light)
			for k := 1; k < len(v.Findings); k++ {
				assert.LessOrEqual(t, v.Findings[k-1].Reason.Rank(), v.Findings[k].Reason.Rank())
			}
		}
	}
}

func TestJudgeAccepts(t *testing.T) {
	for name, change := range map[string]func(in *Input){
		"a gate that is to fail and does": func(in *Input) { failing(in, "a") },
		"a signal that is expected": func(in *Input) {
			failing(in, "a")
			gate(in).ExpectExit, ran(in).ExpectExit, ran(in).ExitCode, ran(in).Ending = 134, 134, exits(134), "signaled"
		},
		"127 that is expected": func(in *Input) {
			failing(in, "a")
			gate(in).ExpectExit, ran(in).ExpectExit, ran(in).ExitCode = 127, 127, exits(127)
		},
		"a dirty tree when not strict": func(in *Input) {
			in.Manifest.Mode.Strict, in.Manifest.Repo.Dirty, in.Env.GitDirty = false, true, true
		},
		"no repository when not strict": func(in *Input) {
			in.Manifest.Mode.Strict, in.Manifest.Repo.Commit, in.Env.GitCommit = false, "", ""
		},
		"weaker counting that the wish accepts": func(in *Input) {
			in.Manifest.Mode.Strict, in.Manifest.Mode.AllowUnobserved = false, true
			in.Manifest.Mode.Strict, observed(in).Counted, observed(in).Watched = false, "output", false
		},
		"an unlocked image without a claim": func(in *Input) {
			in.Manifest.Mode.ClaimGrade, in.Manifest.Toolchain.Locked, in.Env.ImageLocked = false, false, false
		},
		"no pinned Python in a pinned image": func(in *Input) { in.Manifest.Toolchain.Python = "" },
		"a Python without its last part":     func(in *Input) { in.Manifest.Toolchain.Python = "3.11" },
		"Python by its other name":           func(in *Input) { in.Env.LanguageRuntimes = map[string]string{"python3": "3.11.2"} },
		"no toolchain": func(in *Input) {
			in.Manifest.Toolchain.Mounts, in.Env.Toolchain = nil, nil
		},
		"requests with a network level": func(in *Input) {
			in.Manifest.Mode.Offline, in.Manifest.Egress = false, &evidence.Egress{Level: "registries"}
			observed(in).Network, observed(in).NetworkAttempts, observed(in).Refused, observed(in).Counted = "registries", 4, 1, ""
		},
		"an exit code without a report when not strict": func(in *Input) { noReport(in); in.Manifest.Mode.Strict = false },
		"a pass that was not expected":                  func(in *Input) { counts(in, evidence.Counts{Total: 2, XFailed: 1, XPassed: 1}) },
		"some skipped":                                  func(in *Input) { counts(in, evidence.Counts{Total: 9, Passed: 1, Skipped: 8}) },
		"cases beyond the limit": func(in *Input) {
			ran(in).Counts, ran(in).CasesDropped = &evidence.Counts{Total: 30, Passed: 30}, 28
		},
		"the same failures as before": func(in *Input) {
			failing(in, "a")
			withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 1, Failed: 1}, FailingTests: []string{"a"}})
		},
		"fewer failures than before": func(in *Input) {
			withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 2, Failed: 2}, FailingTests: []string{"t.py::a", "t.py::b"}})
		},
		"a check beside the tests": func(in *Input) {
			in.Manifest.GateCommands = append(in.Manifest.GateCommands, "ruff check")
			in.Plan.GateCommands = in.Manifest.GateCommands
			in.Manifest.Gates = append(in.Manifest.Gates, evidence.Gate{Index: 2, Command: evidence.Command{Cmd: "ruff check", Kind: evidence.KindCheck}, Argv: []string{"ruff", "check"}})
			in.Tests.Commands = append(in.Tests.Commands, evidence.CommandTests{
				Index: 2, Command: "ruff check", Argv: []string{"ruff", "check"}, Kind: evidence.KindCheck, Started: true, Ending: "exited", ExitCode: exits(0), LogsComplete: true,
			})
			in.Observations.Commands = append(in.Observations.Commands, evidence.Observation{Index: 2, Network: "none", Counted: "kernel", Watched: true, Complete: true})
			for _, name := range rawFiles("", 2) {
				in.Artifacts.Artifacts = append(in.Artifacts.Artifacts, evidence.HashedFile{FilePath: name, SHA256: hash})
			}
		},
		"repetitions with evidence":      repeated,
		"a baseline with the same tests": func(in *Input) { withBaseline(in, passed("t.py::a", "t.py::b")) },
		"a baseline with fewer tests":    func(in *Input) { withBaseline(in, passed("t.py::a")) },
		"a test that was skipped before is gone": func(in *Input) {
			withBaseline(in, &evidence.Baseline{Counts: &evidence.Counts{Total: 2, Passed: 1, Skipped: 1}, PassingTests: []string{"t.py::a"}})
		},
		"unobserved with a network level": func(in *Input) {
			in.Manifest.Mode.Offline, in.Manifest.Mode.Strict, in.Manifest.Egress = false, false, &evidence.Egress{Level: "registries"}
			observed(in).Network, observed(in).Counted, observed(in).Watched = "registries", "", false
		},
		"only expected failures where a failure is to come": func(in *Input) {
			failing(in)
			counts(in, evidence.Counts{Total: 1, XFailed: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := passing()
			change(&in)
			v := Judge(summarized(in))
			assert.Equal(t, evidence.Pass, v.Status, "%+v", v.Findings)
			assert.Empty(t, v.Findings)
		})
	}
}

// TestNeedInfoOnlyAlone: what lacks a program needs information only if nothing else is
// wrong (resolution 43).
func TestNeedInfoOnlyAlone(t *testing.T) {
	lacks := func(in *Input) {
		ran(in).ExitCode, in.Tests.ExitCode = exits(127), exits(127)
		ran(in).Problem, ran(in).Source = "there is no report", evidence.ReportNone
		counts(in, evidence.Counts{})
	}
	in := passing()
	lacks(&in)
	v := Judge(summarized(in))
	assert.Equal(t, evidence.NeedInfo, v.Status)
	assert.Len(t, v.Findings, 1, "that there are no tests is a consequence: %+v", v.Findings)

	in = passing()
	lacks(&in)
	ran(&in).Problem, ran(&in).Source = "", evidence.ReportPytest
	ran(&in).Cases = []evidence.Case{{ID: "t.py::a", Outcome: evidence.Failed}, {ID: "t.py::b", Outcome: evidence.Passed}}
	ran(&in).Counts = &evidence.Counts{Total: 2, Passed: 1, Failed: 1}
	v = Judge(summarized(in))
	assert.Equal(t, evidence.Blocked, v.Status)
	assert.Equal(t, evidence.ReasonGateFailed, v.StopReason)
	assert.Equal(t, "BLOCKED", v.StopClass)
	assert.Contains(t, v.Findings[0].Detail, "1 failing test: t.py::a.")
	assert.Equal(t, evidence.ReasonMissingDependency, v.Findings[1].Reason)
}

// TestEndedRunTellsTheCauseFirst: a run that was ended owes no tests.
func TestEndedRunTellsTheCauseFirst(t *testing.T) {
	in := passing()
	in.Pre = []evidence.Finding{{Reason: evidence.ReasonIncomplete, Subject: "run", Detail: "The run was not finished: interrupted."}}
	ran(&in).Ending, ran(&in).ExitCode, ran(&in).Source = "canceled", exits(143), ""
	counts(&in, evidence.Counts{})
	in.Manifest.GateCommands = append(in.Manifest.GateCommands, "pytest b")
	in.Plan.GateCommands = in.Manifest.GateCommands
	in.Manifest.Gates = append(in.Manifest.Gates, evidence.Gate{Index: 2, Command: evidence.Command{Cmd: "pytest b", Kind: evidence.KindTests}, Argv: []string{"pytest", "b"}})
	v := Judge(summarized(in))
	assert.Equal(t, evidence.ReasonIncomplete, v.StopReason, "%+v", v.Findings)
	assert.Equal(t, in.Pre[0], v.Findings[0])
	assert.Len(t, v.Findings, 3, "%+v", v.Findings)
}

// TestStoppedRunTellsWhyOnly: what never began has neither results nor observations.
func TestStoppedRunTellsWhyOnly(t *testing.T) {
	in := Input{
		Manifest: passing().Manifest,
		Pre:      []evidence.Finding{{Reason: evidence.ReasonDirty, Subject: "repository", Detail: "Two files are in no commit."}},
		Check:    evidence.CheckReport{ManifestSHA256: hash, Missing: []string{evidence.ObservationsFile, evidence.RunLogFile}},
	}
	in.Manifest.Repo.Dirty = true
	v := Judge(in)
	require.Len(t, v.Findings, 2, "%+v", v.Findings)
	assert.Equal(t, in.Pre[0], v.Findings[0])
	assert.Equal(t, evidence.RunLogFile, v.Findings[1].Subject)
	assert.Equal(t, in.Check.Missing, v.EvidenceSummary.Missing)
}

// TestManyAlikeFindings are cut, and their number is reported.
func TestManyAlikeFindings(t *testing.T) {
	in := passing()
	for i := range 50 {
		observed(&in).Changed = append(observed(&in).Changed, fmt.Sprintf("f%02d", i))
	}
	v := Judge(in)
	require.Len(t, v.Findings, maxAlike+1)
	assert.Equal(t, "There are 30 more findings of this kind.", v.Findings[maxAlike].Detail)
}

func TestSummaryHasTheWeakerOfTwo(t *testing.T) {
	in := passing()
	in.Observations.Commands = append(in.Observations.Commands,
		evidence.Observation{Index: 2, Counted: "output"}, evidence.Observation{Index: 3, Counted: "kernel", Watched: true, Complete: true})
	s := Judge(in).EvidenceSummary
	assert.Equal(t, "output", s.NetworkCounted)
	assert.False(t, s.Watched)
}
