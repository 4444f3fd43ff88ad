package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

const (
	maxResult   = 64 << 20 // bytes of the raw result of one gate
	maxHashFile = 1 << 10  // bytes of a file with one hash
)

// Load reads an untrusted gate directory. check is its [evidence.CheckFiles]. The run manifest
// must follow from the sealed wish, and the evidence of each gate must agree with the raw
// results: files that contradict each other were tampered with, even if their hashes fit.
//
// The input's Check reports missing and malformed files in addition; they stop a pass. An error
// is one of the machine or of ctx only.
func Load(ctx context.Context, root *os.Root, check evidence.CheckReport) (Input, error) {
	check.Missing, check.Findings = slices.Clone(check.Missing), slices.Clone(check.Findings)
	l := loader{ctx: ctx, root: root, in: Input{Check: check, Inconclusive: map[string]string{}}, raw: map[string]*result.Result{}}
	in, findings := &l.in, evidence.Findings{}
	for _, file := range []struct {
		name string
		into any
	}{
		{evidence.RunManifestFile, &in.Manifest},
		{evidence.PlanFile, &in.Plan},
		{evidence.TestsFile, &in.Tests},
		{evidence.ObservationsFile, &in.Observations},
		{evidence.NormalizationFile, &in.Normalization},
		{evidence.EnvSnapshotFile, &in.Env},
		{evidence.ArtifactsFile, &in.Artifacts},
		{evidence.FindingsFile, &findings},
	} {
		l.took(file.name, evidence.Read(root, file.name, evidence.MaxDocument, file.into))
	}
	in.Pre, in.Differences = findings.Pre, findings.Differences
	hash, err := evidence.ReadText(root, evidence.BehaviorHashFile, maxHashFile)
	l.took(evidence.BehaviorHashFile, err)
	in.BehaviorHash = strings.TrimSuffix(string(hash), "\n")
	if in.Manifest.Schema == evidence.RunManifestV1 && in.Manifest.Mode.Sealed {
		l.lock() // a manifest that was not sealed says so, and has nothing to be compared with
	}
	for _, gate := range in.Tests.Commands {
		l.ending("", gate.Index, gate.Started, gate.Ending, gate.ExitCode, gate.LogsComplete)
		if b := gate.Baseline; b != nil {
			l.ending(evidence.BaselinePass, gate.Index, b.Started, b.Ending, b.ExitCode, false)
		}
	}
	for _, o := range in.Observations.Commands {
		l.observation(o) // also of the repeats
	}
	slices.Sort(in.Check.Missing)
	if err := cmp.Or(l.err, context.Cause(ctx)); err != nil {
		return Input{}, err
	}
	return l.in, nil
}

type loader struct {
	ctx  context.Context //nolint:containedctx // lives as long as the one call that it belongs to
	root *os.Root
	in   Input
	// raw are the results by their names, so that each is read once; nil is an unusable one.
	raw map[string]*result.Result
	err error // the first one of the machine
}

// took adds a problem of a file to the check, and keeps an error of the machine.
func (l *loader) took(name string, err error) {
	check := &l.in.Check
	var file *evidence.FileError
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		if !slices.Contains(check.Missing, name) {
			check.Missing = append(check.Missing, name)
		}
	case errors.As(err, &file):
		check.Findings = append(check.Findings, evidence.Finding{Reason: evidence.ReasonIncomplete, Subject: name, Detail: file.Error() + "."})
	default:
		l.err = cmp.Or(l.err, err)
	}
}

// tampered adds a contradiction between files whose hashes fit.
func (l *loader) tampered(file string, gate int, format string, args ...any) {
	l.in.Check.Findings = append(l.in.Check.Findings, evidence.Finding{
		Reason: evidence.ReasonTampered, Gate: gate, Subject: file, Detail: fmt.Sprintf(format, args...),
	})
}

// lock compares the run manifest with its sealed wish.
func (l *loader) lock() {
	sealed, err := evidence.ReadText(l.root, evidence.WishLockFile, spec.MaxDocument)
	if err != nil {
		l.took(evidence.WishLockFile, err)
		return
	}
	lock, err := spec.ParseLock(sealed, evidence.WishLockFile)
	switch {
	case errors.Is(err, spec.ErrChanged):
		l.tampered(evidence.WishLockFile, 0, "%s does not hold what was sealed: its content and its hash differ.", evidence.WishLockFile)
		return
	case err != nil:
		l.took(evidence.WishLockFile, &evidence.FileError{File: evidence.WishLockFile, Rule: "is not a sealed wish: " + short(text.OneLine(err.Error())), Err: err})
		return
	}
	for _, part := range disagreements(lock, l.in.Manifest) {
		l.tampered(evidence.WishLockFile, 0, "%s and %s do not agree on %s.", evidence.WishLockFile, evidence.RunManifestFile, part)
	}
}

