package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/policy"
)

// ReplayOptions say what is run again.
type ReplayOptions struct {
	Engine

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
	// Policy has the limits of this machine, and what may be reached.
	Policy policy.Policy
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

// Replay runs what was run once more: the exact commands, in the exact image, on the
// same files, and compares what is expected of them. Nothing is run if image, tools or
// files are not the recorded ones, or if a gate directory is not what was hashed. What
// the replay itself tried and was judged for is compared as well. A replay that differs or cannot be done is a report
// and no error. An error says that From is nothing to replay, that OutDir cannot be used
// ([*DirectoryError]), or that something of ours failed, or that ctx ended.
func Replay(ctx context.Context, o ReplayOptions) (ReplayReport, error) {
	rec, err := openRecording(o.From)
	if err != nil {
		return ReplayReport{}, err
	}
	report, err := rec.replay(ctx, o)
	if err := errors.Join(err, rec.close()); err != nil {
		return ReplayReport{}, err
	}
	return report.sealed()
}

func (rec *recording) replay(ctx context.Context, o ReplayOptions) (report ReplayReport, err error) {
	report = ReplayReport{
		Schema: ReplayV1, Outcome: ReplayCannot, Missing: []Problem{}, Differences: []Difference{}, Commands: []ReplayedCommand{},
		ImageID: rec.gates.ImageID,
	}
	m, missing, err := rec.plan(ctx, o)
	if err != nil || len(missing) > 0 {
		report.Missing = append(report.Missing, missing...)
		return report, err
	}
	if err := outside(o.OutDir, m.Workspace); o.OutDir != "" && err != nil {
		return report, err
	}
	g := &run{Engine: o.Engine, m: m}
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
		g.execute(ctx, &failure)
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
	sum := sha256.Sum256(text)
	r.SHA256 = hex.EncodeToString(sum[:])
	return r, nil
}
