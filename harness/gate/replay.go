package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/git"
	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// ReplayOptions select what runs again.
type ReplayOptions struct {
	// From is a gate directory or a GATES.json. A RunManifest.json beside it gives the replay
	// the same environment, limits and tools. Without one it has the defaults.
	From string
	// Workspace is the boundary on this machine. Empty is its recorded place, which only a
	// RunManifest.json has.
	Workspace string
	// OutDir is a gate directory for the evidence of the replay; empty keeps none.
	OutDir  string
	Replace bool
}

// ReplayV1 names the wire form of [ReplayReport].
const ReplayV1 = "evalbox/replay/v1"

// Outcome is the result of a replay in a word.
type Outcome string

// Outcomes of a replay.
const (
	ReplaySame      Outcome = "same"
	ReplayDifferent Outcome = "different"
	// ReplayCannot means that the same gates could not run; Missing says why.
	ReplayCannot Outcome = "cannot_replay"
)

// ReplayReport is the result of a replay. It holds no time, no path of this host and no ID of a
// run, so that equal replays have equal reports.
type ReplayReport struct {
	Schema  string  `json:"schema"`
	Outcome Outcome `json:"outcome"`
	// Missing lists what prevents a replay.
	Missing []Problem `json:"missing"`
	// Differences are ordered by gate; run-wide differences come last.
	Differences []Difference `json:"differences"`
	// FirstLine is the first line that differs between the normalized logs, if the recorded
	// one exists.
	FirstLine *Line `json:"first_line"`
	// Commands are the commands of the replay, and how they ended this time.
	Commands []ReplayedCommand `json:"commands"`
	// ImageID, Workspace and BehaviorHash identify the image, the files and the normalized
	// log of the replay.
	ImageID      string `json:"image_id"`
	Workspace    string `json:"workspace"`
	BehaviorHash string `json:"behavior_hash"`
	// SHA256 is the hash of the canonical JSON of the report without it.
	SHA256 string `json:"sha256"`
}

// Replay runs the recorded commands again, in the same image, on the same files, and compares.
// Nothing runs if image, tools or files are not the recorded ones, or if a gate directory does
// not match its hashes. A replay that differs or cannot be done is a report and not an
// error. An error says that From cannot be replayed, that OutDir cannot be used
// ([*DirectoryError]), that the sandbox failed, or that ctx ended.
func (h *Harness) Replay(ctx context.Context, o ReplayOptions) (ReplayReport, error) {
	rec, err := openRecording(ctx, o.From)
	if err != nil {
		return ReplayReport{}, err
	}
	report, err := rec.replay(ctx, h, o)
	if err := errors.Join(err, rec.root.Close()); err != nil {
		return ReplayReport{}, err
	}
	text, err := evidence.Canonical(report)
	report.SHA256 = sum(text)
	return report, err
}

func (rec *recording) replay(ctx context.Context, h *Harness, o ReplayOptions) (report ReplayReport, err error) {
	report = ReplayReport{
		Schema: ReplayV1, Outcome: ReplayCannot, Missing: []Problem{}, Differences: []Difference{}, Commands: []ReplayedCommand{},
		ImageID: rec.gates.ImageID,
	}
	m, missing, err := rec.plan(ctx, h.o.Policy, o)
	if err != nil || len(missing) > 0 {
		report.Missing = append(report.Missing, missing...)
		return report, err
	}
	if err := outside(o.OutDir, m.Workspace); o.OutDir != "" && err != nil {
		return report, err
	}
	g := &run{Harness: h, m: m, recorded: rec.gates.Workspace, recordedEntries: rec.entries}
	defer func() { err = errors.Join(err, g.clean()) }()
	out := o.OutDir
	if out == "" {
		if out, err = g.newTemp("replay"); err != nil {
			return report, err
		}
		out = filepath.Join(out, "gate") // a gate directory has a lock of its own
	}
	dir, err := openDirectory(out, o.Replace, kept{still: []string{m.Workspace}, whole: []string{rec.root.Name()}})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	g.root = dir.root
	g.tell(dir)
	made, err := g.again(ctx, rec.lock)
	if err != nil {
		return report, err
	}
	for _, f := range g.findings {
		if f.Reason == evidence.ReasonIncomplete && len(made.Tests.Commands) == len(g.m.Gates) {
			continue // everything ran, so it is a part of the verdict
		}
		report.Missing = append(report.Missing, Problem{f.Subject, f.Detail})
	}
	if len(report.Missing) == 0 {
		rec.compare(&report, dir.root, made)
	}
	return report, nil
}

