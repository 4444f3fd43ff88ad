package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/harness/gate/manifest"
	"github.com/evalbox/evalbox/harness/gate/normalize"
	"github.com/evalbox/evalbox/harness/gate/repo"
	"github.com/evalbox/evalbox/harness/gate/wish"
)

// Run makes a gate directory and its verdict. A wish that cannot pass, whatever the
// reason, is a verdict and no error: BLOCKED or NEED_INFO. An error says that the
// directory cannot be used ([*DirectoryError]), that there is no such baseline
// ([*repo.RevisionError]), or that something of ours failed, such as
// the engine, or that ctx ended; in the latter cases the directory has what was seen and
// a verdict that is no pass, and the report is that of the directory.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := outside(o.OutDir, o.WishDir); err != nil {
		return Report{}, err
	}
	workspace, noWorkspace := o.Lock.Wish.Workspace(o.WishDir)
	if noWorkspace == nil {
		if err := outside(o.OutDir, workspace); err != nil {
			return Report{}, err
		}
	}
	if o.Baseline != "" && noWorkspace == nil {
		// Before anything of an earlier run is replaced.
		if _, err := repo.Resolve(workspace, o.Baseline); err != nil {
			return Report{}, fmt.Errorf("baseline: %w", err)
		}
	}
	dir, err := openDirectory(o.OutDir, o.Replace)
	if err != nil {
		return Report{}, err
	}
	g := &run{Engine: o.Engine, root: dir.root}
	failure := g.begin(ctx, o, workspace, noWorkspace)
	if failure == nil && len(g.findings) == 0 && g.m.Mode.Execute && g.m.Mode.Tools {
		g.execute(ctx, &failure)
	}
	report, err := g.conclude(ctx, failure)
	report.Dir = o.OutDir
	return report, errors.Join(failure, err, g.clean(), dir.close())
}

// run is one gate directory in the making.
type run struct {
	Engine
	root *os.Root
	m    evidence.RunManifest
	// findings are what the judge cannot see in the files of the gates.
	findings []evidence.Finding
	// temp are folders that are removed at the end.
	temp []string
}

// begin is node 1.
func (g *run) begin(ctx context.Context, o Options, workspace string, noWorkspace error) error {
	g.tell(execute.StageManifest)
	text, err := o.Lock.JSON()
	if err == nil {
		err = evidence.WriteText(g.root, evidence.WishLockFile, text)
	}
	if err != nil {
		return err
	}
	in := manifest.Input{
		Lock: o.Lock, Sealed: o.Sealed, NotSealed: o.NotSealed, Workspace: workspace, WorkspaceExists: noWorkspace == nil,
		WorkspaceOutside: errors.Is(noWorkspace, wish.ErrOutside), Mode: o.Mode, Tools: o.Tools, Policy: o.Policy,
	}
	var failure error
	if in.WorkspaceExists {
		failure = g.look(ctx, o, &in)
		if own, ok := within(o.OutDir, workspace); ok {
			in.Exclude = append(in.Exclude, own) // no gate sees the evidence of others
		}
	}
	g.m, g.findings = manifest.Build(in)
	return errors.Join(failure, g.writeManifest(ctx))
}

// look asks git about the workspace, and checks the baseline out.
func (g *run) look(ctx context.Context, o Options, in *manifest.Input) (err error) {
	in.Uncounted = ignore(o, in.Workspace)
	if in.Repo, in.Differs, err = repo.Status(ctx, in.Workspace, in.Uncounted); err != nil {
		return fmt.Errorf("the repository of the workspace: %w", err)
	}
	if o.Baseline == "" || !o.Mode.Execute || !o.Mode.Tools || !o.Sealed {
		return nil
	}
	in.Baseline, err = g.baseline(ctx, o, in.Workspace, &in.Repo)
	return err
}

func (g *run) writeManifest(ctx context.Context) error {
	if err := evidence.Write(g.root, evidence.RunManifestFile, g.m); err != nil {
		return err
	}
	if err := evidence.Write(g.root, evidence.PlanFile, manifest.Plan(g.m, g.findings)); err != nil {
		return err
	}
	if g.m.Baseline == "" {
		return nil
	}
	changes, patch, err := repo.Compare(ctx, g.m.Baseline, g.m.Workspace, slices.Concat(g.m.Exclude, g.m.Uncounted))
	if err != nil {
		return fmt.Errorf("comparing the workspace with its baseline: %w", err)
	}
	changes.Baseline = g.m.Repo.BaselineCommit
	return errors.Join(evidence.Write(g.root, evidence.ChangesFile, changes), evidence.WriteText(g.root, evidence.PatchFile, patch))
}

