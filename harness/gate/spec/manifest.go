package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Tools is a registry of programs that may be run.
type Tools interface {
	// Check returns why a command must not be run, naming the tool and the rule; nil if it
	// may.
	Check(argv []string) error
}

// Facts are the input of node 1: the wish, and the facts of this machine.
type Facts struct {
	Lock Lock
	// Sealed is false if there is no lock, or if it is not what was sealed. NotSealed then
	// says why, in one sentence without the name of the state.
	Sealed    bool
	NotSealed string
	// Workspace is the absolute path of the boundary, links resolved; see [Spec.Workspace].
	// WorkspaceExists is false without one, and WorkspaceOutside true if a link leads out of
	// the directory of the wish.
	Workspace                         string
	WorkspaceExists, WorkspaceOutside bool
	// Repo is the state of the repository, and Differs the first paths of the workspace that
	// differ from its commit.
	Repo      evidence.Repo
	Differs   []string
	Uncounted []string // paths below the boundary that make no tree dirty
	// Mode are the flags. Build combines them with those of the wish: a flag makes a run
	// stricter, never laxer, and only the wish can allow something.
	Mode    evidence.Mode
	Exclude []string // further paths that the gates do not see, such as the gate directory
	Tools   Tools    // if not nil, must permit every command
	Policy  policy.Policy
}

// Build is node 1. With findings nothing must be run; the manifest then describes the run that
// was asked for.
func Build(facts Facts) (evidence.RunManifest, []evidence.Finding) {
	b := &builder{Facts: facts, wish: facts.Lock.Wish}
	w := b.wish
	m := evidence.RunManifest{
		Schema: evidence.RunManifestV1, Name: w.Name, WishSHA256: b.Lock.SHA256, GateCommands: []string{}, Gates: []evidence.Gate{},
		IOBoundary: strings.TrimSuffix(w.IOBoundary, "/") + "/", Workspace: b.Workspace, EnvPolicy: environment(w.Env),
		Paths: w.Paths, Uncounted: sorted(b.Uncounted), Toolchain: b.Lock.Toolchain, Repo: b.Repo, Mode: b.mode(), Rules: w.Normalize, Allowed: w.AllowSuspects,
	}
	m.Exclude = sorted(w.Exclude, b.Exclude)
	b.preconditions(m.Mode.Strict)
	m.Egress = b.egress(m.Mode)
	m.TimeoutCaps = b.caps()
	for i, command := range w.GateCommands {
		m.GateCommands = append(m.GateCommands, command.Cmd)
		m.Gates = append(m.Gates, b.gate(i+1, command, m))
	}
	return m, b.findings
}

// builder collects findings.
type builder struct {
	Facts
	wish     Spec
	findings []evidence.Finding
}

func (b *builder) find(reason evidence.StopReason, gate int, subject, format string, args ...any) {
	b.findings = append(b.findings, evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: fmt.Sprintf(format, args...)})
}

func (b *builder) when(wrong bool, reason evidence.StopReason, subject, format string, args ...any) {
	if wrong {
		b.find(reason, 0, subject, format, args...)
	}
}

func (b *builder) mode() evidence.Mode {
	m, w := b.Mode, b.wish.Flags
	m.Sealed = b.Sealed
	m.Offline = m.Offline || w.Offline
	m.Strict = m.Strict || w.Strict
	m.ClaimGrade = m.ClaimGrade || w.ClaimGrade
	m.AllowUnobserved = w.AllowUnobserved && !m.Strict
	m.Repeats = max(m.Repeats, 1)
	return m
}

// preconditions checks the seal, the commands, the workspace and the repository.
func (b *builder) preconditions(strict bool) {
	boundary, commit := b.wish.IOBoundary, b.Repo.Commit
	b.when(!b.Sealed, evidence.ReasonNotSealed, evidence.WishLockFile, "%s",
		cmp.Or(b.NotSealed, "The wish is not sealed, so that nobody can say what was to be run; seal it first."))
	b.when(len(b.wish.GateCommands) == 0, evidence.ReasonNoCommands, "gate_commands", "The wish has no commands, and without one nothing can be shown.")
	b.when(b.WorkspaceOutside, evidence.ReasonOutsideBoundary, boundary, "The boundary is a link that leads out of the folder of the wish.")
	b.when(!b.WorkspaceExists && !b.WorkspaceOutside, evidence.ReasonNoWorkspace, boundary, "There is no folder at the boundary of the wish.")
	b.when(strict && b.Repo.Dirty, evidence.ReasonDirty, cmp.Or(commit, boundary), "The workspace is not what the commit says%s, and the run is strict; commit, remove or ignore that. "+
		"Files are compared as they are: what git converts by its attributes (eol, text, filter) differs, also where git status shows nothing.", b.differences())
	b.when(strict && !b.Repo.Dirty && commit == "", evidence.ReasonDirty, "", "There is no commit that the workspace could be compared with, and the run is strict.")
}

// differences names the first files that differ from the commit.
func (b *builder) differences() string {
	const most = 5
	names := ""
	for _, name := range b.Differs[:min(len(b.Differs), most)] {
		names += fmt.Sprintf(", %.200q", name)
	}
	if len(b.Differs) > most {
		names += " and others"
	}
	return strings.Replace(names, ",", " in", 1)
}

