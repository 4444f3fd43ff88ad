// Package judge is node 5 of a gate: it turns the evidence into a verdict and into the file
// that a replay starts from.
//
// [Judge] is a pure function of the result of [Load]. It collects reasons against a pass, and
// passes only evidence without any: missing, unclear or contradictory evidence is such a
// reason. It needs nothing of the machine that the gate ran on.
package judge

import (
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
	// Pre are the findings of nodes 1 and 2, such as those that stopped the run.
	Pre []evidence.Finding
	// Differences are the findings of repeats that differ.
	Differences []evidence.Finding
}

// Judge is the claim gate (RT-14, RT-15). A pass needs that all files exist and are unchanged,
// that every declared command ran once, in order, and ended as expected, and that nothing
// forbidden was tried. Judge is pure and total: it reads its input only and never panics.
func Judge(in Input) evidence.Verdict {
	j := &judgement{in: in, known: map[evidence.Finding]bool{}, damaged: map[string]bool{}, hashed: map[string]bool{}}
	for _, f := range in.Artifacts.Artifacts {
		j.hashed[f.FilePath] = evidence.IsSHA256(f.SHA256)
	}
	j.merge(in.Pre, evidence.ReasonIncomplete)
	j.mode()
	// If nothing ran, missing results and observations are not reported again.
	j.stopped = len(j.findings) > 0 && len(in.Tests.Commands) == 0
	j.files()
	// Without a manifest there is nothing to compare with.
	if !j.stopped && in.Manifest.Schema == evidence.RunManifestV1 {
		j.environment()
		j.commands()
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
	// known are the findings, and damaged the files that one of them calls no evidence.
	known   map[evidence.Finding]bool
	damaged map[string]bool
	// hashed are the files that artifacts.json has a hash of.
	hashed map[string]bool
	// stopped is true if the run was stopped before its first command.
	stopped bool
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

// lacking adds that a file is no evidence, unless a finding says so already.
func (j *judgement) lacking(file, format string, args ...any) {
	if !j.damaged[file] {
		j.add(evidence.ReasonIncomplete, 0, file, format, args...)
	}
}

// merge adds findings of other nodes. One without a reason against a pass gets the given one.
func (j *judgement) merge(findings []evidence.Finding, otherwise evidence.StopReason) {
	for _, f := range findings {
		if rank(f.Reason) < 0 {
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
	if len(v.Findings) > 0 {
		v.Status, v.StopReason = evidence.Blocked, v.Findings[0].Reason
		if v.StopReason == evidence.ReasonMissingDependency {
			v.Status = evidence.NeedInfo // resolution 43
		}
	}
	v.StopClass = classOf(v.StopReason)
	if len(j.in.Manifest.Gates) > 0 {
		v.ReplayCommands = append(v.ReplayCommands, "sandbox replay "+evidence.GatesFile)
	}
	return v
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
		if i == 0 || trust(o.Counted) < trust(s.NetworkCounted) {
			s.NetworkCounted = o.Counted
		}
	}
	return s
}

// mode adds what forbids any run, and gates that are not those of the wish. A reason that
// node 1 found is not added again.
func (j *judgement) mode() {
	m, env := j.in.Manifest, j.in.Env
	if m.Schema != evidence.RunManifestV1 {
		return // files reports it
	}
	once := func(reason evidence.StopReason, wrong bool, subject, detail string) {
		if wrong && !j.has(reason) {
			j.add(reason, 0, subject, "%s", detail)
		}
	}
	once(evidence.ReasonModeViolation, !m.Mode.Execute, "mode", "The run was asked for in plan mode, in which nothing may run.")
	once(evidence.ReasonToolsDisabled, !m.Mode.Tools, "tools", "Running anything is switched off.")
	once(evidence.ReasonNotSealed, !m.Mode.Sealed, evidence.WishLockFile, "The wish is not sealed, or is not what was sealed.")
	once(evidence.ReasonNotSealed, !evidence.IsSHA256(m.WishSHA256), evidence.WishLockFile, "The run manifest has no hash of the sealed wish.")
	once(evidence.ReasonNoCommands, len(m.GateCommands) == 0 || len(m.Gates) == 0, "gate_commands", "There are no gate commands: without a test there is no pass.")
	once(evidence.ReasonNoWorkspace, m.Workspace == "" || m.IOBoundary == "", "io_boundary", "There is no workspace to run in.")
	once(evidence.ReasonDirty, m.Mode.Strict && (m.Repo.Dirty || env.GitDirty), "repository", "The workspace has changes that are in no commit, and strict mode demands none.")
	once(evidence.ReasonDirty, m.Mode.Strict && m.Repo.Commit == "", "repository", "Strict mode demands a commit that identifies what was tested, and the workspace has none.")
	if len(m.GateCommands) == 0 || len(m.Gates) == 0 {
		return
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
	if !slices.Equal(commands, m.GateCommands) {
		j.add(evidence.ReasonUndeclared, 0, evidence.RunManifestFile, "The gates of the run manifest are not the commands that were wished.")
	}
}

// files adds evidence that is missing or changed.
func (j *judgement) files() {
	in := j.in
	for _, name := range in.Check.Missing {
		if !j.stopped || slices.Contains(evidence.Required, name) {
			j.add(evidence.ReasonIncomplete, 0, name, "%s is missing.", name)
		}
	}
	j.merge(in.Check.Findings, evidence.ReasonTampered)
	if in.Check.ManifestSHA256 == "" && !slices.Contains(in.Check.Missing, evidence.ManifestFile) {
		j.add(evidence.ReasonIncomplete, 0, evidence.ManifestFile, "There is no manifest that the files could be compared with.")
	}
	for _, document := range []struct{ file, schema, want string }{
		{evidence.RunManifestFile, in.Manifest.Schema, evidence.RunManifestV1},
		{evidence.TestsFile, in.Tests.Schema, evidence.TestsV1},
		{evidence.ObservationsFile, in.Observations.Schema, evidence.ObservationsV1},
		{evidence.NormalizationFile, in.Normalization.Schema, evidence.NormalizationV1},
		{evidence.EnvSnapshotFile, in.Env.Schema, evidence.EnvSnapshotV1},
	} {
		if document.schema != document.want && (!j.stopped || document.file == evidence.RunManifestFile) {
			j.lacking(document.file, "%s is no document of %s.", document.file, document.want)
		}
	}
	if j.stopped {
		return
	}
	if !evidence.IsSHA256(in.BehaviorHash) {
		j.lacking(evidence.BehaviorHashFile, "%s has no hash of the normalized log.", evidence.BehaviorHashFile)
	}
	needed := []string{evidence.RunLogFile, evidence.TestsFile}
	for _, r := range in.Tests.Commands {
		if r.Started {
			needed = append(needed, rawFiles("", r.Index)...)
		}
	}
	for _, name := range needed {
		if !j.hashed[name] {
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

// normalization adds text of the log that still changes from run to run, and repeats without
// evidence.
func (j *judgement) normalization() {
	n, m := j.in.Normalization, j.in.Manifest
	for _, s := range n.Suspects {
		j.add(evidence.ReasonNondeterministic, 0, fmt.Sprintf("%s:%d", evidence.RunLogFile, s.Line),
			"Line %d of the normalized log still has what looks like %s: %q.", s.Line, s.Detector, short(s.Text))
	}
	if n.SuspectsTotal != len(n.Suspects) {
		j.add(evidence.ReasonNondeterministic, 0, evidence.RunLogFile,
			"The normalized log has %d places that look as if they change from run to run.", n.SuspectsTotal)
	}
	if j.tooManyRepeats() {
		j.add(evidence.ReasonIncomplete, 0, evidence.RunManifestFile, "%d repetitions of %d gates are more than are looked at.", m.Mode.Repeats, len(m.Gates))
		return
	}
	for k := 2; k <= m.Mode.Repeats; k++ {
		for _, g := range m.Gates {
			for _, name := range rawFiles(evidence.RepeatPass(k), g.Index) {
				if !j.hashed[name] {
					j.lacking(name, "Gate %d has no evidence of its repetition %d: %s has no hash of %s.", g.Index, k, evidence.ArtifactsFile, name)
				}
			}
		}
	}
}

// tooManyRepeats bounds the work that an untrusted manifest can ask for.
func (j *judgement) tooManyRepeats() bool {
	const most = 100_000
	repeats, gates := j.in.Manifest.Mode.Repeats, len(j.in.Manifest.Gates)
	return repeats > most || repeats > 1 && gates > most/repeats
}

// short is the beginning of an untrusted text for a sentence.
func short(untrusted string) string { return text.Short(untrusted, 120) }