// ignore are the paths relative to the workspace that make no tree dirty.
func ignore(o Options, workspace string) []string {
	var all []string
	if own, ok := within(o.OutDir, workspace); ok {
		all = append(all, own)
	}
	for _, name := range o.Ignore {
		if own, ok := within(filepath.Join(o.WishDir, name), workspace); ok {
			all = append(all, own)
		}
	}
	return all
}

// baseline checks the revision out that the gates run on first.
func (g *run) baseline(ctx context.Context, o Options, workspace string, facts *evidence.Repo) (string, error) {
	temp, err := g.newTemp("baseline")
	if err != nil {
		return "", err
	}
	into := filepath.Join(temp, "tree")
	commit, err := repo.Checkout(ctx, workspace, o.Baseline, into)
	if err != nil {
		return "", fmt.Errorf("baseline %.200q: %w", o.Baseline, err)
	}
	facts.BaselineRev, facts.BaselineCommit = o.Baseline, commit
	return into, nil
}

// execute is node 2. It sees the manifest only.
func (g *run) execute(ctx context.Context, failure *error) {
	findings, failed := execute.Split(execute.Run(ctx, g.root, g.Runner, g.options()))
	g.findings = append(g.findings, findings...)
	*failure = failed
}

// conclude is nodes 3 to 5. It is not canceled with ctx: what was run is judged.
func (g *run) conclude(ctx context.Context, failure error) (Report, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if failure != nil {
		g.incomplete(failure)
	}
	g.tell(execute.StageNormalize)
	failed := normalize.Evidence(ctx, g.root)
	if failed != nil {
		failed = fmt.Errorf("normalizing the evidence: %w", failed)
		g.incomplete(failed)
	}
	g.tell(execute.StageHash)
	// Whatever fails from here on is told to the judge, and the verdict is written all
	// the same.
	fails := func(what string, err error) {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			failed = errors.Join(failed, err)
			g.incomplete(err)
		}
	}
	artifacts, err := evidence.HashArtifacts(ctx, g.root)
	fails("hashing the evidence", err)
	differences := []evidence.Finding{}
	if len(g.findings) == 0 {
		differences, err = g.compareRepeats(ctx, artifacts)
		fails("comparing the repeats", err)
	}
	findings := evidence.Findings{Pre: append([]evidence.Finding{}, g.findings...), Differences: differences}
	fails("writing the findings", evidence.Write(g.root, evidence.FindingsFile, findings))
	_, err = evidence.WriteManifest(ctx, g.root)
	fails("hashing the evidence", err)
	g.tell(execute.StageJudge)
	in, err := loaded(ctx, g.root)
	if err != nil {
		fails("reading the evidence", err)
		in = judge.Input{Manifest: g.m, Pre: g.findings}
	}
	report := Report{Manifest: in.Manifest, Tests: in.Tests, Verdict: judge.Judge(in), Gates: judge.Gates(in)}
	return report, errors.Join(failed,
		evidence.Write(g.root, evidence.GatesFile, report.Gates),
		evidence.Write(g.root, evidence.VerdictFile, report.Verdict),
	)
}

// incomplete tells the judge of a failure of ours.
func (g *run) incomplete(failure error) {
	g.findings = append(g.findings, evidence.Finding{
		Reason: evidence.ReasonIncomplete, Subject: "run", Detail: "The run was not finished: " + oneLine(failure) + ".",
	})
}

// newTemp is a folder that is removed at the end.
func (g *run) newTemp(what string) (string, error) {
	dir, err := os.MkdirTemp(g.TempDir, "evalbox-gate-"+what+"-")
	if err != nil {
		return "", err
	}
	g.temp = append(g.temp, dir)
	return filepath.EvalSymlinks(dir)
}

func (g *run) clean() error {
	var errs []error
	for _, dir := range g.temp {
		errs = append(errs, fsx.Remove(dir))
	}
	return errors.Join(errs...)
}

// oneLine is an error for a sentence.
func oneLine(err error) string {
	return strings.TrimSuffix(text.Short(text.OneLine(err.Error()), 500), ".")
}
