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

// ReplayOptions say what is run again.
type ReplayOptions struct {
	// From is a gate directory or a GATES.json. With a RunManifest.json beside it, a
	// replay uses the same environment, limits and tools; without, it has the defaults.
	From string
	// Workspace is the boundary on this machine; empty is where it was, which only a
	// RunManifest.json tells.
	Workspace string
	// OutDir is where the evidence of the replay is kept, a gate directory as that of
	// [Run]; empty keeps none.
	OutDir  string
	Replace bool
}

// ReplayV1 names the wire form of [ReplayReport].
const ReplayV1 = "evalbox/replay/v1"

// Outcome is what a replay came to.
type Outcome string

// Outcomes of a replay.
const (
	ReplaySame      Outcome = "same"
	ReplayDifferent Outcome = "different"
	// ReplayCannot means that the same thing could not be run: Missing says why.
	ReplayCannot Outcome = "cannot_replay"
)

// ReplayReport is what a replay came to. It holds no time, no path of this host and no
// ID of a run, so that the same replay has the same report.
type ReplayReport struct {
	Schema  string  `json:"schema"`
	Outcome Outcome `json:"outcome"`
	// Missing is what a replay would need, if it cannot be done.
	Missing []Problem `json:"missing"`
	// Differences are in the order of the gates; what is of no gate comes last.
	Differences []Difference `json:"differences"`
	// FirstLine is the first line that differs between the normalized logs, where the
	// recorded one is there.
	FirstLine *Line `json:"first_line"`
	// Commands are what was run again, and how it ended this time.
	Commands []ReplayedCommand `json:"commands"`
	// ImageID and Workspace are what was run and on which files; BehaviorHash is that of
	// the replay's normalized log.
	ImageID      string `json:"image_id"`
	Workspace    string `json:"workspace"`
	BehaviorHash string `json:"behavior_hash"`
	// SHA256 is the hash of the canonical JSON of the report without it.
	SHA256 string `json:"sha256"`
}

// ReplayedCommand is one command of a replay.
type ReplayedCommand struct {
	Cmd       string `json:"cmd"`
	Ending    string `json:"ending"`
	ExitCode  *int   `json:"exit_code"`
	Passed    int    `json:"passed"`
	LogSHA256 string `json:"log_sha256"`
}

// Difference is one expected signal that did not come.
type Difference struct {
	// Gate counts from 1; 0 is the whole run.
	Gate int `json:"gate"`
	// Signal is exit_code, ending, passed, log, behavior_hash, artifact or verdict. Subject
	// is the file of an artifact, or the log where only a line of it tells the difference.
	// The verdict has the reasons that speak against a pass.
	Signal  string `json:"signal"`
	Subject string `json:"subject"`
	Want    string `json:"want"`
	Got     string `json:"got"`
}

// Replay runs the recorded commands again, in the same image, on the same files, and compares.
// Nothing runs if image, tools or files are not the recorded ones, or if a gate directory does
// not match its hashes. A replay that differs or cannot be done is a report and not an
// error. An error says that From cannot be replayed, that OutDir cannot be used
// ([*DirectoryError]), that the sandbox failed, or that ctx ended.
func (h *Harness) Replay(ctx context.Context, o ReplayOptions) (ReplayReport, error) {
	rec, err := openRecording(o.From)
	if err != nil {
		return ReplayReport{}, err
	}
	report, err := rec.replay(ctx, h, o)
	if err := errors.Join(err, rec.close()); err != nil {
		return ReplayReport{}, err
	}
	return report.sealed()
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
	g := &run{Harness: h, m: m, recorded: rec.gates.Workspace}
	if rec.gates.Commit != "" {
		g.recordedAt = fmt.Sprintf(" at commit %.40s", rec.gates.Commit)
	}
	defer func() { err = errors.Join(err, g.clean()) }()
	out := o.OutDir
	if out == "" {
		if out, err = g.newTemp("replay"); err != nil {
			return report, err
		}
	}
	dir, err := openDirectory(out, o.Replace)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	g.root = dir.root
	made, err := g.again(ctx, rec.lock)
	if err != nil {
		return report, err
	}
	for _, f := range g.findings {
		if f.Reason == evidence.ReasonIncomplete && len(made.Tests.Commands) == len(g.m.Gates) {
			continue // everything ran: it is part of the verdict
		}
		report.Missing = append(report.Missing, Problem{f.Subject, f.Detail})
	}
	if len(report.Missing) > 0 {
		return report, nil
	}
	rec.compare(&report, dir.root, made)
	return report, nil
}

// again carries out the manifest of a replay, as [Run] does. lock is the sealed wish, if
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