// disagreements are the parts of a manifest that do not follow from its wish. Flags make a
// run stricter, never laxer. A replay runs in the recorded image and claims nothing itself.
func disagreements(lock spec.Lock, m evidence.RunManifest) (parts []string) {
	w := lock.Wish
	differ := func(part string, yes bool) {
		if yes {
			parts = append(parts, part)
		}
	}
	differ("the hash of the wish", lock.SHA256 != m.WishSHA256)
	differ("the commands", !slices.EqualFunc(w.GateCommands, m.Gates, func(c evidence.Command, g evidence.Gate) bool {
		return c.Cmd == g.Cmd && c.ExpectExit == g.ExpectExit && c.Kind == g.Kind && c.Report == g.Report
	}))
	want := lock.Toolchain
	if m.Mode.Replay && want.ImageID == "" {
		want.ImageID = m.Toolchain.ImageID
	}
	differ("the image", want.Image != m.Toolchain.Image || want.ImageID != m.Toolchain.ImageID || want.Locked != m.Toolchain.Locked)
	differ("the tools", want.Python != m.Toolchain.Python || !slices.Equal(want.Mounts, m.Toolchain.Mounts))
	differ("offline", w.Offline && !m.Mode.Offline)
	differ("the network", m.Egress != nil && (w.Offline || m.Egress.Level != w.Network.Level ||
		!slices.Equal(m.Egress.Allow, w.Network.Allow) || !slices.Equal(m.Egress.Deny, w.Network.Deny)))
	differ("strict", w.Strict && !m.Mode.Strict)
	differ("claim_grade", w.ClaimGrade && !m.Mode.ClaimGrade && !m.Mode.Replay)
	differ("allow_unobserved", m.Mode.AllowUnobserved && !w.AllowUnobserved)
	differ("the protected paths", !slices.Equal(w.ProtectedPaths, m.ProtectedPaths))
	differ("the read-only paths", !slices.Equal(w.ReadOnlyPaths, m.ReadOnlyPaths))
	differ("the rules of normalization", !slices.Equal(w.Normalize, m.Rules) || !slices.Equal(w.AllowSuspects, m.Allowed))
	return parts
}

// ending compares the end of a gate in tests.json with its raw result. complete says that
// tests.json calls its output complete.
func (l *loader) ending(pass string, index int, started bool, status string, code *int, complete bool) {
	name, r := l.rawResult(pass, index)
	if r == nil {
		return
	}
	was := &r.ExitCode
	if r.ExitCode < 0 {
		was = nil
	}
	is := ended(started, status, code)
	if want := ended(r.Status != result.StatusStartFailed, r.Status.String(), was); is != want {
		l.tampered(evidence.TestsFile, index, "%s says that gate %d %s; %s says that it %s.", evidence.TestsFile, index, short(is), name, want)
	}
	whole := r.OutputComplete
	for stream, wrote := range map[string]int64{"stdout.log": r.StdoutBytes, "stderr.log": r.StderrBytes} {
		info, err := l.root.Lstat(evidence.RawFile(pass, index, stream))
		missing := errors.Is(err, fs.ErrNotExist) // the check reports it
		whole = whole && (missing || err == nil && info.Size() == wrote)
	}
	if complete && !whole {
		l.tampered(evidence.TestsFile, index, "%s says that the output of gate %d is complete; by %s some was lost, or its logs have other sizes.", evidence.TestsFile, index, name)
	}
}

// ended describes the end of a gate.
func ended(started bool, status string, code *int) string {
	text := fmt.Sprintf("ended as %q", status)
	if !started {
		text = "never started, and " + text
	}
	if code == nil {
		return text + " without an exit code"
	}
	return fmt.Sprintf("%s with the exit code %d", text, *code)
}

// observation compares the numbers of an observation with its raw result.
func (l *loader) observation(o evidence.Observation) {
	name, r := l.rawResult(o.Pass, o.Index)
	if r == nil {
		return
	}
	kernel, watched := o.Counted == evidence.CountedByKernel, false
	less := kernel
	if seen := r.Observed; seen != nil {
		less = kernel && (seen.NetworkAttempts == nil || *seen.NetworkAttempts > o.NetworkAttempts) || !kernel && seen.NetworkAttempts != nil
		watched = seen.WatchWhy == "" && len(seen.Watched) > 0
	}
	level, refused := "none", int64(0)
	if r.Network != nil {
		level, refused = r.Network.Level, r.Network.Refused
	}
	if less || o.Watched && !watched || level != o.Network || refused > o.Refused || hides(o, r.Observed) {
		l.tampered(evidence.ObservationsFile, o.Index, "%s and %s do not agree on what %s tried.", evidence.ObservationsFile, name, gatePass{o.Pass, o.Index})
	}
}

// hides reports whether an observation lacks a file that the kernel saw opened.
func hides(o evidence.Observation, seen *result.Observed) bool {
	if seen == nil {
		return false
	}
	has := map[evidence.Touch]bool{}
	for _, touch := range o.Touched {
		has[touch] = true
	}
	return slices.ContainsFunc(evidence.Opened(seen.Opened), func(touch evidence.Touch) bool { return !has[touch] })
}

// rawResult reads a raw result; nil if it cannot be used, which the check reports.
func (l *loader) rawResult(pass string, index int) (string, *result.Result) {
	name := evidence.RawFile(pass, index, "result.json")
	r, again := l.raw[name]
	if again || l.err != nil || l.ctx.Err() != nil {
		return name, r
	}
	r = new(result.Result)
	err := evidence.Read(l.root, name, maxResult, r)
	l.took(name, err)
	if err != nil {
		r = nil
	} else if !r.Conclusive() && r.Status != result.StatusStartFailed { // a gate that did not start has a reason of its own
		l.in.Inconclusive[name] = cmp.Or(r.Explanation, r.Status.String())
	}
	l.raw[name] = r
	return name, r
}
