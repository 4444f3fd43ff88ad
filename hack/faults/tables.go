//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox/record"
)

// A step is a point in the life of a run that can be seen from outside. A step with a call
// is when that request is at the proxy, one with an event is when that happens to a file,
// and one with a mark is when the program has written that line; with both, the program is
// let go, and ends, before the other.
type step struct {
	name string
	call apiCall
	at   moment
	mark string
	// pause is the number of the file that lets the program go on from a mark.
	pause int
	// event is what the kernel reports of a file: then the controller is stopped.
	event *event
	// container says that there is one, and started that the program may have run. unpooled says that
	// a run whose container has waited does not have this step, or not at the proxy.
	container, started, unpooled bool
}

// An event happens to an entry of a directory of a cell.
type event struct {
	dir  func(*cell) string
	mask uint32
	// name is the beginning of the entry's name.
	name string
}

const container64 = `/containers/[0-9a-zA-Z_.-]+`

// steps are the columns of the table, in the order of a run.
var steps = []step{
	{name: "image", call: apiCall{"GET", `/images/.*/json`}},
	{name: "record", event: &event{func(c *cell) string { return filepath.Join(c.state(), "runs") }, unix.IN_CREATE | unix.IN_MOVED_TO, ""}},
	{name: "create", call: apiCall{"POST", `/containers/create`}, unpooled: true},
	{name: "created", call: apiCall{"POST", `/containers/create`}, at: afterAnswer, container: true, unpooled: true},
	{name: "attach", call: apiCall{"POST", container64 + `/attach`}, container: true, unpooled: true},
	{name: "start", call: apiCall{"POST", container64 + `/start`}, container: true, unpooled: true},
	{name: "started", call: apiCall{"POST", container64 + `/start`}, at: afterAnswer, container: true, unpooled: true},
	{name: "job", call: apiCall{"POST", container64 + `/attach`}, at: firstInput, container: true, unpooled: true},
	{name: "running", mark: "start", pause: 1, container: true, started: true},
	{name: "scored", mark: "score 0.222", pause: 2, container: true, started: true},
	{name: "ending", mark: "score 0.585", pause: 3, container: true, started: true},
	{name: "ended", call: apiCall{"POST", container64 + `/attach`}, at: output, pause: 3, mark: "score 0.585", container: true, started: true, unpooled: true},
	{name: "publishing", event: &event{func(c *cell) string { return filepath.Dir(c.final()) }, unix.IN_CREATE, "final.before-"}, pause: 3, mark: "score 0.585", container: true, started: true},
	{name: "collecting", event: &event{(*cell).outputs, unix.IN_OPEN, "answer"}, pause: 3, mark: "score 0.585", container: true, started: true},
	{name: "result", call: apiCall{"DELETE", container64}, container: true, started: true},
	{name: "removed", call: apiCall{"DELETE", container64}, at: afterAnswer, started: true},
}

// A fault is a row of the table.
type fault struct {
	name string
	// begin does it; finish, if it is set, ends it: in between the run goes on.
	begin, finish func(context.Context, *cell) error
	// meddler could end the program by it, and ends says that it does.
	meddler meddler
	ends    bool
	// how is the cut of the request of the step.
	how cut
	// meanwhile lets the program go on, and end, before the fault is over.
	meanwhile bool
	// restore says that the engine keeps its containers while it is away.
	restore bool
	// kills says that the controller dies.
	kills bool
	// disk is what lies on a small file system of its own: state, final or engine.
	disk string
	// erases says that there may be no record any more.
	erases bool
	// runs is the program, if it is a certain one.
	runs program
	// limit is the time limit of the program, if it is a short one. holds says that nobody lets the
	// program go on.
	limit time.Duration
	holds bool
	// graceful says that the controller owes the program its grace.
	graceful bool
	// contention is what the result says of the processors, beside a crowd that uses them.
	contention string
	// play carries out a cell that is more than one run with one fault.
	play func(context.Context, *cell) (truth, seen, error)
	// needs a container, a program, a request.
	container, program, request bool
}

