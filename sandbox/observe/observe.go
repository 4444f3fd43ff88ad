// Package observe records what a program tries although its sandbox does not let it:
// network attempts without a route, and hidden or canary files that it opens.
package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// ErrUnobserved means that an observation that the request requires is not possible; the
// program did not start.
var ErrUnobserved = errors.New("cannot be observed")

// DefaultWait is how long the observer may take to see the container open a file. It
// usually takes milliseconds.
const DefaultWait = 10 * time.Second

// Observer observes one run. Its methods are called by one goroutine, in the order Open,
// Witness, Begin, Started, Report, Close. A nil Observer observes nothing.
type Observer struct {
	plan     *spec.Observation
	runID    string
	wait     time.Duration
	warn     func(format string, args ...any)
	dir      string
	sources  engine.Sources
	paths    *pathWatch
	counters *routeCounters
	// inner are the directories inside watched directories.
	inner []innerDir
	// networkErr and watchErr say why a requested observation is unavailable.
	networkErr, watchErr string
	// started says that the program was started.
	started bool
	// open says that the record contains the mounts of the observation.
	open bool
}

// Open creates, in the record of a run, the files that its container mounts for the
// observation, and adds them to the sources. wait bounds [Observer.Begin]. Without an
// observation in the plan the Observer is nil. After an error nothing is left behind.
func Open(ctx context.Context, plan spec.Spec, table spec.Layout, dir string, sources engine.Sources, wait time.Duration,
	warn func(format string, args ...any),
) (_ *Observer, err error) {
	watched := plan.Job.Observe
	if watched == nil {
		return nil, nil
	}
	o := &Observer{plan: watched, runID: plan.Job.RunID, wait: wait, warn: warn, dir: dir, sources: sources,
		networkErr: watched.NetworkReason, watchErr: watched.WatchedReason}
	if !watched.Active() {
		return o, nil
	}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	o.open = true
	hold, watch := filepath.Join(dir, record.HoldDir), filepath.Join(dir, record.WatchDir)
	witness := filepath.Join(hold, spec.WitnessFile)
	err = errors.Join(fsx.MkdirReadable(hold), fsx.MkdirReadable(watch))
	if err == nil {
		err = fsx.WriteReadable(witness, "")
	}
	sources[spec.RoleHold] = hold
	if err == nil {
		err = o.makeWatched(watch, plan.RootPoints())
	}
	if err != nil {
		return nil, record.StateError(dir, "cannot be written", err)
	}
	if err := o.showNames(ctx, table); err != nil {
		return nil, err
	}
	if o.paths, err = newPathWatch(witness); err != nil {
		return o, o.unavailable("files cannot be watched here: " + err.Error())
	}
	return o, nil
}

// Resume returns the Observer of a run whose controller died: the observation ended with that
// process, and what it had seen is not known. It only reports that, and cleans up.
func Resume(plan spec.Spec, dir string, warn func(format string, args ...any)) *Observer {
	watched := plan.Job.Observe
	if watched == nil {
		return nil
	}
	o := &Observer{plan: watched, runID: plan.Job.RunID, warn: warn, dir: dir, open: watched.Active(), started: true,
		networkErr: watched.NetworkReason, watchErr: watched.WatchedReason}
	if watched.Network && o.networkErr == "" {
		o.networkErr = observerDied
	}
	if len(watched.Watched) > 0 && o.watchErr == "" {
		o.watchErr = observerDied
	}
	return o
}

// Witness is the file that the container's init opens; empty if nothing is observed.
func (o *Observer) Witness() string {
	if o == nil || o.paths == nil {
		return ""
	}
	return spec.HoldDir + "/" + spec.WitnessFile
}

// makeWatched creates the content of the watched paths, and the directory with those below
// /root.
func (o *Observer) makeWatched(dir string, rootPoints map[string]bool) error {
	var errs []error
	for i, w := range o.plan.Watched {
		role := spec.NumberedRole(spec.RoleWatch, i)
		o.sources[role] = filepath.Join(dir, role)
		errs = append(errs, makeOne(o.sources[role], w))
	}
	if len(rootPoints) > 0 {
		root := filepath.Join(dir, spec.RoleWatchRoot)
		o.sources[spec.RoleWatchRoot] = root
		errs = append(errs, fsx.MkdirReadable(root), fsx.MakePoints(root, rootPoints))
	}
	return errors.Join(errs...)
}

// canaryText is the content of canary files. It explains itself to a reader.
const canaryText = "This is a decoy of the sandbox. What is usually here is not shown; that it was opened is noted.\n"

// canaryNames are typical names in a directory of SSH keys.
var canaryNames = []string{"authorized_keys", "config", "id_ed25519", "id_rsa", "known_hosts"}

