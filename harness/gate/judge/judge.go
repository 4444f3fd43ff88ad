// Package judge is node 5 of a gate: it turns the evidence into a verdict and into the file
// that a replay starts from.
//
// [Judge] is a pure function of the result of [Load]. It collects reasons against a pass, and
// passes only evidence without any: missing, unclear or contradictory evidence is such a
// reason. It needs nothing of the machine that the gate ran on.
package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// Input is everything that a verdict depends on. Its zero value is evidence of nothing.
type Input struct {
	Manifest      evidence.RunManifest
	Tests         evidence.Tests
	Observations  evidence.Observations
	Normalization evidence.Normalization
	Env           evidence.EnvSnapshot
	Plan          evidence.Plan
	Artifacts     evidence.Artifacts
	Check         evidence.CheckReport
	BehaviorHash  string
	// Inconclusive are the raw results of runs that say nothing about their commands, by the
	// names of their files, with the explanation; see [result.Result.Conclusive].
	Inconclusive map[string]string
	// Pre are the findings of nodes 1 and 2, such as those that stopped the run.
	Pre []evidence.Finding
	// Differences are the findings of repeats that differ.
	Differences []evidence.Finding
}

// Judge is the claim gate (RT-14, RT-15). A pass needs that all files exist and are unchanged,
// that every declared command ran once, in order, and ended as expected, and that nothing
// forbidden was tried. Judge is pure and total: it reads its input only and never panics.
func Judge(in Input) evidence.Verdict {
	j := &judgement{in: in, known: map[evidence.Finding]bool{}, damaged: map[string]bool{}}
	j.merge(in.Pre, evidence.ReasonIncomplete)
	if in.Manifest.Schema == evidence.RunManifestV1 {
		j.mode()
		j.declared()
	}
	// If nothing ran, missing results and observations are not reported again.
	j.stopped = len(j.findings) > 0 && len(in.Tests.Commands) == 0
	j.files()
	// Without a manifest there is nothing to compare with.
	if !j.stopped && in.Manifest.Schema == evidence.RunManifestV1 {
		j.hashes()
		j.environment()
		j.commands()
		j.disturbed()
		j.observations()
		j.normalization()
	}
	j.merge(in.Differences, evidence.ReasonNonReproducible)
	return j.verdict()
}

// judgement collects reasons against a pass.
type judgement struct {
	in       Input
	findings []evidence.Finding
	warnings []evidence.Finding
	known    map[evidence.Finding]bool // the findings and the warnings
	damaged  map[string]bool           // the files that one of them calls no evidence
	stopped  bool                      // the run was stopped before its first command
}

// add adds a finding, unless it is known.
func (j *judgement) add(reason evidence.StopReason, gate int, subject, format string, args ...any) {
	f := evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: fmt.Sprintf(format, args...)}
	if j.known[f] {
		return
	}
	j.known[f] = true
	j.findings = append(j.findings, f)
	if reason == evidence.ReasonIncomplete || reason == evidence.ReasonTampered {
		j.damaged[subject] = true
	}
}

// when adds a finding about the whole run under a condition.
func (j *judgement) when(wrong bool, reason evidence.StopReason, subject, format string, args ...any) {
	if wrong {
		j.add(reason, 0, subject, format, args...)
	}
}

// lacking adds that a file is not evidence, unless a finding says so already.
func (j *judgement) lacking(file, format string, args ...any) {
	j.when(!j.damaged[file], evidence.ReasonIncomplete, file, format, args...)
}

// warn adds what only strict mode holds against a pass. reason is the one of strict mode.
func (j *judgement) warn(reason evidence.StopReason, gate int, subject, format string, args ...any) {
	f := evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: fmt.Sprintf(format, args...)}
	if !j.known[f] {
		j.known[f] = true
		j.warnings = append(j.warnings, f)
	}
}