// A grid is a table: its name stands over the faults.
type grid struct {
	name   string
	steps  []step
	faults []fault
}

// grids are all tables.
var grids = []grid{
	{"fault", steps, slices.Concat(faults, pastTheLimit)},
	{"file", commands, tornFiles},
	{"case", cases, several},
}

// faults are the rows of the table.
var faults = []fault{
	{name: "none"},
	{name: "controller killed", kills: true, begin: signalController(syscall.SIGKILL)},
	{name: "controller interrupted", meddler: theCaller, begin: signalController(syscall.SIGINT)},
	{name: "controller interrupted twice", meddler: theCaller, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGINT)(ctx, c), c.heard(ctx), signalController(syscall.SIGINT)(ctx, c))
	}},

	{name: "controller terminated twice at once", meddler: theCaller, graceful: true, holds: true, runs: program{"slow", 0}, begin: signalTwice(syscall.SIGTERM, syscall.SIGTERM)},
	{name: "controller interrupted and terminated at once", meddler: theCaller, graceful: true, holds: true, runs: program{"slow", 0}, begin: signalTwice(syscall.SIGINT, syscall.SIGTERM)},
	{name: "controller stopped as the program ends", meanwhile: true, program: true, begin: signalController(syscall.SIGSTOP), finish: signalController(syscall.SIGCONT)},

	{name: "engine killed (live-restore)", restore: true, begin: killEngine, finish: startEngine},
	{name: "engine killed (live-restore) as the program ends", restore: true, meanwhile: true, program: true, begin: killEngine, finish: startEngine},
	{name: "engine killed", meddler: theEngine, begin: killEngine, finish: startEngine},
	{name: "engine killed as the program ends", meddler: theEngine, meanwhile: true, program: true, begin: killEngine, finish: startEngine},
	{name: "engine stopped (live-restore)", restore: true, begin: stopEngine, finish: startEngine},
	{name: "engine stopped", meddler: theEngine, begin: stopEngine, finish: startEngine},
	{name: "engine frozen", begin: freezeEngine, finish: thawEngine},
	{name: "engine frozen as the program ends", meanwhile: true, program: true, begin: freezeEngine, finish: thawEngine},
	{name: "containerd killed", meddler: theEngine, begin: killContainerd, finish: startContainerd},
	{name: "shim killed", meddler: theEngine, ends: true, container: true, program: true, begin: killShim},
	{name: "controller and engine killed", kills: true, meddler: theEngine, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGKILL)(ctx, c), killEngine(ctx, c))
	}, finish: startEngine},
	{name: "controller and engine killed (live-restore)", kills: true, restore: true, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGKILL)(ctx, c), killEngine(ctx, c))
	}, finish: startEngine},

	{name: "container removed", meddler: anOperator, ends: true, container: true, begin: func(ctx context.Context, c *cell) error {
		return ifRunning(c.lab.engine.api.ContainerRemove(ctx, c.container(), container.RemoveOptions{Force: true}))
	}},
	{name: "container killed", meddler: operatorKill, ends: true, container: true, begin: signalContainer("KILL")},
	{name: "container terminated", meddler: operatorTerm, ends: true, container: true, begin: signalContainer("TERM")},
	{name: "container stopped", meddler: anOperator, ends: true, container: true, begin: func(ctx context.Context, c *cell) error {
		return ifRunning(c.lab.engine.api.ContainerStop(ctx, c.container(), container.StopOptions{}))
	}},
	{name: "container paused", container: true, begin: pause, finish: unpause},
	{name: "container restarted", meddler: anOperator, ends: true, container: true, begin: func(ctx context.Context, c *cell) error {
		err := ifRunning(c.lab.engine.api.ContainerRestart(ctx, c.container(), container.StopOptions{}))
		if now, lookErr := c.lab.engine.api.ContainerInspect(ctx, c.container()); lookErr != nil || !now.State.Running {
			return ifRunning(lookErr) // its run was over before
		}
		return err
	}},

	{name: "request refused", request: true, how: refused},
	{name: "answer swallowed", request: true, how: swallowed},
	{name: "answer cut", request: true, how: halved},
	{name: "answer late", request: true, how: delayed},
	{name: "no answer", request: true, how: hanging},
	{name: "answer {}", request: true, how: emptied},
	{name: "answer 500", request: true, how: failed},
	{name: "streams cut", program: true, begin: func(_ context.Context, c *cell) error {
		c.proxy.cutStreams()
		return nil
	}},

	{name: "state directory full", disk: "state", begin: fill},
	{name: "state directory read-only", disk: "state", begin: readOnly},
	{name: "final full", disk: "final", meddler: theMachine, begin: fill},
	{name: "final read-only", disk: "final", meddler: theMachine, begin: readOnly},

	{name: "final replaced by a file", container: true, begin: replaceFinal(func(final, _ string) error {
		return os.WriteFile(final, []byte(own), 0o644)
	})},
	{name: "final replaced by a link", container: true, begin: replaceFinal(func(final, other string) error {
		return os.Symlink(other, final)
	})},

	{name: "engine's disk full", disk: "engine", meddler: theMachine, begin: fill},

	{name: "record deleted", erases: true, begin: deleteRecord},
	{name: "journal deleted", erases: true, begin: deleteOf("journal.json")},
	{name: "log deleted", begin: deleteOf("stdout.log")},
	{name: "record deleted and controller killed", kills: true, erases: true, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGKILL)(ctx, c), deleteRecord(ctx, c))
	}},
	{name: "journal deleted and controller killed", kills: true, erases: true, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGKILL)(ctx, c), deleteOf("journal.json")(ctx, c))
	}},
	{name: "log deleted and controller killed", kills: true, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGKILL)(ctx, c), deleteOf("stdout.log")(ctx, c))
	}},
	{name: "engine's log deleted", meddler: theMachine, container: true, begin: deleteEngineLog},
	{name: "engine's log deleted and controller killed", kills: true, meddler: theMachine, container: true, begin: func(ctx context.Context, c *cell) error {
		return errors.Join(signalController(syscall.SIGKILL)(ctx, c), deleteEngineLog(ctx, c))
	}},

	{name: "clock an hour ahead", begin: stepClock(time.Hour)},
	{name: "clock an hour behind", begin: stepClock(-time.Hour)},
}