// compare compares what is expected with what came. It is pure but for the logs.
func (rec *recording) compare(report *ReplayReport, root *os.Root, made Report) {
	report.ImageID, report.Workspace, report.BehaviorHash = made.Gates.ImageID, made.Gates.Workspace, made.Gates.BehaviorHash
	exits := map[int]*int{}
	for _, c := range made.Tests.Commands {
		exits[c.Index-1] = c.ExitCode
	}
	for i, c := range made.Gates.Commands {
		report.Commands = append(report.Commands, ReplayedCommand{c.Cmd, c.Ending, exits[i], c.Passed, c.LogSHA256})
	}
	report.Differences = append(report.Differences, differences(rec.gates, made.Gates, rec.expectedExits(), report.Commands)...)
	// A recorded log that is not there or no file has nothing to show: its hash was
	// compared.
	if line, err := firstDifference(rec.root, root, evidence.RunLogFile); err == nil {
		report.FirstLine = line
	}
	told := slices.ContainsFunc(report.Differences, func(d Difference) bool { return d.Signal == "log" || d.Signal == "behavior_hash" })
	if line := report.FirstLine; line != nil && !told {
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

// verdicts are the reasons that were to be found, and those that were. A document that
// stands alone expects only that nothing is tried that no gate may. It is pure.
func (rec *recording) verdicts(made Report) (want, got string) {
	found := made.Verdict.Findings
	if rec.manifest != nil {
		return reasonWords(rec.expectedFindings(made.Manifest)), reasonWords(found)
	}
	tried := slices.DeleteFunc(slices.Clone(found), func(f evidence.Finding) bool {
		return f.Reason != evidence.ReasonOutsideBoundary && f.Reason != evidence.ReasonNetwork
	})
	return reasonWords(nil), reasonWords(tried)
}

// reasonWords are the reasons of findings with their gates, in order and each once.
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

// differences are the expected signals that did not come. What a document does not say
// is not expected. It is pure.
func differences(want, got evidence.Gates, exits []*int, ran []ReplayedCommand) []Difference {
	var all []Difference
	for i, c := range want.Commands {
		r := ran[i]
		add := func(signal, want, got string) {
			if want != got {
				all = append(all, Difference{Gate: i + 1, Signal: signal, Want: want, Got: got})
			}
		}
		add("exit_code", code(exits[i]), code(r.ExitCode))
		if c.Ending != "" {
			add("ending", c.Ending, r.Ending)
			add("passed", fmt.Sprint(c.Passed), fmt.Sprint(r.Passed))
		}
		if c.LogSHA256 != "" {
			add("log", c.LogSHA256, r.LogSHA256)
		}
	}
	if want.BehaviorHash != "" && want.BehaviorHash != got.BehaviorHash {
		all = append(all, Difference{Signal: "behavior_hash", Want: want.BehaviorHash, Got: got.BehaviorHash})
	}
	hashes := map[string]string{}
	for _, f := range got.Artifacts {
		hashes[f.FilePath] = f.SHA256
	}
	for _, f := range want.Artifacts {
		if hashes[f.FilePath] != f.SHA256 {
			all = append(all, Difference{Signal: "artifact", Subject: f.FilePath, Want: f.SHA256, Got: hashes[f.FilePath]})
		}
		delete(hashes, f.FilePath)
	}
	for _, f := range got.Artifacts {
		if _, more := hashes[f.FilePath]; more && want.Workspace != "" {
			all = append(all, Difference{Signal: "artifact", Subject: f.FilePath, Got: f.SHA256})
		}
	}
	return all
}

func code(c *int) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprint(*c)
}

// sealed is the report with its hash.
func (r ReplayReport) sealed() (ReplayReport, error) {
	r.SHA256 = ""
	text, err := evidence.Canonical(r)
	if err != nil {
		return r, err
	}
	r.SHA256 = sum(text)
	return r, nil
}

// sum is a SHA-256 in hexadecimal.
func sum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// recording is what a replay starts from. Others may have written it.
type recording struct {
	gates evidence.Gates
	// manifest and tests are those of the recorded run, nil without.
	manifest *evidence.RunManifest
	tests    *evidence.Tests
	// input is all evidence of the recorded run, and lock its sealed wish; both are there
	// with a manifest only.
	input judge.Input
	lock  []byte
	// root is the folder of GATES.json.
	root *os.Root
}

// openRecording reads GATES.json and what lies beside it.
func openRecording(from string) (rec *recording, err error) {
	dir, name := from, evidence.GatesFile
	if info, err := os.Stat(from); err == nil && !info.IsDir() {
		dir, name = filepath.Dir(from), filepath.Base(from)
	}
	root, err := openExisting(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Close())
		}
	}()
	text, err := evidence.ReadText(root, name, judge.MaxGatesText)
	if err != nil {
		return nil, fmt.Errorf("replay of %s: %w", from, fsx.Cause(err))
	}
	rec = &recording{root: root}
	if rec.gates, err = judge.ParseGates(text); err != nil {
		return nil, fmt.Errorf("replay of %s: %w", from, err)
	}
	if rec.manifest, err = readOptional[evidence.RunManifest](root, evidence.RunManifestFile); err != nil {
		return nil, err
	}
	rec.tests, err = readOptional[evidence.Tests](root, evidence.TestsFile)
	return rec, err
}