// merge adds findings of other nodes. One without a reason against a pass gets the given one.
func (j *judgement) merge(findings []evidence.Finding, otherwise evidence.StopReason) {
	for _, f := range findings {
		if f.Reason.Rank() < 0 {
			f.Reason = otherwise
		}
		j.add(f.Reason, f.Gate, f.Subject, "%s", f.Detail)
	}
}

// has reports whether a reason was found already.
func (j *judgement) has(reason evidence.StopReason) bool {
	return slices.ContainsFunc(j.findings, func(f evidence.Finding) bool { return f.Reason == reason })
}

func (j *judgement) verdict() evidence.Verdict {
	v := evidence.Verdict{
		Schema:          evidence.VerdictV1,
		Status:          evidence.Pass,
		StopReason:      evidence.ReasonPass,
		Findings:        ordered(j.findings),
		EvidenceSummary: j.summary(),
		ReplayCommands:  []string{},
		WishSHA256:      j.in.Manifest.WishSHA256,
		ManifestSHA256:  j.in.Check.ManifestSHA256,
		BehaviorHash:    j.in.BehaviorHash,
	}
	if len(j.warnings) > 0 {
		v.Warnings = ordered(j.warnings)
	}
	if len(v.Findings) > 0 {
		v.Status, v.StopReason = evidence.Blocked, v.Findings[0].Reason
		if v.StopReason == evidence.ReasonMissingDependency {
			v.Status = evidence.NeedInfo // resolution 43
		}
	}
	v.StopClass = v.StopReason.Class()
	if len(j.in.Manifest.Gates) > 0 {
		v.ReplayCommands = append(v.ReplayCommands, "sandbox replay "+evidence.GatesFile)
	}
	return v
}

// maxAlike bounds the findings of one reason for one gate in a verdict.
const maxAlike = 20

// ordered sorts findings by severity, then by gate, else in the order of their discovery. Of
// many alike it keeps the first ones and adds their number.
func ordered(findings []evidence.Finding) []evidence.Finding {
	sorted := slices.Clone(findings)
	slices.SortStableFunc(sorted, func(a, b evidence.Finding) int {
		return cmp.Or(cmp.Compare(a.Reason.Rank(), b.Reason.Rank()), cmp.Compare(a.Gate, b.Gate))
	})
	kept, alike := []evidence.Finding{}, 0
	for i, f := range sorted {
		if alike++; alike <= maxAlike {
			kept = append(kept, f)
		}
		if last := i == len(sorted)-1; last || sorted[i+1].Reason != f.Reason || sorted[i+1].Gate != f.Gate {
			if more := alike - maxAlike; more > 0 {
				kept = append(kept, evidence.Finding{Reason: f.Reason, Gate: f.Gate, Detail: fmt.Sprintf("There are %d more findings of this kind.", more)})
			}
			alike = 0
		}
	}
	return kept
}

// summary is the evidence in numbers.
func (j *judgement) summary() evidence.Summary {
	s := evidence.Summary{
		Commands: len(j.in.Tests.Commands),
		Files:    j.in.Check.Files,
		Missing:  append([]string{}, j.in.Check.Missing...),
		Watched:  len(j.in.Observations.Commands) > 0,
	}
	for _, r := range j.in.Tests.Commands {
		c := r.Counts.Value()
		s.Counts.Total += c.Total
		s.Counts.Passed += c.Passed
		s.Counts.Failed += c.Failed
		s.Counts.Errored += c.Errored
		s.Counts.Skipped += c.Skipped
		s.Counts.XFailed += c.XFailed
		s.Counts.XPassed += c.XPassed
	}
	for i, o := range j.in.Observations.Commands {
		s.Watched = s.Watched && o.Watched
		if i == 0 || trust[o.Counted] < trust[s.NetworkCounted] {
			s.NetworkCounted = o.Counted
		}
	}
	return s
}

