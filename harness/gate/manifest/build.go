package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/wish"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Tools is a registry of programs that may be run.
type Tools interface {
	// Check says why a command must not be run, naming the tool and the rule; nil if it
	// may.
	Check(argv []string) error
}

// Input is everything that node 1 looks at.
type Input struct {
	Lock wish.Lock
	// Sealed is false if there is no lock or if it is not what was sealed; NotSealed then
	// says why, in one sentence without the name of the state.
	Sealed    bool
	NotSealed string
	// Workspace is the boundary's absolute path, links resolved; see [wish.Wish.Workspace].
	// WorkspaceExists is false if there is none, and WorkspaceOutside true if a link leads
	// out of the folder of the wish.
	Workspace        string
	WorkspaceExists  bool
	WorkspaceOutside bool
	// Baseline is a folder with the revision that is compared; empty for none.
	Baseline string
	// Repo is what git says, and Differs the first paths of the workspace that are not
	// what its commit has; see [repo.Status].
	Repo    evidence.Repo
	Differs []string
	// Uncounted are paths below the boundary that make no tree dirty.
	Uncounted []string
	// Mode are the flags. Build sets Sealed, Offline, Strict, ClaimGrade and
	// AllowUnobserved to what follows from flags and wish: a flag makes a run stricter,
	// never laxer, so that only the wish can allow something.
	Mode evidence.Mode
	// Exclude are further paths below the boundary that the gates do not see, such as the
	// directory of the gate itself.
	Exclude []string
	// Tools, if not nil, must permit every command.
	Tools Tools
	// Policy has the limits and ceilings of this machine, and what may be reached.
	Policy policy.Policy
}

// Build decides. With findings nothing must be run; the manifest then says what would
// have been.
func Build(in Input) (evidence.RunManifest, []evidence.Finding) {
	w := in.Lock.Wish
	b := &builder{in: in}
	m := evidence.RunManifest{
		Schema: evidence.RunManifestV1, Name: w.Name, WishSHA256: in.Lock.SHA256, GateCommands: []string{}, Gates: []evidence.Gate{},
		IOBoundary: strings.TrimSuffix(w.IOBoundary, "/") + "/", Workspace: in.Workspace, Baseline: in.Baseline,
		EnvPolicy: environment(w.Env), ArtifactPaths: append([]string{}, w.ArtifactPaths...), ProtectedPaths: append([]string{}, w.ProtectedPaths...),
		ReadOnlyPaths: append([]string{}, w.ReadOnlyPaths...), Exclude: sorted(w.Exclude, in.Exclude), Uncounted: sorted(in.Uncounted),
		Toolchain: in.Lock.Toolchain, Repo: in.Repo, Mode: b.mode(), Rules: append([]evidence.Rule{}, w.Normalize...), Allowed: append([]string{}, w.AllowSuspects...),
	}
	m.Toolchain.Mounts = append([]evidence.ToolMount{}, in.Lock.Toolchain.Mounts...)
	b.ground()
	m.Egress = b.egress(m.Mode)
	m.TimeoutCaps = b.caps()
	for i, command := range w.GateCommands {
		m.GateCommands = append(m.GateCommands, command.Cmd)
		m.Gates = append(m.Gates, b.gate(i+1, command, m))
	}
	return m, b.findings
}

// A builder collects findings.
type builder struct {
	in       Input
	findings []evidence.Finding
}

func (b *builder) find(reason evidence.StopReason, gate int, subject, detail string) {
	b.findings = append(b.findings, evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: detail})
}

func (b *builder) mode() evidence.Mode {
	m, w := b.in.Mode, b.in.Lock.Wish
	m.Sealed = b.in.Sealed
	m.Offline = m.Offline || w.Offline
	m.Strict = m.Strict || w.Strict
	m.ClaimGrade = m.ClaimGrade || w.ClaimGrade
	m.AllowUnobserved = w.AllowUnobserved && !m.Strict
	m.Repeats = max(m.Repeats, 1)
	return m
}

// ground is what there must be before any command is looked at.
func (b *builder) ground() {
	in, w := b.in, b.in.Lock.Wish
	if !in.Sealed {
		b.find(evidence.ReasonNotSealed, 0, evidence.WishLockFile,
			cmp.Or(in.NotSealed, "The wish is not sealed, so that nobody can say what was to be run; seal it first."))
	}
	if len(w.GateCommands) == 0 {
		b.find(evidence.ReasonNoCommands, 0, "gate_commands", "The wish has no commands, and without one nothing can be shown.")
	}
	switch {
	case in.WorkspaceOutside:
		b.find(evidence.ReasonOutsideBoundary, 0, w.IOBoundary, "The boundary is a link that leads out of the folder of the wish.")
	case !in.WorkspaceExists:
		b.find(evidence.ReasonNoWorkspace, 0, w.IOBoundary, "There is no folder at the boundary of the wish.")
	}
	switch strict := in.Mode.Strict || w.Strict; {
	case strict && in.Repo.Dirty:
		b.find(evidence.ReasonDirty, 0, cmp.Or(in.Repo.Commit, w.IOBoundary), dirty(in.Differs))
	case strict && in.Repo.Commit == "":
		b.find(evidence.ReasonDirty, 0, "", "There is no commit that the workspace could be compared with, and the run is strict.")
	}
}

