package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// holdDir and watchDir are directories of a record that are mounted during its run.
	// holdDir contains the file that proves that accesses are seen, watchDir the content
	// of the watched paths.
	holdDir  = "hold"
	watchDir = "watch"
	// defaultLaunchWait is how long the observer may take to see that file opened. It
	// usually takes milliseconds.
	defaultLaunchWait = 10 * time.Second
)

// observer is the state of a run's observation.
type observer struct {
	paths    *pathWatch
	counters *routeCounters
	// inner are the directories inside watched directories.
	inner []innerFolder
	// networkWhy and watchWhy say why a requested observation is unavailable.
	networkWhy, watchWhy string
	// letGo says that the program was started.
	letGo bool
	// open says that the record contains the mounts of the observation.
	open bool
}

// witness is the file that the container's init opens; empty if nothing is observed.
func (o *observer) witness() string {
	if o == nil || o.paths == nil {
		return ""
	}
	return spec.HoldDir + "/" + spec.WitnessFile
}

// started records that the program was started.
func (o *observer) started() {
	if o != nil {
		o.letGo = true
	}
}

// openObserver creates the files that the container mounts for its observation.
func (a *attempt) openObserver(ctx context.Context) error {
	plan := a.spec.Job.Observe
	if plan == nil {
		return nil
	}
	a.observer = &observer{networkWhy: plan.NetworkWhy, watchWhy: plan.WatchWhy}
	if !plan.Active() {
		return nil
	}
	hold, watch := filepath.Join(a.work.record, holdDir), filepath.Join(a.work.record, watchDir)
	if err := errors.Join(mkdirReadable(hold), mkdirReadable(watch)); err != nil {
		return record.StateError(a.work.record, "cannot be written", err)
	}
	a.observer.open = true
	witness := filepath.Join(hold, spec.WitnessFile)
	err := writeDecoy(witness, "")
	a.work.paths[spec.RoleHold] = hold
	if err == nil {
		err = a.makeAllWatched(watch)
	}
	if err != nil {
		return record.StateError(a.work.record, "cannot be written", err)
	}
	if err := a.showNames(ctx); err != nil {
		return err
	}
	if a.observer.paths, err = newPathWatch(witness); err != nil {
		return a.unobserved("files cannot be watched here: " + err.Error())
	}
	return nil
}

// makeAllWatched creates the content of the watched paths.
func (a *attempt) makeAllWatched(dir string) error {
	var errs []error
	for i, w := range a.spec.Job.Observe.Watch {
		source := filepath.Join(dir, watchRole(i))
		a.work.paths[watchRole(i)] = source
		errs = append(errs, makeWatched(source, w))
	}
	if points := rootPoints(a.spec); len(points) > 0 {
		source := filepath.Join(dir, spec.RoleWatchRoot)
		a.work.paths[spec.RoleWatchRoot] = source
		errs = append(errs, mkdirReadable(source), makePoints(source, points))
	}
	return errors.Join(errs...)
}

// showNames shows the names of hidden entries in trees.
func (a *attempt) showNames(ctx context.Context) error {
	shower, places := nameShower{left: maxShownNames}, viewOf(a.req)
	for i, w := range a.spec.Job.Observe.Watch {
		if err := shower.show(ctx, a.work.paths[watchRole(i)], w, places); err != nil {
			return err
		}
	}
	a.observer.inner = shower.inner
	if warning := shower.warning(); warning != "" {
		a.warnings = append(a.warnings, warning)
	}
	return nil
}

// decoyText is the content of decoys. It explains itself to a reader.
const decoyText = "This is a decoy of the sandbox. What is usually here is not shown; that it was opened is noted.\n"

// decoyNames are typical names in a directory of SSH keys.
var decoyNames = []string{"authorized_keys", "config", "id_ed25519", "id_rsa", "known_hosts"}

// makeWatched creates the content of a watched path: a readable decoy or an empty entry.
func makeWatched(source string, w Watch) error {
	if !w.Folder {
		text := ""
		if w.Decoy {
			text = decoyText
		}
		return writeDecoy(source, text)
	}
	err := mkdirReadable(source)
	if w.Decoy {
		for _, name := range decoyNames {
			err = errors.Join(err, writeDecoy(filepath.Join(source, name), decoyText))
		}
	}
	return err
}

// writeDecoy creates a file that everybody may read, regardless of the umask.
func writeDecoy(path, text string) error {
	return errors.Join(os.WriteFile(path, []byte(text), 0o444), os.Chmod(path, 0o444))
}