// egress is the network that the gates may reach; nil when they may reach nothing.
func (b *builder) egress(m evidence.Mode) *evidence.Egress {
	n := b.wish.Network
	asked := &policy.Egress{Level: policy.NetworkLevel(n.Level), Allow: n.Allow, Deny: n.Deny}
	if m.Offline || asked.Offline() {
		return nil
	}
	if _, err := b.Policy.ApplyEgress(asked); err != nil {
		b.refused(0, "network", err)
	}
	return &n
}

// refused adds what the policy of the machine does not permit.
func (b *builder) refused(gate int, subject string, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		b.find(evidence.ReasonToolRefused, gate, subject, "The policy of this machine does not permit it: %s.", line)
	}
}

// caps are the effective limits.
func (b *builder) caps() evidence.Caps {
	asked := b.wish.Limits
	limits, err := b.Policy.Apply(policy.Limits{
		Timeout: milliseconds(asked.TimeoutMS), Memory: policy.Size(asked.MemoryBytes), CPUs: float64(asked.MilliCPUs) / 1000,
		PIDs: asked.PIDs, Disk: policy.Size(asked.DiskBytes), StreamFile: policy.Size(asked.LogBytes),
	})
	if err != nil {
		b.refused(0, "limits", err)
		return asked
	}
	return evidence.Caps{
		TimeoutMS: limits.Timeout.Milliseconds(), MemoryBytes: int64(limits.Memory), MilliCPUs: int64(limits.CPUs*1000 + 0.5),
		PIDs: limits.PIDs, DiskBytes: int64(limits.Disk), LogBytes: int64(limits.StreamFile),
	}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// gate decides about one command.
func (b *builder) gate(index int, c evidence.Command, m evidence.RunManifest) evidence.Gate {
	g := evidence.Gate{Index: index, Command: c, Argv: []string{}}
	g.Env = map[string]string{}
	maps.Copy(g.Env, c.Env)
	g.TimeoutMS = cmp.Or(c.TimeoutMS, m.TimeoutCaps.TimeoutMS)
	if own, most := milliseconds(c.TimeoutMS), b.Policy.Max.Timeout; most > 0 && own > most {
		b.refused(index, "timeout", fmt.Errorf("timeout %v: above the policy's maximum of %v", own, most))
	}
	argv, err := split(c.Cmd)
	if err != nil {
		b.find(evidence.ReasonToolRefused, index, "gate_commands", "The command cannot be run: it %s.", err)
		return g
	}
	g.Argv = argv
	askForReport(&g, m.EnvPolicy.Vars)
	for _, o := range outsideOf(argv, m.ProtectedPaths) {
		b.find(evidence.ReasonOutsideBoundary, index, o.path, "The command names %s, which %s; it was not run.", o.path, o.why)
	}
	if b.Tools != nil {
		if err := b.Tools.Check(slices.Clone(argv)); err != nil {
			b.find(evidence.ReasonToolRefused, index, argv[0], "The registry of tools does not permit the command: %s.", text.OneLine(err.Error()))
		}
	}
	return g
}

// sorted is the union of lists, in order. It is not nil.
func sorted(lists ...[]string) []string {
	all := append([]string{}, slices.Concat(lists...)...)
	slices.Sort(all)
	return slices.Compact(all)
}

// environment is the fixed environment with that of the wish (RT-05). Package sandbox adds the
// variables of every run.
func environment(wished map[string]string) evidence.EnvPolicy {
	const locale = "C.UTF-8"
	vars := map[string]string{
		"CI": "true", "LANG": locale, "LC_ALL": locale, "TZ": "UTC", "NO_COLOR": "1", "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
		"SOURCE_DATE_EPOCH": "315532800", // 1980-01-01: the first day that archives of every kind can hold
	}
	maps.Copy(vars, wished)
	return evidence.EnvPolicy{Vars: vars, Timezone: vars["TZ"], Locale: vars["LC_ALL"], HashSeed: vars["PYTHONHASHSEED"]}
}

// Rungs that a plan aims at (RO-07): one pass, or enough passes to show that it is stable.
const (
	rungLocal  = 641
	rungStable = 274177
)

// NewPlan is plan.json (RO-07): the run before it begins. findings are those of [Build]. Seeds
// are not varied (resolution 46), and nothing is proved yet: the rung is 0.
func NewPlan(m evidence.RunManifest, findings []evidence.Finding) evidence.Plan {
	passes, commands := int64(len(evidence.Passes(m))), int64(len(m.Gates))
	var ms int64
	for _, g := range m.Gates {
		ms += g.TimeoutMS
	}
	p := evidence.Plan{
		SkillVersion: "1.0.0", Profile: "evalbox-gate", StopReason: "NONE", LastKnownState: "MANIFEST_BUILD",
		LoopBudgets:         map[string]int64{"iterations": passes, "tool_calls": passes * commands, "milliseconds": passes * ms},
		LocalizationSummary: []string{}, ForecastSummary: []string{}, VerificationRungTarget: rungLocal,
		NullChecksPerformed: true, // Build refuses missing and empty commands
		EnvSnapshotPointer:  evidence.EnvSnapshotFile, EvidenceManifestPointer: evidence.ManifestFile, GateCommands: m.GateCommands,
	}
	if m.Mode.Repeats > 1 {
		p.VerificationRungTarget = rungStable
	}
	if len(findings) > 0 {
		p.StopReason = string(findings[0].Reason)
	}
	return p
}