// mode adds what forbids any run. A reason that node 1 found is not added again.
func (j *judgement) mode() {
	m, env := j.in.Manifest, j.in.Env
	once := func(reason evidence.StopReason, wrong bool, subject, detail string) {
		j.when(wrong && !j.has(reason), reason, subject, "%s", detail)
	}
	once(evidence.ReasonModeViolation, !m.Mode.Execute, "mode", "The run was asked for in plan mode, in which nothing may run.")
	once(evidence.ReasonToolsDisabled, !m.Mode.Tools, "tools", "Running anything is switched off.")
	once(evidence.ReasonNotSealed, !m.Mode.Sealed, evidence.WishLockFile, "The wish is not sealed, or is not what was sealed.")
	once(evidence.ReasonNotSealed, !evidence.IsSHA256(m.WishSHA256), evidence.WishLockFile, "The run manifest has no hash of the sealed wish.")
	once(evidence.ReasonNoCommands, len(m.GateCommands) == 0 || len(m.Gates) == 0, "gate_commands", "There are no gate commands: without a test there is no pass.")
	once(evidence.ReasonNoWorkspace, m.Workspace == "" || m.IOBoundary == "", "io_boundary", "There is no workspace to run in.")
	once(evidence.ReasonDirty, m.Mode.Strict && (m.Repo.Dirty || env.GitDirty), "repository", "The workspace has changes that are in no commit, and strict mode demands none.")
	once(evidence.ReasonDirty, m.Mode.Strict && m.Repo.Commit == "", "repository", "Strict mode demands a commit that identifies what was tested, and the workspace has none.")
}

// declared adds gates that are not those of the wish.
func (j *judgement) declared() {
	m := j.in.Manifest
	if len(m.GateCommands) == 0 || len(m.Gates) == 0 {
		return // mode reports it
	}
	var commands []string
	for i, g := range m.Gates {
		commands = append(commands, g.Cmd)
		if g.Index != i+1 {
			j.add(evidence.ReasonUndeclared, g.Index, g.Cmd, "The run manifest has the gate with the index %d at place %d.", g.Index, i+1)
		}
		if len(g.Argv) == 0 || g.Argv[0] == "" {
			j.add(evidence.ReasonNoCommands, g.Index, g.Cmd, "Gate %d names no program.", g.Index)
		}
		if g.Kind != evidence.KindTests && g.Kind != evidence.KindCheck {
			j.add(evidence.ReasonIncomplete, g.Index, g.Cmd, "Gate %d is of the kind %q, which is neither %q nor %q.", g.Index, g.Kind, evidence.KindTests, evidence.KindCheck)
		}
	}
	j.when(!slices.Equal(commands, m.GateCommands), evidence.ReasonUndeclared, evidence.RunManifestFile, "The gates of the run manifest are not the commands that were wished.")
}

// files adds evidence that is missing or changed.
func (j *judgement) files() {
	in := j.in
	for _, name := range in.Check.Missing {
		j.when(!j.stopped || slices.Contains(evidence.Required, name), evidence.ReasonIncomplete, name, "%s is missing.", name)
	}
	j.merge(in.Check.Findings, evidence.ReasonTampered)
	j.when(in.Check.ManifestSHA256 == "" && !slices.Contains(in.Check.Missing, evidence.ManifestFile),
		evidence.ReasonIncomplete, evidence.ManifestFile, "There is no manifest that the files could be compared with.")
	for _, document := range []struct{ file, schema, want string }{
		{evidence.RunManifestFile, in.Manifest.Schema, evidence.RunManifestV1},
		{evidence.TestsFile, in.Tests.Schema, evidence.TestsV1},
		{evidence.ObservationsFile, in.Observations.Schema, evidence.ObservationsV1},
		{evidence.NormalizationFile, in.Normalization.Schema, evidence.NormalizationV1},
		{evidence.EnvSnapshotFile, in.Env.Schema, evidence.EnvSnapshotV1},
	} {
		if document.schema != document.want && (!j.stopped || document.file == evidence.RunManifestFile) {
			j.lacking(document.file, "%s is not a document of %s.", document.file, document.want)
		}
	}
}