// shortLimit is the time limit of a program that is to reach it, with its grace.
const (
	shortLimit = 3 * time.Second
	shortGrace = time.Second
)

// controllerSlack is how long after the time limit and the grace of a program its controller has tried
// in every way to end it.
const controllerSlack = 5 * time.Second

// pastTheLimit are the rows in which the controller does not see what happens around the time limit of
// the program: it looks again only when it must think that the limit has ended the program.
var pastTheLimit = func() []fault {
	var rows []fault
	for _, blind := range []fault{
		{name: "engine killed (live-restore)", restore: true, begin: killEngine, finish: startEngine},
		{name: "connection cut", begin: cutConnection(true), finish: cutConnection(false)},
		{name: "controller stopped", begin: signalController(syscall.SIGSTOP), finish: signalController(syscall.SIGCONT)},
	} {
		blind.program, blind.limit = true, shortLimit
		back := blind.finish
		blind.finish = func(ctx context.Context, c *cell) error { return errors.Join(c.outlast(ctx), back(ctx, c)) }
		row := blind
		row.name, row.holds = blind.name+" past the time limit", true
		rows = append(rows, row)
		row = blind
		row.name, row.meanwhile = blind.name+" past the time limit (own end)", true
		rows = append(rows, row)
		for _, by := range []struct {
			name    string
			meddler meddler
			signal  syscall.Signal
		}{{"terminated", operatorTerm, syscall.SIGTERM}, {"killed", operatorKill, syscall.SIGKILL}} {
			row = blind
			row.name, row.ends, row.meddler = blind.name+" past the time limit ("+by.name+")", true, by.meddler
			if blind.restore { // there is no engine to send it
				row.meddler, row.begin = aNeighbor, killEngineAndInit(by.signal)
			} else {
				row.begin = func(ctx context.Context, c *cell) error {
					return errors.Join(blind.begin(ctx, c), signalContainer(strings.TrimPrefix(unix.SignalName(by.signal), "SIG"))(ctx, c))
				}
			}
			rows = append(rows, row)
		}
	}
	paused := fault{meddler: aPauser, program: true, limit: shortLimit, holds: true, begin: pause}
	for _, until := range []struct {
		name string
		wait func(*cell, context.Context) error
	}{{"past", (*cell).outlast}, {"before", (*cell).blink}} {
		paused.name = "container paused " + until.name + " the time limit"
		paused.finish = func(ctx context.Context, c *cell) error { return errors.Join(until.wait(c, ctx), unpause(ctx, c)) }
		rows = append(rows, paused)
	}
	return rows
}()