// makeOne creates the content of a watched path: a readable canary or an empty entry.
func makeOne(source string, w spec.WatchedPath) error {
	if !w.Dir {
		text := ""
		if w.Canary {
			text = canaryText
		}
		return fsx.WriteReadable(source, text)
	}
	err := fsx.MkdirReadable(source)
	if w.Canary {
		for _, name := range canaryNames {
			err = errors.Join(err, fsx.WriteReadable(filepath.Join(source, name), canaryText))
		}
	}
	return err
}

// unavailable records why nothing can be observed. It returns an error if the observation
// is required.
func (o *Observer) unavailable(why string) error {
	if o.plan.Network && o.networkErr == "" {
		o.networkErr = why
	}
	if len(o.plan.Watched) > 0 && o.watchErr == "" {
		o.watchErr = why
	}
	return o.checkRequired()
}

// checkRequired returns an error if a required observation is unavailable.
func (o *Observer) checkRequired() error {
	if o.plan.Required {
		for _, each := range [][2]string{{"network attempts", o.networkErr}, {"watched paths", o.watchErr}} {
			if each[1] != "" {
				return fmt.Errorf("run %s: %s: %w: %s", o.runID, each[0], ErrUnobserved, each[1])
			}
		}
	}
	return nil
}

// Begin starts to watch a container whose init is waiting. The engine's own opens while
// mounting do not count, and the witness has proved that accesses of the container are
// seen here.
func (o *Observer) Begin(ctx context.Context, c engine.Container) (err error) {
	if o == nil || o.paths == nil {
		return nil // the reason is recorded
	}
	select {
	case <-o.paths.begun:
	case <-ctx.Done():
		return outcome.Canceled(ctx)
	case <-time.After(o.wait):
		return o.unavailable("that the container opened a file was not seen here")
	}
	if o.plan.Network {
		if o.counters, err = countersOf(ctx, c); err != nil {
			o.networkErr = err.Error()
		}
	}
	for i, w := range o.plan.Watched {
		o.add(o.sources[spec.NumberedRole(spec.RoleWatch, i)], w)
	}
	for _, dir := range o.inner {
		o.add(dir.source, dir.watch)
	}
	return o.checkRequired()
}

func (o *Observer) add(source string, w spec.WatchedPath) {
	if err := o.paths.add(source, w); err != nil {
		o.watchErr = fmt.Sprintf("%s cannot be watched: %v", w.Target, err)
	}
}

// countersOf opens the container's network counters before any program can run.
func countersOf(ctx context.Context, c engine.Container) (*routeCounters, error) {
	pid := 0
	if local, ok := c.(engine.Local); ok {
		var err error
		if pid, err = local.PID(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("the engine did not report the container's process: %w", err)
		}
	}
	return openRouteCounters(pid)
}

// Started records that the program was started.
func (o *Observer) Started() {
	if o != nil {
		o.started = true
	}
}

// Reasons why the observations of a program are incomplete.
const (
	neverStarted = "the program never started"
	endUnseen    = "the end of the program was not seen"
	observerDied = "the process that observed the program died"
)

// Report returns the observations of a program; nil if none were requested. Ended says that
// the program's end was seen. Evalbox itself must not open a watched file before this call.
func (o *Observer) Report(ended bool) *result.Observed {
	if o == nil {
		return nil
	}
	seen := &result.Observed{}
	why := ""
	switch {
	case o.plan.Active() && !o.started:
		why = neverStarted
	case !ended:
		why = endUnseen
	}
	if o.plan.Network && o.networkErr == "" {
		o.networkErr = why
	}
	if len(o.plan.Watched) > 0 && o.watchErr == "" {
		o.watchErr = why
	}
	if o.counters != nil && o.networkErr == "" {
		if attempts, err := o.counters.attempts(); err != nil {
			o.networkErr = err.Error()
		} else {
			seen.NetworkAttempts = &attempts
		}
	}
	if o.paths != nil && o.started {
		opened, err := o.paths.stop()
		if err != nil && o.watchErr == "" {
			o.watchErr = err.Error()
		}
		seen.Opened = opened
		seen.Watched = o.paths.watched()
	}
	seen.NetworkWhy, seen.WatchWhy = o.networkErr, o.watchErr
	slices.Sort(seen.Watched)
	slices.Sort(seen.Opened)
	return seen
}

// Close ends the observation and removes the files that were mounted for it. No program
// could write there. It may be called again.
func (o *Observer) Close() {
	if o == nil || !o.open {
		return
	}
	o.open = false
	err := errors.Join(o.paths.close(), o.counters.close(),
		os.RemoveAll(filepath.Join(o.dir, record.HoldDir)), os.RemoveAll(filepath.Join(o.dir, record.WatchDir)))
	if err != nil {
		o.warn("what was there for the observation is left behind in the record: %v", fsx.Cause(err))
	}
}