// unobserved records why nothing can be observed. It returns an error if the observation
// is required.
func (a *attempt) unobserved(why string) error {
	o, plan := a.observer, a.spec.Job.Observe
	if plan.Network && o.networkWhy == "" {
		o.networkWhy = why
	}
	if len(plan.Watch) > 0 && o.watchWhy == "" {
		o.watchWhy = why
	}
	return a.checkObserved()
}

// checkObserved returns an error if a required observation is unavailable.
func (a *attempt) checkObserved() error {
	if a.spec.Job.Observe.Required {
		for _, each := range [][2]string{{"network attempts", a.observer.networkWhy}, {"watched paths", a.observer.watchWhy}} {
			if each[1] != "" {
				return fmt.Errorf("run %s: %s: %w: %s", a.spec.Job.RunID, each[0], ErrUnobserved, each[1])
			}
		}
	}
	return nil
}

// beginObserving starts to watch a container whose init is waiting. The engine's own
// opens while mounting do not count, and the witness has proved that accesses of the
// container are seen here.
func (a *attempt) beginObserving(ctx context.Context) (err error) {
	o, plan := a.observer, a.spec.Job.Observe
	if o == nil || o.paths == nil {
		return nil // the reason is recorded
	}
	select {
	case <-o.paths.begun:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
	case <-time.After(a.runner.launchWait):
		return a.unobserved("that the container opened a file was not seen here")
	}
	if plan.Network {
		if o.counters, err = a.findCounters(ctx); err != nil {
			o.networkWhy = err.Error()
		}
	}
	for i, w := range plan.Watch {
		if err := o.paths.add(a.work.paths[watchRole(i)], w); err != nil {
			o.watchWhy = fmt.Sprintf("%s cannot be watched: %v", w.Target, err)
		}
	}
	for _, folder := range o.inner {
		if err := o.paths.add(folder.source, folder.watch); err != nil {
			o.watchWhy = fmt.Sprintf("%s cannot be watched: %v", folder.watch.Target, err)
		}
	}
	return a.checkObserved()
}

// findCounters opens the container's network counters before any program can run.
func (a *attempt) findCounters(ctx context.Context) (*routeCounters, error) {
	pid, err := a.initPID(ctx)
	if err != nil {
		return nil, fmt.Errorf("the engine did not tell the container's process: %w", err)
	}
	return openRouteCounters(pid)
}

// initPID returns the process ID of the container's init on this machine; 0 if it is not
// visible.
func (a *attempt) initPID(ctx context.Context) (int, error) {
	local, ok := a.container.(engine.Local)
	if !ok {
		return 0, nil
	}
	return local.PID(context.WithoutCancel(ctx))
}

// Reasons why the observations of a program are incomplete.
const (
	neverStarted = "the program never started"
	endUnseen    = "the end of the program was not seen"
)

// observed reads the observations of a program that has ended. Evalbox itself must not
// open a watched file before this call.
func (a *attempt) observed() *result.Observed {
	o, plan := a.observer, a.spec.Job.Observe
	if o == nil {
		return nil
	}
	seen := &result.Observed{}
	why := ""
	switch {
	case plan.Active() && !o.letGo:
		why = neverStarted
	case a.facts.Lost != nil || !a.facts.End.Reported:
		why = endUnseen
	}
	if plan.Network && o.networkWhy == "" {
		o.networkWhy = why
	}
	if len(plan.Watch) > 0 && o.watchWhy == "" {
		o.watchWhy = why
	}
	if o.counters != nil && o.networkWhy == "" {
		if attempts, err := o.counters.attempts(); err != nil {
			o.networkWhy = err.Error()
		} else {
			seen.NetworkAttempts = &attempts
		}
	}
	if o.paths != nil && o.letGo {
		opened, err := o.paths.stop()
		if err != nil && o.watchWhy == "" {
			o.watchWhy = err.Error()
		}
		seen.Opened = opened
		seen.Watched = o.paths.watched()
	}
	seen.NetworkWhy, seen.WatchWhy = o.networkWhy, o.watchWhy
	slices.Sort(seen.Watched)
	slices.Sort(seen.Opened)
	return seen
}

// closeObserver ends the observation and removes the files that were mounted for it. It
// may be called again.
func (a *attempt) closeObserver() {
	o := a.observer
	if o == nil || !o.open {
		return
	}
	err := errors.Join(o.paths.close(), o.counters.close(), dropHold(a.work.record))
	o.open = false
	if err != nil {
		a.warnings = append(a.warnings, fmt.Sprintf("what was there for the observation is left behind in the record: %v", fsx.Cause(err)))
	}
}

// dropHold removes the files that were mounted for an observation from a record. No
// program could write there.
func dropHold(record string) error {
	return errors.Join(os.RemoveAll(filepath.Join(record, holdDir)), os.RemoveAll(filepath.Join(record, watchDir)))
}