// outlast waits until the time limit of the program, its grace and the patience of the controller
// are over.
func (c *cell) outlast(ctx context.Context) error {
	pauseFor(ctx, shortLimit+shortGrace+controllerSlack)
	return ctx.Err()
}

// blink waits for less than the time limit.
func (c *cell) blink(ctx context.Context) error {
	pauseFor(ctx, shortLimit/3)
	return ctx.Err()
}

// applies reports whether a fault can happen at a step.
func (f fault) applies(s step) bool {
	switch {
	case f.container && !s.container, f.program && (!s.started || s.pause == 0 || s.event != nil):
		return false
	case f.request:
		return s.call.method != "" && s.at != afterAnswer
	}
	return true
}

func signalController(s syscall.Signal) func(context.Context, *cell) error {
	return func(ctx context.Context, c *cell) error {
		if err := c.controller.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if s == syscall.SIGKILL {
			<-c.over
		}
		return nil
	}
}

// signalTwice sends two signals within a millisecond, as a service manager and a terminal do that end
// a group of processes: they are one.
func signalTwice(first, second syscall.Signal) func(context.Context, *cell) error {
	return func(ctx context.Context, c *cell) error {
		err := signalController(first)(ctx, c)
		pauseFor(ctx, time.Millisecond)
		return errors.Join(err, signalController(second)(ctx, c))
	}
}

func cutConnection(away bool) func(context.Context, *cell) error {
	return func(_ context.Context, c *cell) error {
		c.proxy.cut(away)
		return nil
	}
}

// killEngineAndInit kills the engine, and sends the container a signal that it does not learn of.
func killEngineAndInit(s syscall.Signal) func(context.Context, *cell) error {
	return func(ctx context.Context, c *cell) error {
		now, err := c.lab.engine.api.ContainerInspect(ctx, c.container())
		if err != nil {
			return err
		}
		if now.State.Pid == 0 {
			return errors.New("the container has no process")
		}
		return errors.Join(killEngine(ctx, c), syscall.Kill(now.State.Pid, s))
	}
}

func pause(ctx context.Context, c *cell) error {
	var err error
	late := until(ctx, stepPatience, "the container to be paused", func() bool { // on a busy machine runc gives up: "unable to freeze"
		err = ifRunning(c.lab.engine.api.ContainerPause(ctx, c.container()))
		return err == nil
	})
	if late == nil || c.step.name == "result" { // it may be about to end
		return nil
	}
	return errors.Join(late, err)
}

func unpause(ctx context.Context, c *cell) error {
	now, err := c.lab.engine.api.ContainerInspect(ctx, c.container())
	if err != nil || !now.State.Paused {
		return ifRunning(err)
	}
	if err := c.lab.engine.api.ContainerUnpause(ctx, c.container()); c.step.name != "result" {
		return err
	}
	return nil // it may be about to end
}