// dirty names what is not as it was committed.
func dirty(differs []string) string {
	const most = 5
	text := "The workspace is not what the commit says, and the run is strict"
	if len(differs) > 0 {
		var names []string
		for _, name := range differs[:min(len(differs), most)] {
			names = append(names, fmt.Sprintf("%.200q", name))
		}
		text += ": " + strings.Join(names, ", ")
		if len(differs) > most {
			text += " and others"
		}
		text += " differ"
		if len(differs) == 1 {
			text += "s"
		}
	}
	return text + "; commit, remove or ignore that. Files are compared as they are: what git converts by its attributes (eol, text, filter) differs, also where git status shows nothing."
}

// egress is what the gates may reach; nil is nothing.
func (b *builder) egress(m evidence.Mode) *evidence.Egress {
	n := b.in.Lock.Wish.Network
	asked := &policy.Egress{Level: policy.NetworkLevel(n.Level), Allow: n.Allow, Deny: n.Deny}
	if m.Offline || asked.Offline() {
		return nil
	}
	if _, err := b.in.Policy.ApplyEgress(asked); err != nil {
		b.refused(0, "network", err)
	}
	return &evidence.Egress{Level: n.Level, Allow: append([]string{}, n.Allow...), Deny: append([]string{}, n.Deny...)}
}

// refused reports what the policy of the machine does not permit.
func (b *builder) refused(gate int, subject string, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		b.find(evidence.ReasonToolRefused, gate, subject, "The policy of this machine does not permit it: "+line+".")
	}
}

// caps are the effective limits.
func (b *builder) caps() evidence.Caps {
	asked := b.in.Lock.Wish.Limits
	limits, err := b.in.Policy.Apply(policy.Limits{
		Timeout: time.Duration(asked.TimeoutMS) * time.Millisecond, Memory: policy.Size(asked.MemoryBytes),
		CPUs: float64(asked.MilliCPUs) / 1000, PIDs: asked.PIDs, Disk: policy.Size(asked.DiskBytes), StreamFile: policy.Size(asked.LogBytes),
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

// gate decides about one command.
func (b *builder) gate(index int, c wish.Command, m evidence.RunManifest) evidence.Gate {
	g := evidence.Gate{
		Index: index, Cmd: c.Cmd, Argv: []string{}, ExpectExit: c.ExpectExit, Kind: c.Kind,
		Report: c.Report, ReportPath: c.ReportPath, Env: map[string]string{}, TimeoutMS: cmp.Or(c.TimeoutMS, m.TimeoutCaps.TimeoutMS),
	}
	if ceiling := b.in.Policy.Max.Timeout; ceiling > 0 && c.TimeoutMS > ceiling.Milliseconds() {
		b.refused(index, "timeout", &policy.FieldError{
			Field: "timeout", Value: (time.Duration(c.TimeoutMS) * time.Millisecond).String(), Rule: fmt.Sprintf("above the policy's maximum of %v", ceiling),
		})
	}
	maps.Copy(g.Env, c.Env)
	argv, err := wish.Words(c.Cmd)
	if err != nil {
		b.find(evidence.ReasonToolRefused, index, "gate_commands", fmt.Sprintf("The command cannot be run: it %s.", err))
		return g
	}
	g.Argv = argv
	askForReport(&g, m.EnvPolicy.Vars)
	for _, o := range outsideOf(argv, m.ProtectedPaths) {
		b.find(evidence.ReasonOutsideBoundary, index, o.path, fmt.Sprintf("The command names %s, which %s; it was not run.", o.path, o.why))
	}
	if b.in.Tools != nil {
		if err := b.in.Tools.Check(slices.Clone(argv)); err != nil {
			b.find(evidence.ReasonToolRefused, index, argv[0], fmt.Sprintf("The registry of tools does not permit the command: %s.", text.OneLine(err.Error())))
		}
	}
	return g
}

// sorted is the union of lists, in order.
func sorted(lists ...[]string) []string {
	all := append([]string{}, slices.Concat(lists...)...)
	slices.Sort(all)
	return slices.Compact(all)
}