// again executes the manifest of a replay, as [Harness.Run] does. lock is the sealed wish, if
// there is one.
func (g *run) again(ctx context.Context, lock []byte) (Report, error) {
	failure := g.writeManifest(ctx)
	if failure == nil && len(lock) > 0 {
		failure = evidence.WriteText(g.root, evidence.WishLockFile, lock)
	}
	if failure == nil {
		failure = g.execute(ctx)
	}
	report, err := g.conclude(ctx, failure)
	return report, errors.Join(failure, err)
}

// compare adds the differences between the expected signals and those of the replay.
func (rec *recording) compare(report *ReplayReport, root *os.Root, made Report) {
	report.ImageID, report.Workspace, report.BehaviorHash = made.Gates.ImageID, made.Gates.Workspace, made.Gates.BehaviorHash
	exits := map[int]*int{}
	for _, c := range made.Tests.Commands {
		exits[c.Index-1] = c.ExitCode
	}
	for i, c := range made.Gates.Commands {
		report.Commands = append(report.Commands, ReplayedCommand{Cmd: c.Cmd, Ending: c.Ending, ExitCode: exits[i], Passed: c.Passed, LogSHA256: c.LogSHA256})
	}
	report.Differences = append(report.Differences, compareGates(rec.gates, made.Gates, rec.expectedExits(), report.Commands)...)
	for i, c := range rec.input.Tests.Commands {
		if ran := made.Tests.Commands; i < len(ran) && ran[i].Index == c.Index {
			if d := compareCases(c, ran[i]); d != nil {
				report.Differences = append(report.Differences, *d)
			}
		}
	}
	if reordered(rec.input.Tests, made.Tests) {
		report.Differences = slices.DeleteFunc(report.Differences, func(d Difference) bool {
			return d.Signal == "log" && slices.ContainsFunc(rec.input.Tests.Commands, func(c evidence.CommandTests) bool { return c.Index == d.Gate && c.LogSHA256 == d.Want })
		})
	} else if line, err := compareLogs(rec.root, root); err == nil { // a recorded log may be missing: its hash was compared
		report.FirstLine = line
	}
	reported := slices.ContainsFunc(report.Differences, func(d Difference) bool { return d.Signal == "log" || d.Signal == "behavior_hash" })
	if line := report.FirstLine; line != nil && !reported {
		report.Differences = append(report.Differences, Difference{Signal: "log", Subject: evidence.RunLogFile, Want: line.Want, Got: line.Got})
	}
	if want, got := rec.verdicts(made); want != got {
		report.Differences = append(report.Differences, Difference{Signal: "verdict", Want: want, Got: got})
	}
	report.Outcome = ReplaySame
	if len(report.Differences) > 0 {
		report.Outcome = ReplayDifferent
	}
}

// verdicts returns the expected and the found reasons against a pass. A GATES.json that stands
// alone expects only that no gate tries what is forbidden to all gates.
func (rec *recording) verdicts(made Report) (want, got string) {
	found := made.Verdict.Findings
	if rec.complete {
		return reasonWords(rec.expectedFindings(made.Manifest)), reasonWords(found)
	}
	tried := slices.DeleteFunc(slices.Clone(found), func(f evidence.Finding) bool {
		return f.Reason != evidence.ReasonOutsideBoundary && f.Reason != evidence.ReasonNetwork
	})
	return reasonWords(nil), reasonWords(tried)
}

// reasonWords lists the reasons of findings with their gates, sorted, each once.
func reasonWords(findings []evidence.Finding) string {
	var words []string
	for _, f := range findings {
		word := string(f.Reason)
		if f.Gate > 0 {
			word = fmt.Sprintf("%s in gate %d", word, f.Gate)
		}
		words = append(words, word)
	}
	slices.Sort(words)
	if words = slices.Compact(words); len(words) == 0 {
		return "nothing against a pass"
	}
	return strings.Join(words, ", ")
}

