package judge

import (
	"cmp"
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
	image, sealed := m.Toolchain.Image, m.Toolchain.ImageID
	j.when(sealed != "" && env.ImageID != sealed, evidence.ReasonEnvironment, image,
		"The gates ran in the image %q, and the wish was sealed with %q.", env.ImageID, sealed)
	j.when(env.GitCommit != m.Repo.Commit, evidence.ReasonEnvironment, "repository",
		"The gates ran at the commit %q, and the run manifest says %q.", env.GitCommit, m.Repo.Commit)
	j.when(env.Workspace == "", evidence.ReasonIncomplete, evidence.EnvSnapshotFile,
		"%s has no hash of the workspace that the gates got.", evidence.EnvSnapshotFile)
	j.python()
	j.mounts()
	// The ID of the image pins all of its content, Python included.
	switch {
	case !m.Mode.ClaimGrade:
	case sealed == "":
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

// observations adds forbidden attempts of the gates (RT-08), and passes that nothing observed.
func (j *judgement) observations() {
	m := j.in.Manifest
	if j.in.Observations.Schema != evidence.ObservationsV1 {
		return // files reports it
	}
	if m.Mode.Offline && m.Egress != nil {
		j.add(evidence.ReasonNetwork, 0, evidence.RunManifestFile, "The run is to be offline, and its manifest opens the network level %q.", m.Egress.Level)
	}
	gates, passes := j.indexes(), map[string]bool{}
	if !j.tooManyRepeats() {
		for _, pass := range evidence.Passes(m) {
			passes[pass] = true
		}
	}
	runs, idle, seen := j.runs(), map[gatePass]bool{}, map[gatePass]bool{}
	for _, r := range runs {
		idle[r.gatePass] = !r.started
	}
	for _, o := range j.in.Observations.Commands {
		at := gatePass{o.Pass, o.Index}
		switch {
		case !gates[o.Index], !passes[o.Pass] && len(passes) > 0:
			j.add(evidence.ReasonUndeclared, o.Index, evidence.ObservationsFile, "%s has %s, which nobody asked for.", evidence.ObservationsFile, at)
		case seen[at]:
			j.add(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "%s has %s more than once.", evidence.ObservationsFile, at)
		}
		seen[at] = true
		j.attempts(at, o)
		if !idle[at] {
			j.observed(at, o)
		}
	}
	for _, r := range runs {
		if !seen[r.gatePass] {
			j.add(evidence.ReasonIncomplete, r.index, evidence.ObservationsFile, "%s has nothing on %s, which ran.", evidence.ObservationsFile, r)
		}
	}
}

// offline reports whether the gates may reach nothing.
func (j *judgement) offline() bool { return j.in.Manifest.Mode.Offline || j.in.Manifest.Egress == nil }

// attempts adds what a gate tried.
func (j *judgement) attempts(at gatePass, o evidence.Observation) {
	add := func(wrong bool, reason evidence.StopReason, subject, format string, args ...any) {
		if wrong {
			j.add(reason, o.Index, subject, "G%s "+format, append([]any{at.String()[1:]}, args...)...)
		}
	}
	add(o.NetworkAttempts < 0 || o.Refused < 0, evidence.ReasonIncomplete, evidence.ObservationsFile, "has fewer than no attempts in %s.", evidence.ObservationsFile)
	offline := j.offline()
	add(offline && o.Network != "none", evidence.ReasonNetwork, "network", "was to be offline and ran with the network %q.", o.Network)
	printed := o.Counted == evidence.CountedInOutput
	add(offline && !printed && o.NetworkAttempts > 0, evidence.ReasonNetwork, "network", "tried to reach the network %s, and is to be offline.", text.Count(o.NetworkAttempts, "time"))
	if offline && printed && o.NetworkAttempts > 0 {
		j.printed(at, evidence.ReasonNetwork, "network", o.NetworkLine, text.Count(o.NetworkAttempts, "time")+" that it did not reach the network")
	}
	add(offline && o.Refused > 0, evidence.ReasonNetwork, "network", "made %s that the proxy refused, and is to be offline.", text.Count(o.Refused, "request"))
	for _, touch := range o.Touched {
		if touch.How == evidence.TouchPrinted {
			j.printed(at, evidence.ReasonOutsideBoundary, touch.Path, touch.Line, "that it did not reach "+touch.Path)
			continue
		}
		add(true, evidence.ReasonOutsideBoundary, touch.Path, "opened %s, which is outside of what it may touch.", touch.Path)
	}
	for _, path := range o.Changed {
		add(true, evidence.ReasonOutsideBoundary, path, "changed %s, which it may only read.", path)
	}
	for _, path := range o.Evidence {
		add(true, evidence.ReasonOutsideBoundary, path, "wrote to %s, where the evidence lies.", path)
	}
}

// printed adds what only the text of a gate says. A program can print anything, so the text proves no
// attempt: only strict mode, which fails closed, holds it against a pass.
func (j *judgement) printed(at gatePass, reason evidence.StopReason, subject, line, what string) {
	note := j.warn
	if j.in.Manifest.Mode.Strict {
		note = j.add
	}
	note(reason, at.index, subject, "G%s printed %s: %q. Strict mode blocks on such a line, unless a pattern of allow_suspects in the wish matches it.", at.String()[1:], what, short(line))
}

// observed adds attempts that could not be seen. Without a network level, error messages alone
// are not enough: a program can hide them.
func (j *judgement) observed(at gatePass, o evidence.Observation) {
	mode := j.in.Manifest.Mode
	accepted, why := mode.AllowUnobserved && !mode.Strict, "the wish does not accept that (allow_unobserved)"
	if mode.Strict {
		why = "strict mode demands it"
	}
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			j.add(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, format, args...)
		}
	}
	add(!o.Complete, "The list of what %s changed is cut, so that it may have changed what it must not.", at)
	counted := trust[o.Counted]
	add(j.offline() && counted == 0, "Nobody counted whether %s tried to reach the network.", at)
	add(j.offline() && counted == trust[evidence.CountedInOutput] && !accepted,
		"Whether %s tried to reach the network was only looked for in its output, not counted by the kernel; %s.", at, why)
	add(!o.Watched && !accepted && (mode.Strict || j.offline()), "Nobody watched what %s opened; %s.", at, why)
}

// trust orders the ways of counting; others are worth nothing.
var trust = map[string]int{evidence.CountedByKernel: 2, evidence.CountedInOutput: 1}
