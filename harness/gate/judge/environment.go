package judge

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// environment compares the environment of the gates with the sealed one (RT-05, RT-08).
func (j *judgement) environment() {
	m, env := j.in.Manifest, j.in.Env
	if env.Schema != evidence.EnvSnapshotV1 {
		return // files reports it
	}
	image := m.Toolchain.Image
	if m.Toolchain.ImageID != "" && env.ImageID != m.Toolchain.ImageID {
		j.add(evidence.ReasonEnvironment, 0, image, "The gates ran in the image %q, and the wish was sealed with %q.", env.ImageID, m.Toolchain.ImageID)
	}
	if env.GitCommit != m.Repo.Commit {
		j.add(evidence.ReasonEnvironment, 0, "repository", "The gates ran at the commit %q, and the run manifest says %q.", env.GitCommit, m.Repo.Commit)
	}
	if env.Workspace == "" {
		j.add(evidence.ReasonIncomplete, 0, evidence.EnvSnapshotFile, "%s has no hash of the workspace that the gates got.", evidence.EnvSnapshotFile)
	}
	j.python()
	j.mounts()
	if !m.Mode.ClaimGrade {
		return
	}
	// The ID of the image pins all of its content, Python included.
	switch {
	case m.Toolchain.ImageID == "":
		j.add(evidence.ReasonUnpinned, 0, image, "The wish was sealed without the ID of the image %q.", image)
	case !m.Toolchain.Locked:
		j.add(evidence.ReasonUnpinned, 0, image, "The image %q was not the locked one when the wish was sealed.", image)
	case !env.ImageLocked:
		j.add(evidence.ReasonUnpinned, 0, image, "The image that the gates ran in was not the locked one.")
	}
}

// python compares the pinned version with that of the image.
func (j *judgement) python() {
	pinned, runtimes := j.in.Manifest.Toolchain.Python, j.in.Env.LanguageRuntimes
	found := cmp.Or(runtimes["python"], runtimes["python3"])
	switch {
	case pinned == "":
	case found == "" && j.in.Manifest.Mode.ClaimGrade:
		j.add(evidence.ReasonUnpinned, 0, "python", "The wish pins Python %s, and %s does not say which one the gates had.", pinned, evidence.EnvSnapshotFile)
	case !strings.HasPrefix(found+".", pinned+"."): // "3.11" pins any 3.11.x, not 3.110
		j.add(evidence.ReasonEnvironment, 0, "python", "The wish pins Python %s, and the gates had %q.", pinned, found)
	}
}

