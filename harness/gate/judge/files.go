package judge

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// files looks at whether the evidence is whole and unchanged.
func (j *judgement) files() {
	in := j.in
	for _, name := range in.Check.Missing {
		if !j.stopped || slices.Contains(evidence.Required, name) {
			j.against(evidence.ReasonIncomplete, 0, name, "%s is missing.", name)
		}
	}
	j.adopt(in.Check.Findings, evidence.ReasonTampered)
	if in.Check.ManifestSHA256 == "" && !slices.Contains(in.Check.Missing, evidence.ManifestFile) {
		j.against(evidence.ReasonIncomplete, 0, evidence.ManifestFile, "There is no manifest that the files could be compared with.")
	}
	j.document(evidence.RunManifestFile, in.Manifest.Schema, evidence.RunManifestV1)
	if j.stopped {
		return
	}
	j.document(evidence.TestsFile, in.Tests.Schema, evidence.TestsV1)
	j.document(evidence.ObservationsFile, in.Observations.Schema, evidence.ObservationsV1)
	j.document(evidence.NormalizationFile, in.Normalization.Schema, evidence.NormalizationV1)
	j.document(evidence.EnvSnapshotFile, in.Env.Schema, evidence.EnvSnapshotV1)
	if !evidence.IsSHA256(in.BehaviorHash) {
		j.told(evidence.BehaviorHashFile, "%s has no hash of the normalized log.", evidence.BehaviorHashFile)
	}
	hashed := []string{evidence.RunLogFile, evidence.TestsFile}
	for _, r := range in.Tests.Commands {
		if r.Started {
			hashed = append(hashed, rawLogs("", r.Index)...)
		}
	}
	for _, name := range hashed {
		if !j.hashed[name] {
			j.told(name, "%s has no hash of %s.", evidence.ArtifactsFile, name)
		}
	}
}

// document is a finding if a document is another one than it must be.
func (j *judgement) document(file, schema, want string) {
	if schema != want {
		j.told(file, "%s is no document of %s.", file, want)
	}
}

// told adds that a file is no evidence, unless that is known.
func (j *judgement) told(file, format string, args ...any) {
	if !j.spoilt[file] {
		j.against(evidence.ReasonIncomplete, 0, file, format, args...)
	}
}

// rawLogs are the names of what node 2 kept of a command (RT-11).
func rawLogs(set string, index int) []string {
	return []string{
		evidence.RawFile(set, index, "stdout.log"), evidence.RawFile(set, index, "stderr.log"), evidence.RawFile(set, index, "result.json"),
	}
}

// normalization looks at what still changes from run to run.
func (j *judgement) normalization() {
	n := j.in.Normalization
	for _, s := range n.Suspects {
		j.against(evidence.ReasonNondeterministic, 0, fmt.Sprintf("%s:%d", evidence.RunLogFile, s.Line),
			"Line %d of the normalized log still has what looks like %s: %q.", s.Line, s.Detector, shortened(s.Text))
	}
	if n.SuspectsTotal != len(n.Suspects) {
		j.against(evidence.ReasonNondeterministic, 0, evidence.RunLogFile,
			"The normalized log has %d places that look as if they change from run to run.", n.SuspectsTotal)
	}
}

// repeats looks at whether what was asked for to prove that the gate is deterministic was
// done.
func (j *judgement) repeats() {
	repeats, gates := j.in.Manifest.Mode.Repeats, j.in.Manifest.Gates
	if j.countless() {
		j.against(evidence.ReasonIncomplete, 0, evidence.RunManifestFile, "%d repetitions of %d gates are more than are looked at.", repeats, len(gates))
		return
	}
	for k := 2; k <= repeats; k++ {
		for _, g := range gates {
			for _, name := range rawLogs(evidence.RepeatSet(k), g.Index) {
				if !j.hashed[name] {
					j.told(name, "Gate %d has no evidence of its repetition %d: %s has no hash of %s.", g.Index, k, evidence.ArtifactsFile, name)
				}
			}
		}
	}
}

// countless says that the manifest asks for more repetitions than anybody looks at.
func (j *judgement) countless() bool {
	repeats, gates := j.in.Manifest.Mode.Repeats, j.in.Manifest.Gates
	return repeats > maxRepeats || repeats > 1 && len(gates) > maxRepeats/repeats
}

// maxRepeats bounds the work that a manifest of anybody makes.
const maxRepeats = 100_000

// shortened is the beginning of a text for a sentence.
func shortened(text string) string {
	const most = 120
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
