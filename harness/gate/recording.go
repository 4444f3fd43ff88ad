package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/harness/gate/manifest"
	"github.com/evalbox/evalbox/harness/gate/repo"
	"github.com/evalbox/evalbox/harness/gate/wish"
	"github.com/evalbox/evalbox/internal/fsx"
)

// recording is what a replay starts from. Others may have written it.
type recording struct {
	gates evidence.Gates
	// manifest and tests are those of the recorded run, nil without.
	manifest *evidence.RunManifest
	tests    *evidence.Tests
	// input is all evidence of the recorded run, and lock its sealed wish; both are there
	// with a manifest only.
	input judge.Input
	lock  []byte
	// root is the folder of GATES.json.
	root *os.Root
}

// openRecording reads GATES.json and what lies beside it.
func openRecording(from string) (rec *recording, err error) {
	dir, name := from, evidence.GatesFile
	if info, err := os.Stat(from); err == nil && !info.IsDir() {
		dir, name = filepath.Dir(from), filepath.Base(from)
	}
	root, err := openExisting(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Close())
		}
	}()
	text, err := evidence.ReadText(root, name, judge.MaxGatesText)
	if err != nil {
		return nil, fmt.Errorf("replay of %s: %w", from, fsx.Cause(err))
	}
	rec = &recording{root: root}
	if rec.gates, err = judge.ParseGates(text); err != nil {
		return nil, fmt.Errorf("replay of %s: %w", from, err)
	}
	if rec.manifest, err = beside[evidence.RunManifest](root, evidence.RunManifestFile); err != nil {
		return nil, err
	}
	rec.tests, err = beside[evidence.Tests](root, evidence.TestsFile)
	return rec, err
}

