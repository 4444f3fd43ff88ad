package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func (a *app) sweep(ctx context.Context, cmd *cobra.Command, f sweepFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	config := sweep.Config{Axes: f.axes, Seeds: f.seeds}
	if cmd.Flags().Changed("adapter") {
		config.Adapter = &f.adapter
	}
	base, specErr := interruptibly(ctx, func() (sweep.Spec, error) { return sweep.LoadSpec(f.spec) })
	plan, planErr := sweep.NewPlan(config, base)
	verify, verifyErr := f.artifacts.options()
	if err := errors.Join(specErr, planErr, verifyErr); err != nil {
		return err
	}
	run := &sweepRun{app: a, settings: s, flags: f, plan: plan}
	where, setup, release, err := run.place(ctx)
	if err != nil {
		return err
	}
	defer release()
	env, err := environment(f.env, f.envFiles, a.environ, cmd.CommandPath())
	if err != nil {
		return err
	}
	runner, err := f.tool(a, cmd, where, f.limit(s), verify.Profile)
	if err != nil {
		return err
	}
	opts, err := run.options(verify, setup, env)
	if err != nil {
		return err
	}
	if f.dryRun {
		return run.plans(ctx, opts)
	}
	report, err := run.carryOut(ctx, sweep.Tool(runner, verify), opts)
	a.ended()
	if report.Dir == "" {
		return err
	}
	a.code = sweepCode(err)
	return errors.Join(a.showSweep(report, s), err)
}

// sweepRun is a sweep on its way.
type sweepRun struct {
	app      *app
	settings settings.Settings
	flags    sweepFlags
	plan     sweep.Plan
	progress counter
	warned   sync.Once
}

// place is the engine of the tool, and the part of it that results depend on. The output of
// the tool is not shown: concurrent runs would mix it. A refusal that every run would get
// is reported here, once, before anything is written.
func (r *sweepRun) place(ctx context.Context) (where invoke.Option, setup map[string]string, release func(), err error) {
	a, s := r.app, r.settings
	if r.flags.engine == invoke.EngineHost {
		return invoke.WithHost(a.host(s)), map[string]string{}, a.streams.Runs.Begin(), nil
	}
	runner, err := a.runner(s)
	if err != nil {
		return nil, nil, nil, err
	}
	req := s.Request()
	req.GPUWait = gpuWait(s, r.flags.parallel, r.flags.limit(s))
	probe := req
	probe.Command = []string{"true"}
	spec, err := runner.Plan(ctx, probe)
	if err != nil {
		return nil, nil, nil, errors.Join(err, runner.Close())
	}
	box := invoke.Sandbox{Runner: a.watched(runner), Request: req, Hooks: sandbox.Hooks{
		Kill: a.streams.Kill, Waiting: func(why string) { r.progress.once("runs wait for GPUs: " + why) },
	}}
	return invoke.WithSandbox(box), classSetup(spec.Class, s.GPUs), func() { _ = runner.Close() }, nil
}

// options are those of the sweep, with nothing that is called during it.
func (r *sweepRun) options(verify invoke.VerifyOptions, setup, env map[string]string) (sweep.Options, error) {
	err := r.flags.addSetup(setup, env)
	return sweep.Options{
		Dir: r.flags.output, Resume: r.flags.resume, Parallel: r.flags.parallel, KeepGoing: r.flags.keepGoing,
		Setup: setup, Verify: sweep.Artifacts(verify),
	}, err
}

// plans prints the plan of the sweep, unless it would be refused.
func (r *sweepRun) plans(ctx context.Context, opts sweep.Options) error {
	if _, err := interruptibly(ctx, func() (struct{}, error) { return struct{}{}, sweep.Check(r.plan, opts) }); err != nil {
		return err
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return err
	}
	return r.app.printJSON(sweepPlan(r.plan, dir))
}

// carryOut does the runs and shows their progress.
func (r *sweepRun) carryOut(ctx context.Context, do sweep.Invoke, opts sweep.Options) (sweep.Report, error) {
	r.progress.start(r.app, r.settings.Quiet, "runs", r.plan.Len(), r.plan.Len(), func() string { return "" })
	defer r.progress.stop()
	defer context.AfterFunc(ctx, func() {
		r.progress.say(fmt.Sprintf("%v: ending what runs; Ctrl-C ends it at once", context.Cause(ctx)))
	})()
	opts.Resumed = func(kept int) {
		r.progress.skip(kept)
		r.progress.say(fmt.Sprintf("%s has %d of %d runs already", r.flags.output, kept, r.plan.Len()))
	}
	opts.Begun = func(int) {
		if r.flags.engine == invoke.EngineHost {
			r.warned.Do(r.app.warnHost) // not before: the sweep may be refused, or have nothing to do
		}
		r.progress.count(1)
	}
	opts.Ended = func(end sweep.End) {
		r.progress.count(-1)
		if end.Status != sweep.StatusMissing {
			r.progress.end(endOfRun(end))
		}
	}
	return sweep.Run(ctx, r.plan, do, opts)
}

// endOfRun is a line on a run.
func endOfRun(end sweep.End) string {
	shown := end.Name + " · " + string(end.Status)
	if end.Failure != "" {
		shown += " · " + text.Brief(end.Failure)
	}
	return shown
}

var _ sweep.Runner = (*invoke.Runner)(nil)

// classSetup is the part of a class that results depend on. Limits are not in it: a run
// that reached none would have ended in the same way under others.
func classSetup(class spec.Class, gpus string) map[string]string {
	return map[string]string{
		"image": class.Image.ID, "network": class.Network, "user": class.User, "runtime": class.Runtime, "gpus": gpus,
	}
}

// addSetup adds the flags that results depend on. Values of variables may be secret, so
// only their hashes are kept. The demands on artifacts are not in it: a sweep that goes on
// judges the runs that it keeps again.
func (f *sweepFlags) addSetup(setup, env map[string]string) error {
	setup["exec"], setup["engine"], setup["root"] = f.exec, f.engine, ""
	if f.root != "" || f.engine == invoke.EngineHost {
		var err error
		if setup["root"], err = filepath.Abs(f.root); err != nil { // on the host the tool starts here without one
			return err
		}
	}
	for name, value := range env {
		sum := sha256.Sum256([]byte(name + "=" + value))
		setup[sweep.SetupHashed+name] = hex.EncodeToString(sum[:])
	}
	return nil
}
