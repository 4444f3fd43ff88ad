package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// holdDir and watchDir are folders of a record that are mounted while its run goes
	// on: the file that shows that accesses are seen, and what lies at the watched paths.
	holdDir  = "hold"
	watchDir = "watch"
	// defaultLaunchWait is how long the open of that file may take to be seen.
	// It takes milliseconds.
	defaultLaunchWait = 10 * time.Second
)

// observer is what a run carries along that is observed.
type observer struct {
	paths    *pathWatch
	counters *routeCounters
	// inner are the folders in watched folders.
	inner []innerFolder
	// networkWhy and watchWhy are why something is not observed that was asked for.
	networkWhy, watchWhy string
	// letGo says that the program was let go.
	letGo bool
	// open says that the record holds what was mounted for the observation.
	open bool
}

// witness is the file that the container's init opens; empty if nothing is observed.
func (o *observer) witness() string {
	if o == nil || o.paths == nil {
		return ""
	}
	return spec.HoldDir + "/" + spec.WitnessFile
}

// started notes that the program was let go.
func (o *observer) started() {
	if o != nil {
		o.letGo = true
	}
}

// openObserver makes what the container mounts for its observation.
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
		return stateError(a.work.record, "cannot be written", err)
	}
	a.observer.open = true
	witness := filepath.Join(hold, spec.WitnessFile)
	err := writeDecoy(witness, "")
	a.work.paths[spec.RoleHold] = hold
	if err == nil {
		err = a.makeAllWatched(watch)
	}
	if err != nil {
		return stateError(a.work.record, "cannot be written", err)
	}
	if err := a.showNames(ctx); err != nil {
		return err
	}
	if a.observer.paths, err = newPathWatch(witness); err != nil {
		return a.unobserved("files cannot be watched here: " + err.Error())
	}
	return nil
}

// makeAllWatched makes what lies at the watched paths.
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

// showNames shows the names of what is hidden in trees.
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

// decoyText is what decoys hold. It says so to whoever wonders.
const decoyText = "This is a decoy of the sandbox. What is usually here is not shown; that it was opened is noted.\n"

// decoyNames are what a folder with keys usually holds.
var decoyNames = []string{"authorized_keys", "config", "id_ed25519", "id_rsa", "known_hosts"}

// makeWatched makes what lies at a watched path: something readable or something empty.
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

// writeDecoy makes a file that everybody may read, whatever our umask is.
func writeDecoy(path, text string) error {
	return errors.Join(os.WriteFile(path, []byte(text), 0o444), os.Chmod(path, 0o444))
}

// unobserved notes why all that was to be observed is not. It is an error if that is
// required.
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

// checkObserved refuses to go on when something required is not observed.
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

// beginObserving watches a container whose init waits: what the engine opened to mount it
// does not count, and that accesses of the container arrive here has been seen.
func (a *attempt) beginObserving(ctx context.Context) (err error) {
	o, plan := a.observer, a.spec.Job.Observe
	if o == nil || o.paths == nil {
		return nil // why was noted
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

// findCounters opens the counters of the container while no program can run away.
func (a *attempt) findCounters(ctx context.Context) (*routeCounters, error) {
	pid, err := a.initPID(ctx)
	if err != nil {
		return nil, fmt.Errorf("the engine did not tell the container's process: %w", err)
	}
	return openRouteCounters(pid)
}

// initPID is the container's init as a process of this machine; 0 when it cannot be seen.
func (a *attempt) initPID(ctx context.Context) (int, error) {
	local, ok := a.container.(engine.Local)
	if !ok {
		return 0, nil
	}
	return local.PID(context.WithoutCancel(ctx))
}

// Why observations of a program are not complete.
const (
	neverStarted = "the program never started"
	endUnseen    = "the end of the program was not seen"
)

// observed reads what was observed of a program that has ended. Nothing of ours may
// have opened a watched file before.
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
	case a.facts.lost != nil || !a.facts.end.Reported:
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

// closeObserver ends the observation and takes away what was mounted for it. It may be
// called again.
func (a *attempt) closeObserver() {
	o := a.observer
	if o == nil || !o.open {
		return
	}
	err := errors.Join(o.paths.close(), o.counters.close(), dropHold(a.work.record))
	o.open = false
	if err != nil {
		a.warnings = append(a.warnings, fmt.Sprintf("what was there for the observation is left behind in the record: %v", cause(err)))
	}
}

// dropHold removes from a record what was mounted for an observation. No program could
// write there.
func dropHold(record string) error {
	return errors.Join(os.RemoveAll(filepath.Join(record, holdDir)), os.RemoveAll(filepath.Join(record, watchDir)))
}