// beside reads a document that may be missing.
func beside[T any](root *os.Root, name string) (*T, error) {
	v := new(T)
	err := evidence.Read(root, name, evidence.MaxDocument, v)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

func (rec *recording) close() error { return rec.root.Close() }

// plan is the manifest of the replay, or what is missing for it. It looks at the
// workspace and at the folders of the tools, and changes nothing.
func (rec *recording) plan(ctx context.Context, o ReplayOptions) (m evidence.RunManifest, missing []Problem, err error) {
	lacks := func(subject, format string, args ...any) {
		missing = append(missing, Problem{subject, fmt.Sprintf(format, args...)})
	}
	if rec.manifest == nil {
		var findings []evidence.Finding
		if m, findings, err = rec.bare(o); err != nil {
			return m, nil, err
		}
		for _, f := range findings {
			lacks(f.Subject, "%s", f.Detail)
		}
	} else {
		m = *rec.manifest
		unfit, err := rec.examine(ctx)
		if err != nil {
			return m, nil, err
		}
		missing = append(missing, unfit...)
		if !m.Mode.Execute || !m.Mode.Sealed || !m.Mode.Tools {
			lacks(evidence.RunManifestFile, "says that nothing was executed")
		}
		if !sameCommands(rec.gates, m) {
			lacks(evidence.GatesFile, "has other commands than %s", evidence.RunManifestFile)
		}
	}
	m.Mode.Replay, m.Mode.Repeats, m.Baseline = true, 1, ""
	m.Repo.BaselineRev, m.Repo.BaselineCommit = "", ""
	if rec.gates.ImageID != "" {
		// The exact image needs no lock to be the one that was used.
		m.Toolchain.ImageID, m.Mode.ClaimGrade = rec.gates.ImageID, false
	}
	if rec.gates.Offline {
		m.Egress = nil
	}
	if o.Workspace != "" {
		if m.Workspace, err = filepath.Abs(o.Workspace); err != nil {
			return m, nil, err
		}
	}
	if len(missing) == 0 {
		missing, err = rec.places(ctx, m, o)
	}
	return m, missing, err
}

// examine reads the evidence of the recorded run, and says what of it is not what was
// hashed. A replay of something else would prove nothing.
func (rec *recording) examine(ctx context.Context) (unfit []Problem, err error) {
	if rec.input, err = loaded(ctx, rec.root); err != nil {
		return nil, err
	}
	for _, name := range rec.input.Check.Missing {
		unfit = append(unfit, Problem{name, "is missing"})
	}
	for _, f := range rec.input.Check.Findings {
		unfit = append(unfit, Problem{f.Subject, subjectless(f)})
	}
	if len(unfit) == 0 {
		rec.lock, err = evidence.ReadText(rec.root, evidence.WishLockFile, wish.MaxDocument)
	}
	return unfit, err
}

// sameCommands compares the two documents of a gate directory. It is pure.
func sameCommands(g evidence.Gates, m evidence.RunManifest) bool {
	if len(g.Commands) != len(m.Gates) {
		return false
	}
	for i, c := range g.Commands {
		if c.Cmd != m.Gates[i].Cmd || c.ExpectExit != m.Gates[i].ExpectExit || m.Gates[i].Index != i+1 {
			return false
		}
	}
	return true
}

// places looks at what the gates are given: it must be what they were given then. What
// a directory of somebody else names is not run on before that is known.
func (rec *recording) places(ctx context.Context, m evidence.RunManifest, o ReplayOptions) (missing []Problem, err error) {
	lacks := func(subject, detail string) { missing = append(missing, Problem{subject, detail}) }
	for _, tool := range m.Toolchain.Mounts {
		switch sum, err := wish.HashTree(ctx, tool.Source); {
		case errors.Is(err, fs.ErrNotExist):
			lacks(tool.Target, "its folder is not there")
		case err != nil:
			return nil, err
		case sum != tool.Hash:
			lacks(tool.Target, "its folder holds something else than was recorded")
		}
	}
	switch {
	case m.Workspace == "":
		lacks("workspace", "is not named: there is no "+evidence.RunManifestFile+" that tells where it was")
		return missing, nil
	case rec.gates.Workspace == "" && rec.gates.Commit == "" && o.Workspace == "":
		lacks("workspace", "neither a hash nor a commit tells what was in it; name the one that is meant")
		return missing, nil
	}
	why := "is not there or no folder"
	if isFolder(m.Workspace) {
		if why, err = rec.otherFiles(ctx, m); err != nil {
			return nil, err
		}
	}
	if why != "" {
		lacks("workspace", why)
	}
	return missing, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// otherFiles says how the workspace differs from the recorded one; empty if it does not.
func (rec *recording) otherFiles(ctx context.Context, m evidence.RunManifest) (string, error) {
	if want := rec.gates.Workspace; want != "" {
		sum, err := execute.HashWorkspace(ctx, m)
		if err == nil && sum != want {
			return "holds other files than were recorded" + rec.atCommit(), nil
		}
		return "", err
	}
	if want := rec.gates.Commit; want != "" {
		facts, err := repo.Inspect(ctx, m.Workspace, nil)
		switch {
		case err != nil:
			return "", err
		case facts.Commit != want:
			return fmt.Sprintf("is at commit %q, recorded is %q", facts.Commit, want), nil
		case facts.Dirty:
			return "has changes since the recorded commit", nil
		}
	}
	return "", nil
}

// atCommit says at which commit the recorded files were.
func (rec *recording) atCommit() string {
	if rec.gates.Commit == "" {
		return ""
	}
	return fmt.Sprintf(" at commit %.40s", rec.gates.Commit)
}

// expectedFindings are what speaks against the recorded run, judged as its replay is:
// once, without a baseline, and without a claim. m is the manifest of the replay. It is
// pure.
func (rec *recording) expectedFindings(m evidence.RunManifest) []evidence.Finding {
	in := rec.input
	in.Manifest, in.Differences = m, nil
	in.Tests.Commands = slices.Clone(in.Tests.Commands)
	for i := range in.Tests.Commands {
		in.Tests.Commands[i].Baseline = nil
	}
	in.Observations.Commands = slices.DeleteFunc(slices.Clone(in.Observations.Commands), func(o evidence.Observation) bool { return o.Set != "" })
	return judge.Judge(in).Findings
}

// bare is the manifest of a GATES.json that stands alone: its commands with the
// defaults of a wish. It is no claim of its own.
func (rec *recording) bare(o ReplayOptions) (evidence.RunManifest, []evidence.Finding, error) {
	g := rec.gates
	document := map[string]any{
		"schema": wish.SchemaV1, "name": "replay", "io_boundary": g.IOBoundary, "offline": true, "claim_grade": false,
	}
	if g.Image != "" {
		document["image"] = g.Image
	}
	if !g.Offline {
		return evidence.RunManifest{}, []evidence.Finding{{
			Subject: "network", Detail: "the gates were not offline, and there is no " + evidence.RunManifestFile + " that tells what they could reach",
		}}, nil
	}
	var commands []any
	for _, c := range g.Commands {
		commands = append(commands, map[string]any{"cmd": c.Cmd, "expect_exit": c.ExpectExit})
	}
	document["gate_commands"] = commands
	text, err := json.Marshal(document)
	if err != nil {
		return evidence.RunManifest{}, nil, err
	}
	w, err := wish.Parse(text, evidence.GatesFile)
	if err != nil {
		return evidence.RunManifest{}, nil, err
	}
	lock := wish.Lock{Schema: wish.LockV1, Wish: w, Toolchain: evidence.Toolchain{Image: g.Image, ImageID: g.ImageID}}
	m, findings := manifest.Build(manifest.Input{
		Lock: lock, Sealed: true, WorkspaceExists: true, Workspace: o.Workspace, Policy: o.Policy,
		Mode: evidence.Mode{Execute: true, Tools: true, Offline: true, Replay: true, Repeats: 1},
	})
	m.WishSHA256 = g.WishSHA256
	return m, findings, nil
}

// expectedExits are the exit codes of the recorded run, or what its commands were
// expected to have.
func (rec *recording) expectedExits() []*int {
	exits := make([]*int, len(rec.gates.Commands))
	for i, c := range rec.gates.Commands {
		exits[i] = new(c.ExpectExit)
	}
	if rec.tests != nil && rec.manifest != nil {
		for _, c := range rec.tests.Commands {
			if i := c.Index - 1; i >= 0 && i < len(exits) {
				exits[i] = c.ExitCode
			}
		}
	}
	return exits
}