// readOptional reads a document that may be missing.
func readOptional[T any](root *os.Root, name string) (*T, error) {
	v := new(T)
	err := evidence.Read(root, name, evidence.MaxDocument, v)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

func (rec *recording) close() error { return rec.root.Close() }

// plan is the manifest of the replay, or what is missing for it. It looks at the
// workspace and at the folders of the tools, and changes nothing.
func (rec *recording) plan(ctx context.Context, p policy.Policy, o ReplayOptions) (m evidence.RunManifest, missing []Problem, err error) {
	lack := func(subject, format string, args ...any) {
		missing = append(missing, Problem{subject, fmt.Sprintf(format, args...)})
	}
	if rec.manifest == nil {
		var findings []evidence.Finding
		if m, findings, err = rec.specFromGates(p, o.Workspace); err != nil {
			return m, nil, err
		}
		for _, f := range findings {
			lack(f.Subject, "%s", f.Detail)
		}
	} else {
		m = *rec.manifest
		unfit, err := rec.examine(ctx)
		if err != nil {
			return m, nil, err
		}
		missing = append(missing, unfit...)
		if !m.Mode.Execute || !m.Mode.Sealed || !m.Mode.Tools {
			lack(evidence.RunManifestFile, "says that nothing was executed")
		}
		if !sameCommands(rec.gates, m) {
			lack(evidence.GatesFile, "has other commands than %s", evidence.RunManifestFile)
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

// examine reads the evidence of the recorded run, and says what of it is not what was
// hashed. A replay of something else would prove nothing.
func (rec *recording) examine(ctx context.Context) (unfit []Problem, err error) {
	if rec.input, err = loaded(ctx, rec.root); err != nil {
		return nil, err
	}
	for _, name := range rec.input.Check.Missing {
		unfit = append(unfit, Problem{name, "is missing"})
	}
	for _, f := range rec.input.Check.Findings {
		unfit = append(unfit, Problem{f.Subject, subjectless(f)})
	}
	if len(unfit) == 0 {
		rec.lock, err = evidence.ReadText(rec.root, evidence.WishLockFile, spec.MaxDocument)
	}
	return unfit, err
}

// sameCommands compares the two documents of a gate directory. It is pure.
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
		return missing("is not named: there is no %s that tells where it was", evidence.RunManifestFile), nil
	case rec.gates.Workspace == "" && want == "" && o.Workspace == "":
		return missing("neither a hash nor a commit tells what was in it; name the one that is meant"), nil
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

// expectedFindings are what speaks against the recorded run, judged as its replay is:
// once, without a baseline, and without a claim. m is the manifest of the replay. It is
// pure.
func (rec *recording) expectedFindings(m evidence.RunManifest) []evidence.Finding {
	in := rec.input
	in.Manifest, in.Differences = m, nil
	in.Tests.Commands = slices.Clone(in.Tests.Commands)
	for i := range in.Tests.Commands {
		in.Tests.Commands[i].Baseline = nil
	}
	in.Observations.Commands = slices.DeleteFunc(slices.Clone(in.Observations.Commands), func(o evidence.Observation) bool { return o.Set != "" })
	return judge.Judge(in).Findings
}

// specFromGates is the manifest of a GATES.json that stands alone: its commands with the
// defaults of a wish, and without a claim.
func (rec *recording) specFromGates(p policy.Policy, workspace string) (evidence.RunManifest, []evidence.Finding, error) {
	g := rec.gates
	document := map[string]any{
		"schema": spec.SchemaV1, "name": "replay", "io_boundary": g.IOBoundary, "offline": true, "claim_grade": false,
	}
	if g.Image != "" {
		document["image"] = g.Image
	}
	if !g.Offline {
		return evidence.RunManifest{}, []evidence.Finding{{
			Subject: "network", Detail: "the gates were not offline, and there is no " + evidence.RunManifestFile + " that tells what they could reach",
		}}, nil
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

// expectedExits are the exit codes of the recorded run, or what its commands were
// expected to have.
func (rec *recording) expectedExits() []*int {
	exits := make([]*int, len(rec.gates.Commands))
	for i, c := range rec.gates.Commands {
		exits[i] = new(c.ExpectExit)
	}
	if rec.tests != nil && rec.manifest != nil {
		for _, c := range rec.tests.Commands {
			if i := c.Index - 1; i >= 0 && i < len(exits) {
				exits[i] = c.ExitCode
			}
		}
	}
	return exits
}
