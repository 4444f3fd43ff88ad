package judge

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Input is all that a verdict depends on. Its zero value is evidence of nothing.
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
	// Pre is what stopped the run before it began, found by node 1.
	Pre []evidence.Finding
	// Differences are what was not the same in repeats.
	Differences []evidence.Finding
}

// Judge is the claim gate (RT-14, RT-15). It passes only if nothing speaks against it:
// everything is there and unchanged, every declared command ran once, in order, ended as
// expected, and tests were really executed. It is pure and total: it reads nothing but
// its input, never panics, and what is missing speaks against a pass.
func Judge(in Input) evidence.Verdict {
	j := newJudgement(in)
	j.adopt(in.Pre, evidence.ReasonIncomplete)
	j.mode()
	// What never began has neither results nor observations; that is no news.
	j.stopped = len(j.findings) > 0 && len(in.Tests.Commands) == 0
	j.files()
	// Without a manifest there is nothing to compare with.
	if !j.stopped && in.Manifest.Schema == evidence.RunManifestV1 {
		j.plan()
		j.environment()
		j.commands()
		j.observations()
		j.normalization()
		j.repeats()
	}
	j.adopt(in.Differences, evidence.ReasonNonReproducible)
	return j.verdict()
}

// judgement collects what speaks against a pass.
type judgement struct {
	in       Input
	findings []evidence.Finding
	// known are the findings, and spoilt the files that one of them says are no evidence.
	known  map[evidence.Finding]bool
	spoilt map[string]bool
	// hashed are the files that artifacts.json has a hash of.
	hashed map[string]bool
	// stopped says that the run was stopped before its first command.
	stopped bool
}

func newJudgement(in Input) *judgement {
	j := &judgement{in: in, known: map[evidence.Finding]bool{}, spoilt: map[string]bool{}, hashed: map[string]bool{}}
	for _, f := range in.Artifacts.Artifacts {
		j.hashed[f.FilePath] = evidence.IsSHA256(f.SHA256)
	}
	return j
}

// against adds a finding; the same one twice is one.
func (j *judgement) against(reason evidence.StopReason, gate int, subject, format string, args ...any) {
	f := evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: fmt.Sprintf(format, args...)}
	if j.known[f] {
		return
	}
	j.known[f] = true
	j.findings = append(j.findings, f)
	if reason == evidence.ReasonIncomplete || reason == evidence.ReasonTampered {
		j.spoilt[subject] = true
	}
}

// adopt takes findings of others. One without a reason that speaks against a pass must
// not be lost.
func (j *judgement) adopt(findings []evidence.Finding, otherwise evidence.StopReason) {
	for _, f := range findings {
		if rank(f.Reason) < 0 {
			f.Reason = otherwise
		}
		j.against(f.Reason, f.Gate, f.Subject, "%s", f.Detail)
	}
}

// has says that a reason was found already.
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
	for _, c := range j.in.Tests.Commands {
		s.Counts.Total += c.Counts.Total
		s.Counts.Passed += c.Counts.Passed
		s.Counts.Failed += c.Counts.Failed
		s.Counts.Errored += c.Counts.Errored
		s.Counts.Skipped += c.Counts.Skipped
		s.Counts.XFailed += c.Counts.XFailed
		s.Counts.XPassed += c.Counts.XPassed
	}
	for i, o := range j.in.Observations.Commands {
		s.Watched = s.Watched && o.Watched
		if i == 0 || trust(o.Counted) < trust(s.NetworkCounted) {
			s.NetworkCounted = o.Counted
		}
	}
	return s
}

// Ways in which attempts to reach something are counted.
const (
	countedByKernel = "kernel"
	countedInOutput = "output"
)

// trust orders the ways of counting.
func trust(counted string) int {
	switch counted {
	case countedByKernel:
		return 2
	case countedInOutput:
		return 1
	}
	return 0
}