// sum is a SHA-256 in hexadecimal.
func sum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// recording is the input of a replay. It is untrusted.
type recording struct {
	gates evidence.Gates
	// complete says that a RunManifest.json lies beside GATES.json. Then input is all evidence
	// of the recorded run, lock its sealed wish, and unfit lists the files that do not match
	// their hashes: a replay of other evidence would prove nothing.
	complete bool
	input    judge.Input
	unfit    []Problem
	lock     []byte
	// entries are those of the recorded workspace; nil if they are not known.
	entries map[string]string
	// root is the directory of GATES.json.
	root *os.Root
}

// openRecording reads GATES.json and the documents beside it.
func openRecording(ctx context.Context, from string) (rec *recording, err error) {
	dir, name := from, evidence.GatesFile
	if info, err := os.Stat(from); err == nil && !info.IsDir() {
		dir, name = filepath.Dir(from), filepath.Base(from)
	}
	root, err := openExisting(dir)
	if err != nil {
		return nil, err
	}
	rec = &recording{root: root}
	if err = rec.read(ctx, name); err != nil {
		return nil, errors.Join(fmt.Errorf("replay of %s: %w", from, err), root.Close())
	}
	return rec, nil
}

func (rec *recording) read(ctx context.Context, name string) error {
	text, err := evidence.ReadText(rec.root, name, judge.MaxGatesText)
	if err != nil {
		return fsx.Cause(err)
	}
	if rec.gates, err = judge.ParseGates(text); err != nil {
		return err
	}
	if _, err := rec.root.Lstat(evidence.RunManifestFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	rec.complete = true
	if rec.input, err = loaded(ctx, rec.root); err != nil {
		return err
	}
	if rec.unfit = unfit(rec.input.Check); len(rec.unfit) == 0 {
		rec.lock, err = evidence.ReadText(rec.root, evidence.WishLockFile, spec.MaxDocument)
		var files evidence.Workspace
		if evidence.Read(rec.root, evidence.WorkspaceFile, evidence.MaxDocument, &files) == nil { // it only explains
			rec.entries = files.Entries
		}
	}
	return err
}

// plan returns the manifest of the replay, or what prevents it. Nothing is changed.
func (rec *recording) plan(ctx context.Context, p policy.Policy, o ReplayOptions) (m evidence.RunManifest, missing []Problem, err error) {
	lack := func(subject, format string, args ...any) {
		missing = append(missing, Problem{subject, fmt.Sprintf(format, args...)})
	}
	if rec.complete {
		m, missing = rec.input.Manifest, rec.unfit
		if !m.Mode.Execute || !m.Mode.Sealed || !m.Mode.Tools {
			lack(evidence.RunManifestFile, "says that nothing was executed")
		}
		if !sameCommands(rec.gates, m) {
			lack(evidence.GatesFile, "has other commands than %s", evidence.RunManifestFile)
		}
	} else {
		var findings []evidence.Finding
		if m, findings, err = rec.specFromGates(p, o.Workspace); err != nil {
			return m, nil, err
		}
		for _, f := range findings {
			lack(f.Subject, "%s", f.Detail)
		}
	}
	m.Mode.Replay, m.Mode.Repeats, m.Baseline = true, 1, ""
	m.Repo.BaselineRev, m.Repo.BaselineCommit = "", ""
	if rec.gates.ImageID != "" {
		// The exact image needs no lock to be the one that was used.
		m.Toolchain.ImageID, m.Mode.ClaimGrade = rec.gates.ImageID, false
	}
	if rec.gates.Offline {
		m.Egress = nil
	}
	if o.Workspace != "" {
		if m.Workspace, err = filepath.Abs(o.Workspace); err != nil {
			return m, nil, err
		}
	}
	if len(missing) == 0 {
		missing, err = rec.checkInputs(ctx, m, o)
	}
	return m, missing, err
}

// sameCommands compares the two documents of a gate directory.
func sameCommands(g evidence.Gates, m evidence.RunManifest) bool {
	if len(g.Commands) != len(m.Gates) {
		return false
	}
	for i, c := range g.Commands {
		if c.Cmd != m.Gates[i].Cmd || c.ExpectExit != m.Gates[i].ExpectExit || m.Gates[i].Index != i+1 {
			return false
		}
	}
	return true
}

// checkInputs checks that there is a workspace, and that it is the recorded one if only its
// commit was recorded. Hashes are compared with those of the private copies, before anything
// runs.
func (rec *recording) checkInputs(ctx context.Context, m evidence.RunManifest, o ReplayOptions) ([]Problem, error) {
	missing := func(format string, args ...any) []Problem {
		return []Problem{{"workspace", fmt.Sprintf(format, args...)}}
	}
	switch want := rec.gates.Commit; {
	case m.Workspace == "":
		return missing("is not named: there is no %s that says where it was", evidence.RunManifestFile), nil
	case rec.gates.Workspace == "" && want == "" && o.Workspace == "":
		return missing("neither a hash nor a commit says what was in it; name the one that is meant"), nil
	case !fsx.IsDir(m.Workspace):
		return missing("is not there or no folder"), nil
	case rec.gates.Workspace == "" && want != "":
		facts, _, err := git.Status(ctx, m.Workspace, nil)
		if err != nil {
			return nil, err
		}
		if facts.Commit != want {
			return missing("is at commit %q, recorded is %q", facts.Commit, want), nil
		}
		if facts.Dirty {
			return missing("has changes since the recorded commit"), nil
		}
	}
	return nil, nil
}

// expectedFindings judges the recorded run as its replay is judged: once, without a baseline,
// and without a claim. m is the manifest of the replay.
func (rec *recording) expectedFindings(m evidence.RunManifest) []evidence.Finding {
	in := rec.input
	in.Manifest, in.Differences = m, nil
	in.Tests.Commands = slices.Clone(in.Tests.Commands)
	for i := range in.Tests.Commands {
		in.Tests.Commands[i].Baseline, in.Tests.Commands[i].FailingTestsBefore = nil, nil
	}
	in.Tests.FailingTestsBefore = nil
	in.Observations.Commands = slices.DeleteFunc(slices.Clone(in.Observations.Commands), func(o evidence.Observation) bool { return o.Pass != "" })
	return judge.Judge(in).Findings
}

// specFromGates is the manifest of a GATES.json that stands alone: its commands with the
// defaults of a wish, and without a claim.
func (rec *recording) specFromGates(p policy.Policy, workspace string) (evidence.RunManifest, []evidence.Finding, error) {
	g := rec.gates
	if !g.Offline {
		return evidence.RunManifest{}, []evidence.Finding{{
			Subject: "network", Detail: "the gates were not offline, and there is no " + evidence.RunManifestFile + " that says what they could reach",
		}}, nil
	}
	document := map[string]any{
		"schema": spec.SchemaV1, "name": "replay", "io_boundary": g.IOBoundary, "offline": true, "claim_grade": false,
	}
	if g.Image != "" {
		document["image"] = g.Image
	}
	var commands []any
	for _, c := range g.Commands {
		commands = append(commands, map[string]any{"cmd": c.Cmd, "expect_exit": c.ExpectExit})
	}
	document["gate_commands"] = commands
	text, err := json.Marshal(document)
	if err != nil {
		return evidence.RunManifest{}, nil, err
	}
	w, err := spec.Parse(text, evidence.GatesFile)
	if err != nil {
		return evidence.RunManifest{}, nil, err
	}
	lock := spec.Lock{Schema: spec.LockV1, Wish: w, Toolchain: evidence.Toolchain{Image: g.Image, ImageID: g.ImageID}}
	m, findings := spec.Build(spec.Facts{
		Lock: lock, Sealed: true, WorkspaceExists: true, Workspace: workspace, Policy: p,
		Mode: evidence.Mode{Execute: true, Tools: true, Flags: evidence.Flags{Offline: true}, Replay: true, Repeats: 1},
	})
	m.WishSHA256 = g.WishSHA256
	return m, findings, nil
}

// expectedExits returns the exit codes of the recorded run, or else those that its commands
// were expected to have.
func (rec *recording) expectedExits() []*int {
	exits := make([]*int, len(rec.gates.Commands))
	for i, c := range rec.gates.Commands {
		exits[i] = new(c.ExpectExit)
	}
	for _, c := range rec.input.Tests.Commands {
		if i := c.Index - 1; i >= 0 && i < len(exits) {
			exits[i] = c.ExitCode
		}
	}
	return exits
}