// hashes adds logs and results without a hash (RT-11, RT-13).
func (j *judgement) hashes() {
	if !evidence.IsSHA256(j.in.BehaviorHash) {
		j.lacking(evidence.BehaviorHashFile, "%s has no hash of the normalized log.", evidence.BehaviorHashFile)
	}
	hashed := map[string]bool{}
	for _, f := range j.in.Artifacts.Artifacts {
		hashed[f.FilePath] = evidence.IsSHA256(f.SHA256)
	}
	needed := []string{evidence.RunLogFile, evidence.TestsFile}
	for _, run := range j.runs() {
		if run.started && run.pass != evidence.BaselinePass {
			needed = append(needed, rawFiles(run.pass, run.index)...)
		}
	}
	for _, name := range needed {
		if !hashed[name] {
			j.lacking(name, "%s has no hash of %s.", evidence.ArtifactsFile, name)
		}
	}
}

// rawFiles are the files that node 2 keeps of a command (RT-11).
func rawFiles(pass string, index int) []string {
	return []string{
		evidence.RawFile(pass, index, "stdout.log"), evidence.RawFile(pass, index, "stderr.log"), evidence.RawFile(pass, index, "result.json"),
	}
}

// gatePass is one gate in one pass.
type gatePass struct {
	pass  string
	index int
}

func (p gatePass) String() string {
	switch p.pass {
	case "":
		return fmt.Sprintf("gate %d", p.index)
	case evidence.BaselinePass:
		return fmt.Sprintf("gate %d on the baseline", p.index)
	}
	return fmt.Sprintf("gate %d in %s", p.index, short(p.pass))
}

// run is a gate in a pass that needs evidence. One that never started tried nothing.
type run struct {
	gatePass
	started bool
}

func (j *judgement) runs() (all []run) {
	m := j.in.Manifest
	for _, r := range j.in.Tests.Commands {
		all = append(all, run{gatePass{"", r.Index}, r.Started})
		if m.Baseline != "" && r.Baseline != nil {
			all = append(all, run{gatePass{evidence.BaselinePass, r.Index}, r.Baseline.Started})
		}
	}
	for k := 2; k <= m.Mode.Repeats && !j.tooManyRepeats(); k++ {
		for _, g := range m.Gates {
			all = append(all, run{gatePass{evidence.RepeatPass(k), g.Index}, true})
		}
	}
	return all
}

// disturbed adds runs on the baseline and repetitions that did not end by themselves: there is
// nothing to compare with.
func (j *judgement) disturbed() {
	for _, run := range j.runs() {
		why := j.in.Inconclusive[evidence.RawFile(run.pass, run.index, "result.json")]
		if run.pass != "" && why != "" {
			j.add(evidence.ReasonIncomplete, run.index, evidence.TestsFile, "The run of %s did not end by itself: %s", run.gatePass, short(why))
		}
	}
}

// tooManyRepeats bounds the work that an untrusted manifest can ask for.
func (j *judgement) tooManyRepeats() bool {
	const most = 100_000
	repeats, gates := j.in.Manifest.Mode.Repeats, len(j.in.Manifest.Gates)
	return repeats > most || repeats > 1 && gates > most/repeats
}

// normalization adds text of the log that still changes from run to run.
func (j *judgement) normalization() {
	n, m := j.in.Normalization, j.in.Manifest
	for _, s := range n.Suspects {
		j.add(evidence.ReasonNondeterministic, 0, fmt.Sprintf("%s:%d", evidence.RunLogFile, s.Line),
			"Line %d of the normalized log still has what looks like %s: %q.", s.Line, s.Detector, short(s.Text))
	}
	j.when(n.SuspectsTotal != len(n.Suspects), evidence.ReasonNondeterministic, evidence.RunLogFile,
		"The normalized log has %d places that look as if they change from run to run.", n.SuspectsTotal)
	j.when(j.tooManyRepeats(), evidence.ReasonIncomplete, evidence.RunManifestFile,
		"%d repetitions of %d gates are more than are looked at.", m.Mode.Repeats, len(m.Gates))
}

// short is the beginning of an untrusted text for a sentence.
func short(untrusted string) string { return text.Short(untrusted, 120) }