// replaceFinal moves ./final away, and puts something else of the user in its place: final is its
// path, other another directory.
func replaceFinal(put func(final, other string) error) func(context.Context, *cell) error {
	return func(_ context.Context, c *cell) error {
		c.moved = filepath.Join(filepath.Dir(c.final()), "moved")
		if err := errors.Join(os.Rename(c.final(), c.moved), os.Mkdir(c.other(), 0o755), os.WriteFile(filepath.Join(c.other(), "theirs"), []byte(own), 0o644)); err != nil {
			return err
		}
		return put(c.final(), c.other())
	}
}

func killEngine(_ context.Context, c *cell) error {
	c.lab.engine.dockerd.signal(syscall.SIGKILL)
	<-c.lab.engine.dockerd.done
	return nil
}

// stopEngine does not wait: an engine that stops its containers first may take a while.
func stopEngine(_ context.Context, c *cell) error {
	c.lab.engine.dockerd.signal(syscall.SIGTERM)
	return nil
}

func startEngine(ctx context.Context, c *cell) error {
	select {
	case <-c.lab.engine.dockerd.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.lab.engine.startDockerd(ctx, c.fault.restore)
}

func freezeEngine(_ context.Context, c *cell) error {
	c.lab.engine.dockerd.signal(syscall.SIGSTOP)
	return nil
}

// thawEngine lets the engine stand still for a while first: that is the fault.
func thawEngine(ctx context.Context, c *cell) error {
	select {
	case <-time.After(frozen):
	case <-ctx.Done():
	}
	c.lab.engine.dockerd.signal(syscall.SIGCONT)
	return c.lab.engine.answers(ctx)
}

// frozen is how long an engine stands still.
const frozen = 2 * time.Second

func killContainerd(_ context.Context, c *cell) error {
	c.lab.engine.containerd.signal(syscall.SIGKILL)
	<-c.lab.engine.containerd.done
	return nil
}

func startContainerd(ctx context.Context, c *cell) error {
	return errors.Join(c.lab.engine.startContainerd(), c.lab.engine.answers(ctx))
}

func killShim(ctx context.Context, c *cell) error {
	pid, err := c.lab.engine.shim(ctx, c.container())
	if err != nil {
		return ifRunning(err)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func signalContainer(name string) func(context.Context, *cell) error {
	return func(ctx context.Context, c *cell) error {
		return ifRunning(c.lab.engine.api.ContainerKill(ctx, c.container(), name))
	}
}

// deleteRecord deletes the record while its files may still be made.
// deleteRecord deletes the record without the directory that the program fills, in which its witness is.
func deleteRecord(ctx context.Context, c *cell) error {
	return until(ctx, stepPatience, "the record to be deleted", func() bool {
		entries, err := os.ReadDir(c.record())
		for _, entry := range entries {
			if entry.Name() != record.OwnFinal {
				err = errors.Join(err, os.RemoveAll(filepath.Join(c.record(), entry.Name())))
			}
		}
		return err == nil
	})
}

func deleteOf(name string) func(context.Context, *cell) error {
	return func(_ context.Context, c *cell) error {
		err := os.Remove(filepath.Join(c.record(), name))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
}

// deleteEngineLog deletes the engine's own copy of the output.
func deleteEngineLog(ctx context.Context, c *cell) error {
	now, err := c.lab.engine.api.ContainerInspect(ctx, c.container())
	if err != nil {
		return ifRunning(err)
	}
	return os.RemoveAll(c.lab.engine.path("disk/data/containers/" + now.ID + "/local-logs"))
}

func stepClock(by time.Duration) func(context.Context, *cell) error {
	return func(_ context.Context, c *cell) error {
		c.proxy.stepClock(by)
		return nil
	}
}

// ifRunning forgives an engine that finds nothing running any more: then there is no fault.
func ifRunning(err error) error {
	if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
