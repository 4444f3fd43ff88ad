package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/git"
	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/harness/gate/normalize"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/text"
)

// run is one gate directory while it is written.
type run struct {
	*Harness
	job  Job
	root *os.Root
	m    evidence.RunManifest
	// recorded and recordedEntries are those of [execute.Options].
	recorded        string
	recordedEntries map[string]string
	// findings are those that the judge cannot see in the files of the gates.
	findings []evidence.Finding
	// temp remove the directories that live until the end.
	temp []func() error
}

// Run writes a gate directory and its verdict. A wish that cannot pass, whatever the reason,
// is a verdict and not an error. An error says that the directory cannot be used
// ([*DirectoryError]), that a revision does not exist ([*git.RevisionError]), that the
// sandbox failed, or that ctx ended. In the last two cases the directory has what was seen
// and a verdict that is not PASS, and the report is that of the directory.
func (h *Harness) Run(ctx context.Context, job Job) (Report, error) {
	g := &run{Harness: h, job: job}
	if err := g.checkPlaces(); err != nil {
		return Report{}, err
	}
	dir, err := openDirectory(job.OutDir, job.Replace, kept{still: g.inputs()})
	if err != nil {
		return Report{}, err
	}
	g.root = dir.root
	g.tell(dir)
	failure := g.begin(ctx)
	if failure == nil && len(g.findings) == 0 && g.m.Mode.Execute && g.m.Mode.Tools {
		failure = g.execute(ctx)
	}
	report, err := g.conclude(ctx, failure)
	report.Dir = job.OutDir
	return report, errors.Join(failure, err, g.clean(), dir.close())
}