// mounts compares the directories of tools with the sealed ones.
func (j *judgement) mounts() {
	there, sealed := map[string]string{}, map[string]bool{}
	for _, mount := range j.in.Env.Toolchain {
		there[mount.Target] = mount.Hash
	}
	for _, mount := range j.in.Manifest.Toolchain.Mounts {
		sealed[mount.Target] = true
		switch hash, is := there[mount.Target]; {
		case mount.Hash == "" && j.in.Manifest.Mode.ClaimGrade:
			j.add(evidence.ReasonUnpinned, 0, mount.Target, "The toolchain at %s is not pinned by a hash.", mount.Target)
		case !is:
			j.add(evidence.ReasonEnvironment, 0, mount.Target, "The gates did not have the toolchain at %s that was sealed.", mount.Target)
		case hash != mount.Hash:
			j.add(evidence.ReasonEnvironment, 0, mount.Target, "The toolchain at %s has the hash %q, and %q was sealed.", mount.Target, hash, mount.Hash)
		}
	}
	for _, mount := range j.in.Env.Toolchain {
		if !sealed[mount.Target] {
			j.add(evidence.ReasonEnvironment, 0, mount.Target, "The gates had a toolchain at %s that was not sealed.", mount.Target)
		}
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

// observations adds forbidden attempts of the gates (RT-08), and passes that nothing observed.
func (j *judgement) observations() {
	m := j.in.Manifest
	if j.in.Observations.Schema != evidence.ObservationsV1 {
		return // files reports it
	}
	if m.Mode.Offline && m.Egress != nil {
		j.add(evidence.ReasonNetwork, 0, evidence.RunManifestFile, "The run is to be offline, and its manifest opens the network level %q.", m.Egress.Level)
	}
	gates, passes := map[int]bool{}, map[string]bool{}
	for _, g := range m.Gates {
		gates[g.Index] = true
	}
	if !j.tooManyRepeats() {
		for _, pass := range evidence.Passes(m) {
			passes[pass] = true
		}
	}
	ran, idle := j.ran()
	seen := map[gatePass]bool{}
	for _, o := range j.in.Observations.Commands {
		at := gatePass{o.Pass, o.Index}
		switch {
		case !gates[o.Index]:
			j.add(evidence.ReasonUndeclared, o.Index, evidence.ObservationsFile, "%s has the gate %d, which nobody declared.", evidence.ObservationsFile, o.Index)
		case !passes[o.Pass] && len(passes) > 0:
			j.add(evidence.ReasonUndeclared, o.Index, evidence.ObservationsFile, "%s has gate %d in %q, which nobody asked for.", evidence.ObservationsFile, o.Index, short(o.Pass))
		case seen[at]:
			j.add(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "%s has %s more than once.", evidence.ObservationsFile, at)
		}
		seen[at] = true
		j.attempts(o)
		if !idle[at] {
			j.observed(o)
		}
	}
	for _, at := range ran {
		if !seen[at] {
			j.add(evidence.ReasonIncomplete, at.index, evidence.ObservationsFile, "%s has nothing on %s, which ran.", evidence.ObservationsFile, at)
		}
	}
}

// ran lists the passes of gates that need an observation, and those that never started: they
// tried nothing.
func (j *judgement) ran() (ran []gatePass, idle map[gatePass]bool) {
	m := j.in.Manifest
	idle = map[gatePass]bool{}
	for _, r := range j.in.Tests.Commands {
		at := gatePass{"", r.Index}
		ran, idle[at] = append(ran, at), !r.Started
		if m.Baseline != "" && r.Baseline != nil {
			at = gatePass{evidence.BaselinePass, r.Index}
			ran, idle[at] = append(ran, at), !r.Baseline.Started
		}
	}
	if !j.tooManyRepeats() {
		for k := 2; k <= m.Mode.Repeats; k++ {
			for _, g := range m.Gates {
				ran = append(ran, gatePass{evidence.RepeatPass(k), g.Index})
			}
		}
	}
	return ran, idle
}

// offline reports whether the gates may reach nothing.
func (j *judgement) offline() bool { return j.in.Manifest.Mode.Offline || j.in.Manifest.Egress == nil }

// attempts adds what a gate tried.
func (j *judgement) attempts(o evidence.Observation) {
	at := gatePass{o.Pass, o.Index}
	add := func(reason evidence.StopReason, subject, format string, args ...any) {
		j.add(reason, o.Index, subject, "G%s "+format, append([]any{at.String()[1:]}, args...)...)
	}
	if o.NetworkAttempts < 0 || o.Refused < 0 {
		add(evidence.ReasonIncomplete, evidence.ObservationsFile, "has fewer than no attempts in %s.", evidence.ObservationsFile)
	}
	if j.offline() {
		if o.Network != "none" {
			add(evidence.ReasonNetwork, "network", "was to be offline and ran with the network %q.", o.Network)
		}
		if o.NetworkAttempts > 0 {
			add(evidence.ReasonNetwork, "network", "tried to reach the network %s, and is to be offline.", text.Count(o.NetworkAttempts, "time"))
		}
		if o.Refused > 0 {
			add(evidence.ReasonNetwork, "network", "made %s that the proxy refused, and is to be offline.", text.Count(o.Refused, "request"))
		}
	}
	for _, touch := range o.Touched {
		how, line := "tried to reach", ""
		if touch.How == "opened" {
			how = "opened"
		}
		if touch.Line != "" {
			line = ": " + short(touch.Line)
		}
		add(evidence.ReasonOutsideBoundary, touch.Path, "%s %s, which is outside of what it may touch%s.", how, touch.Path, line)
	}
	for _, path := range o.Changed {
		add(evidence.ReasonOutsideBoundary, path, "changed %s, which it may only read.", path)
	}
	for _, path := range o.Evidence {
		add(evidence.ReasonOutsideBoundary, path, "wrote to %s, where the evidence lies.", path)
	}
}

// observed adds attempts that could not be seen. Without a network level, error messages alone
// are not enough: a program can hide them.
func (j *judgement) observed(o evidence.Observation) {
	at, mode := gatePass{o.Pass, o.Index}, j.in.Manifest.Mode
	accepted, why := mode.AllowUnobserved && !mode.Strict, "the wish does not accept that (allow_unobserved)"
	if mode.Strict {
		why = "strict mode demands it"
	}
	add := func(format string, args ...any) {
		j.add(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, format, args...)
	}
	if !o.Complete {
		add("The list of what %s changed is cut, so that it may have changed what it must not.", at)
	}
	switch {
	case !j.offline():
	case trust(o.Counted) == 0:
		add("Nobody counted whether %s tried to reach the network.", at)
	case o.Counted != countedByKernel && !accepted:
		add("Whether %s tried to reach the network was only looked for in its output, not counted by the kernel; %s.", at, why)
	}
	if !o.Watched && !accepted && (mode.Strict || j.offline()) {
		add("Nobody watched what %s opened; %s.", at, why)
	}
}

// Ways to count attempts at the network.
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