// checkPlaces refuses directories and revisions before an earlier run is replaced.
func (g *run) checkPlaces() error {
	for _, dir := range g.inputs() {
		if err := outside(g.job.OutDir, dir); err != nil {
			return err
		}
	}
	workspace, err := g.job.Lock.Wish.Workspace(g.job.WishDir)
	if err != nil {
		return nil //nolint:nilerr // the verdict says so
	}
	for what, revision := range map[string]string{"baseline": g.job.Baseline, "commit": g.job.Commit} {
		if revision != "" {
			if _, err := git.Resolve(workspace, revision); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	return nil
}

// inputs are the directories that the run reads: of the wish, and of the workspace if there is one.
func (g *run) inputs() []string {
	dirs := []string{g.job.WishDir}
	if workspace, err := g.job.Lock.Wish.Workspace(g.job.WishDir); err == nil {
		dirs = append(dirs, workspace)
	}
	return dirs
}

// begin is node 1.
func (g *run) begin(ctx context.Context) error {
	g.emit(execute.StageManifest)
	text, err := g.job.Lock.JSON()
	if err == nil {
		err = evidence.WriteText(g.root, evidence.WishLockFile, text)
	}
	if err != nil {
		return err
	}
	err = g.decide(ctx)
	if err == nil && g.job.Baseline != "" && g.m.Mode.Execute && g.m.Mode.Tools && g.m.Mode.Sealed && len(g.findings) == 0 {
		err = g.checkOut(ctx)
	}
	return errors.Join(err, g.writeManifest(ctx))
}

// decide builds the manifest. Nothing is written.
func (g *run) decide(ctx context.Context) (err error) {
	job := g.job
	workspace, noWorkspace := job.Lock.Wish.Workspace(job.WishDir)
	in := spec.Facts{
		Lock: job.Lock, Sealed: job.Sealed, NotSealed: job.NotSealed, Workspace: workspace, WorkspaceExists: noWorkspace == nil,
		WorkspaceOutside: errors.Is(noWorkspace, spec.ErrOutside), Mode: job.Mode, Tools: g.o.Tools, Policy: g.o.Policy,
	}
	in.Mode.ToolRegistry, in.Mode.Strict = g.o.ToolRegistry, job.Mode.Strict || job.Commit != ""
	if in.WorkspaceExists {
		places := append([]string{job.OutDir}, slices.DeleteFunc(earlierRuns(job.OutDir), isForeign)...)
		for _, place := range places {
			if own, ok := within(place, workspace); ok {
				in.Uncounted = append(in.Uncounted, own)
				in.Exclude = append(in.Exclude, own) // no gate sees the evidence of others, there or not
			}
		}
		for _, name := range job.Ignore {
			if own, ok := within(filepath.Join(job.WishDir, name), workspace); ok {
				in.Uncounted = append(in.Uncounted, own)
			}
		}
		in.Repo, in.Differs, err = git.Status(ctx, workspace, in.Uncounted)
		if err == nil && job.Commit != "" { // these files run, so nothing else counts
			in.Repo.Commit, err = git.Resolve(workspace, job.Commit)
			in.Repo.Dirty, in.Differs = false, nil
		}
		if err != nil {
			err = fmt.Errorf("the repository of the workspace: %w", err)
		}
	}
	g.m, g.findings = spec.Build(in)
	return err
}

// checkOut writes the files of the baseline to a private directory.
func (g *run) checkOut(ctx context.Context) error {
	temp, err := g.newTemp("baseline")
	if err != nil {
		return err
	}
	into := filepath.Join(temp, "tree")
	commit, err := git.Checkout(ctx, g.m.Workspace, g.job.Baseline, into, g.m.Exclude, execute.DiskBytes(g.m))
	if err != nil {
		return fmt.Errorf("baseline %.200q: %w", g.job.Baseline, err)
	}
	g.m.Baseline, g.m.Repo.BaselineRev, g.m.Repo.BaselineCommit = into, g.job.Baseline, commit
	return nil
}

func (g *run) writeManifest(ctx context.Context) error {
	if err := evidence.Write(g.root, evidence.RunManifestFile, g.m); err != nil {
		return err
	}
	if err := evidence.Write(g.root, evidence.PlanFile, spec.NewPlan(g.m, g.findings)); err != nil {
		return err
	}
	if g.m.Baseline == "" {
		return nil
	}
	after := g.m.Workspace
	if g.m.Mode.Strict { // the gates get the files of the commit
		temp, err := g.newTemp("commit")
		if err != nil {
			return err
		}
		after = filepath.Join(temp, "tree")
		if _, err := git.Checkout(ctx, g.m.Workspace, g.m.Repo.Commit, after, g.m.Exclude, execute.DiskBytes(g.m)); err != nil {
			return err
		}
	}
	changes, patch, err := git.Compare(ctx, g.m.Baseline, after, slices.Concat(g.m.Exclude, g.m.Uncounted))
	if err != nil {
		return fmt.Errorf("comparing the workspace with its baseline: %w", err)
	}
	changes.Baseline = g.m.Repo.BaselineCommit
	return errors.Join(evidence.Write(g.root, evidence.ChangesFile, changes), evidence.WriteText(g.root, evidence.PatchFile, patch))
}

// execute is node 2. It sees the manifest only.
func (g *run) execute(ctx context.Context) error {
	o := g.o
	findings, err := execute.Run(ctx, g.root, g.box, execute.Options{
		Request: o.Request, IO: o.IO, Hooks: o.Hooks, Keep: o.Keep, Progress: o.Progress,
		Recorded: g.recorded, RecordedEntries: g.recordedEntries,
	})
	g.findings = append(g.findings, findings...)
	return err
}

// tell says that an earlier run moved aside.
func (g *run) tell(dir directory) {
	if g.o.Progress != nil && dir.moved != "" {
		g.o.Progress(Event{Stage: execute.StageMoved, Moved: dir.moved, Removed: dir.removed})
	}
}

func (g *run) emit(stage execute.Stage) {
	if g.o.Progress != nil {
		g.o.Progress(Event{Stage: stage})
	}
}

// conclude is nodes 3 to 5. It is not canceled with ctx: everything that ran is judged.
func (g *run) conclude(ctx context.Context, failure error) (Report, error) {
	const budget = 5 * time.Minute
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget)
	defer cancel()
	if failure != nil {
		g.incomplete(failure)
	}
	g.emit(execute.StageNormalize)
	failed := normalize.Evidence(ctx, g.root)
	if failed != nil {
		failed = fmt.Errorf("normalizing the evidence: %w", failed)
		g.incomplete(failed)
	}
	g.emit(execute.StageHash)
	// The judge hears of every failure from here on, and the verdict is written all the same.
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
	g.emit(execute.StageJudge)
	in, err := loaded(ctx, g.root)
	if err != nil {
		fails("reading the evidence", err)
		in = judge.Input{Manifest: g.m, Pre: g.findings}
	}
	report := Report{Manifest: in.Manifest, Tests: in.Tests, Verdict: judge.Judge(in), Gates: judge.Gates(in), inconclusive: len(in.Inconclusive) > 0}
	return report, errors.Join(failed,
		evidence.Write(g.root, evidence.GatesFile, report.Gates),
		evidence.Write(g.root, evidence.VerdictFile, report.Verdict),
	)
}

// incomplete adds a finding about a failure of the sandbox.
func (g *run) incomplete(failure error) {
	g.findings = append(g.findings, evidence.Finding{
		Reason: evidence.ReasonIncomplete, Subject: "run", Detail: "The run was not finished: " + oneLine(failure) + ".",
	})
}

// newTemp creates a directory that is removed at the end.
func (g *run) newTemp(what string) (string, error) {
	dir, remove, err := g.box.Store().Temp(what)
	if err == nil {
		g.temp = append(g.temp, remove)
	}
	return dir, err
}

func (g *run) clean() error {
	var errs []error
	for _, remove := range g.temp {
		errs = append(errs, remove())
	}
	return errors.Join(errs...)
}

// oneLine is an error for a sentence.
func oneLine(err error) string {
	return strings.TrimSuffix(text.Short(text.OneLine(err.Error()), 500), ".")
}
