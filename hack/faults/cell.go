//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A program is what runs in a cell: see witness/main.go.
type program struct {
	kind string
	code int
}

var programs = []program{{"plain", 0}, {"plain", 3}, {"polite", 7}}

const (
	// stepPatience bounds the way of a run to a step.
	stepPatience = 30 * time.Second
	// timeLimit is that of the programs. Who waits for it, with a program that has ended,
	// hangs: it could be hours.
	timeLimit = 3 * time.Minute
	// runPatience bounds a controller after its fault: it waits a minute for a lost engine, and
	// half a minute for a container that does not answer.
	runPatience = 100 * time.Second
	// deathPatience bounds the end of a program that may end.
	deathPatience = 20 * time.Second
)

// lab is an engine with the cells that it runs one after the other.
type lab struct {
	dir     string
	sandbox string
	engine  *privateEngine
	count   int
	// doubtful says that the last fault was one of the engine.
	doubtful bool
	// adopts says that the command line can adopt.
	adopts bool
	// pool says that a container waits for each run.
	pool bool
}

// newLab starts an engine and warms it up: the first run on an engine makes a volume there.
func newLab(ctx context.Context, bin binaries) (_ *lab, err error) {
	dir, err := os.MkdirTemp("/tmp", "evalbox-faults-") // the path of a socket is short
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, sandbox: bin.sandbox}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	engineDir := filepath.Join(dir, "e")
	if err := os.Mkdir(engineDir, 0o755); err != nil {
		return nil, err
	}
	if l.engine, err = newEngine(ctx, engineDir, bin.witness); err != nil {
		return nil, err
	}
	l.adopts = exec.Command(l.sandbox, "help", "adopt").Run() == nil
	warm := l.run(ctx, steps[0], faults[0], programs[0])
	if warm.Err == "" && warm.verdict != exact {
		warm.Err = warm.Why
	}
	if warm.Err != "" {
		return nil, fmt.Errorf("a run without a fault: %s", warm.Err)
	}
	return l, nil
}

// close ends the engine and deletes every file.
func (l *lab) close() error {
	if l.engine != nil {
		l.engine.close()
	}
	// Never into what is mounted there still.
	if left := mountsBelow(l.dir); len(left) > 0 {
		return fmt.Errorf("still mounted: %q", left)
	}
	return os.RemoveAll(l.dir)
}

// cell is one run with one fault at one step.
type cell struct {
	lab     *lab
	dir, id string
	token   string
	step    step
	fault   fault
	program program
	proxy   *apiProxy
	watch   *watch
	device  string
	// moved is where ./final went, if somebody has moved it. out is that of a cell whose ./final is
	// elsewhere.
	moved, out string
	// shared is the state directory of another cell that this one shares.
	shared string

	controller     *exec.Cmd
	began          time.Time
	over           chan struct{}
	stdout, stderr bytes.Buffer
}

// report is what came out of a cell.
type report struct {
	judgment
	Step, Fault, Program string
	// Waited says that the container of the result had waited.
	Waited bool
	// Err says that the suite itself failed: the cell says nothing.
	Err          string
	Left, Harmed []string
	Said         string
	Seconds      float64
	// Log has what helps to understand a bad verdict.
	Log string
}

// bad reports whether the product failed in this cell.
func (r report) bad() bool {
	return r.verdict > partial || len(r.Left)+len(r.Harmed) > 0
}

func (c *cell) record() string { return filepath.Join(c.state(), "runs", c.id) }

func (c *cell) state() string {
	if c.shared != "" {
		return c.shared
	}
	if c.fault.disk == "state" {
		return filepath.Join(c.disk(), "state")
	}
	return filepath.Join(c.dir, "state")
}

func (c *cell) final() string {
	if c.out != "" {
		return c.out
	}
	if c.fault.disk == "final" {
		return filepath.Join(c.disk(), "out", "final")
	}
	return filepath.Join(c.dir, "out", "final")
}

// tmp is the directory of temporary files of the commands of the cell.
func (c *cell) tmp() string { return filepath.Join(c.dir, "tmp") }

// other is a directory of the user that has nothing to do with the run.
func (c *cell) other() string { return filepath.Join(filepath.Dir(c.final()), "other") }

func (c *cell) input() string     { return filepath.Join(c.dir, "input") }
func (c *cell) container() string { return spec.Job{RunID: c.id}.ContainerName() }

// own is what the user has in ./final before the run.
const own = "a file of the user\n"

// run carries out one cell, from nothing to nothing.
func (l *lab) run(ctx context.Context, s step, f fault, p program) (r report) {
	began := time.Now()
	l.count++
	p = cmp.Or(f.runs, p)
	c := l.cell(filepath.Join(l.dir, "c"+strconv.Itoa(l.count)), s, f, p)
	r = report{Step: s.name, Fault: f.name, Program: fmt.Sprintf("%s %d", p.kind, p.code)}
	defer func() {
		if err := c.clear(); err != nil && r.Err == "" {
			r.Err = "clearing up: " + err.Error()
		}
		r.Seconds = time.Since(began).Seconds()
	}()
	if err := c.prepare(ctx); err != nil {
		r.Err = err.Error()
		return r
	}
	play := (*cell).carryOut
	if f.play != nil {
		play = func(c *cell, ctx context.Context) (truth, seen, error) { return f.play(ctx, c) }
	}
	t, s2, err := play(c, ctx)
	if err != nil {
		r.Err = err.Error()
	}
	r.judgment = judge(t, s2)
	r.Left, r.Harmed, r.Said = s2.Left, s2.Harmed, brief(s2.Result)
	r.Waited = s2.Result != nil && s2.Result.Pool != nil && s2.Result.Pool.Waited
	if r.bad() || r.Err != "" {
		r.Log = fmt.Sprintf("truth %+v\nexit code %d, killed %t\nrecorded %s\nprinted %s\nstderr: %s\nrequests: %s\n", t, s2.ExitCode, s2.Killed,
			explain(s2.Result), explain(s2.Printed), c.stderr.String(), strings.ReplaceAll(c.proxy.log(), "\n", ", "))
	}
	return r
}

// cell is a cell in a directory, whose ID is its run's: no other lab of the machine has it.
func (l *lab) cell(dir string, s step, f fault, p program) *cell {
	return &cell{lab: l, dir: dir, id: strings.ToLower("r-" + rand.Text()), token: "witness-" + rand.Text(),
		step: s, fault: f, program: p, over: make(chan struct{})}
}

func explain(res *result.Result) string {
	if res == nil {
		return "nothing"
	}
	return brief(res) + fmt.Sprintf(" complete=%t %.2f s of processors in %.2f s: %s %q", res.OutputComplete, res.Resources.CPUSeconds,
		res.DurationSeconds, res.Explanation, res.Warnings)
}

// prepare makes the directories of the cell, and the way to the engine.
func (c *cell) prepare(ctx context.Context) (err error) {
	if c.fault.disk == "state" || c.fault.disk == "final" {
		if err := os.MkdirAll(c.disk(), 0o755); err != nil {
			return err
		}
		if c.device, err = mountSmall(c.disk()); err != nil {
			return err
		}
	}
	if err := c.makeFiles(); err != nil {
		return err
	}
	if err := c.lab.engine.keepContainers(ctx, c.fault.restore); err != nil {
		return err
	}
	if c.lab.doubtful {
		if err := c.lab.engine.works(ctx); err != nil {
			return err
		}
	}
	c.lab.doubtful = c.fault.finish != nil || c.fault.disk == "engine"
	if c.lab.pool {
		if err := c.fillPool(ctx); err != nil {
			return err
		}
	}
	if e := c.step.event; e != nil && c.step.mark == "" {
		if err := os.MkdirAll(filepath.Join(c.state(), "runs"), 0o700); err != nil {
			return err
		}
		if err := os.Chmod(c.state(), 0o700); err != nil {
			return err
		}
		if c.watch, err = watchFor(e.dir(c), e.mask, e.name); err != nil {
			return err
		}
	}
	var g *gate
	if c.step.call.method != "" {
		g = newGate(c.step.call, c.step.at)
		g.how = c.fault.how
		g.armed.Store(c.step.mark == "")
	}
	c.proxy, err = newProxy(filepath.Join(c.dir, "sock"), c.lab.engine.socket(), g)
	return err
}

// makeFiles makes the files of the user, and those that let the program go on.
func (c *cell) makeFiles() error {
	for _, dir := range []string{c.dir, c.tmp(), c.input(), c.final(), filepath.Join(c.lab.dir, "home")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{filepath.Join(c.final(), "mine"), filepath.Join(filepath.Dir(c.final()), "beside"), filepath.Join(c.input(), "data")} {
		if err := os.WriteFile(file, []byte(own), 0o644); err != nil {
			return err
		}
	}
	for n := range 3 {
		if c.step.pause != n+1 {
			if err := c.letGo(n + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// letGo lets the program go on from a pause.
func (c *cell) letGo(n int) error {
	return os.WriteFile(filepath.Join(c.input(), "go"+strconv.Itoa(n)), nil, 0o644)
}

// command returns a call of the command line under test.
func (c *cell) command(ctx context.Context, host string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.lab.sandbox, append([]string{"--state-dir", c.state(), "--host", host}, args...)...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(c.lab.dir, "home"), "XDG_CONFIG_HOME="+filepath.Join(c.lab.dir, "home"),
		"XDG_CACHE_HOME="+filepath.Join(c.lab.dir, "home"), "TMPDIR="+c.tmp())
	return cmd
}

// runOf is a call of the command line that runs a program of the class of the cell.
func (c *cell) runOf(args []string, command ...string) []string {
	limit, grace := timeLimit, 2*time.Second
	if c.fault.limit > 0 {
		limit, grace = c.fault.limit, shortGrace
	}
	return slices.Concat([]string{"run"}, args, []string{"--image", witnessImage, "--input", c.input(), "--timeout", limit.String(),
		"--grace", grace.String(), "--memory", "64m", "--cpus", "1", "--"}, command)
}

// fillPool has a container wait for the run, whose ID is then known. The pool is of the machine's own:
// faults of the connection are those of the run.
func (c *cell) fillPool(ctx context.Context) error {
	host := c.lab.engine.address()
	if out, err := c.command(ctx, host, "pool", "start", "--size", "1").CombinedOutput(); err != nil {
		return fmt.Errorf("starting the pool: %w: %s", err, out)
	}
	// This command is not found, but its class is.
	_ = c.command(ctx, host, c.runOf(nil, "/missing")...).Run() // a pool that stays empty shows
	err := until(ctx, stepPatience, "a waiting container", func() bool {
		var status struct {
			Waiting int `json:"waiting"`
		}
		out, err := c.command(ctx, host, "pool", "status", "--json").Output()
		return err == nil && json.Unmarshal(out, &status) == nil && status.Waiting == 1
	})
	if slots := c.poolSlots(); err == nil && len(slots) == 1 {
		c.id = slots[0]
	}
	return err
}

// poolSlots are the containers that wait, by the IDs of their runs.
func (c *cell) poolSlots() (ids []string) {
	slots, _ := filepath.Glob(filepath.Join(c.state(), "pool", "*")) // the pattern is right
	for _, slot := range slots {
		ids = append(ids, filepath.Base(slot))
	}
	return ids
}

// carryOut runs the program, does the fault, cleans up as a user would, and looks around.
func (c *cell) carryOut(ctx context.Context) (truth, seen, error) {
	disperse := func() {}
	if c.fault.contention != "" {
		var err error
		if disperse, err = c.gather(ctx); err != nil {
			disperse()
			return truth{}, seen{}, err
		}
	}
	defer disperse() // of a cell that fails
	if err := c.start(ctx, "unix://"+filepath.Join(c.dir, "sock")); err != nil {
		return truth{}, seen{}, err
	}
	problem := c.meddle(ctx)
	s := c.await(ctx)
	disperse()
	c.proxy.close()
	t, err := c.recover(ctx, &s)
	return t, s, errors.Join(problem, ctx.Err(), err)
}

// start starts the controller.
func (c *cell) start(ctx context.Context, host string) error {
	args := []string{"--json", "--final", c.final()}
	if !c.lab.pool { // otherwise it is that of the container
		args = append(args, "--id", c.id)
	}
	return c.control(c.command(context.WithoutCancel(ctx), host, c.runOf(args, "/witness", c.program.kind, strconv.Itoa(c.program.code), c.token)...))
}

// control starts a command as the controller of the cell.
func (c *cell) control(command *exec.Cmd) error {
	c.controller, c.began = command, time.Now()
	c.controller.Stdout, c.controller.Stderr = &c.stdout, &c.stderr
	if err := c.controller.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.controller.Wait()
		close(c.over)
	}()
	return nil
}

// await waits for the end of the controller.
func (c *cell) await(ctx context.Context) (s seen) {
	select {
	case <-c.over:
	case <-time.After(runPatience):
		s.Hung = true
	case <-ctx.Done():
	}
	_ = c.controller.Process.Kill() // it has ended, or is not waited for any more
	<-c.over
	s.Killed, s.ExitCode = !c.controller.ProcessState.Exited(), c.controller.ProcessState.ExitCode()
	return s
}

// meddle waits for the step and does the fault.
func (c *cell) meddle(ctx context.Context) error {
	if err := c.reach(ctx); err != nil {
		return errors.Join(err, c.goOn(ctx))
	}
	f := c.fault
	if f.begin != nil {
		if err := f.begin(ctx, c); err != nil {
			return errors.Join(fmt.Errorf("fault %s: %w", f.name, err), c.goOn(ctx))
		}
	}
	var errs []error
	if f.ends && c.step.pause > 0 {
		errs = append(errs, c.dead(ctx))
	}
	if f.meanwhile || c.step.pause == 0 {
		errs = append(errs, c.goOn(ctx))
	}
	if f.meanwhile {
		errs = append(errs, c.dead(ctx))
	}
	if f.limit > 0 && (f.meanwhile || f.ends) && time.Since(c.startedAfter()) > f.limit {
		errs = append(errs, errors.New("the machine is too slow: the time limit may have ended the program"))
	}
	if f.finish != nil {
		errs = append(errs, f.finish(ctx, c))
	}
	return errors.Join(append(errs, c.goOn(ctx))...)
}

// goOn lets the run go on from its step.
func (c *cell) goOn(context.Context) error {
	if g := c.proxy.gate; g != nil {
		g.open()
	}
	if c.step.event != nil {
		_ = c.controller.Process.Signal(syscall.SIGCONT) // it may be dead
	}
	if c.step.pause > 0 && !c.fault.holds {
		return c.letGo(c.step.pause)
	}
	return nil
}

// startedAfter is a time before the start of the program.
func (c *cell) startedAfter() time.Time {
	if job := c.proxy.jobSent(); !job.IsZero() {
		return job
	}
	return c.began // the job of a container that had waited does not come through the proxy
}

// reach waits until the run is at its step.
func (c *cell) reach(ctx context.Context) error {
	s := c.step
	if s.event != nil && s.mark == "" {
		return c.stopAt(c.watch)
	}
	if s.mark != "" {
		if err := c.awaitFact(ctx, func() bool { return slices.Contains(c.marks(), s.mark) }); err != nil {
			return err
		}
	}
	switch {
	case s.event != nil:
		watch, err := watchFor(s.event.dir(c), s.event.mask, s.event.name)
		if err != nil {
			return err
		}
		c.watch = watch
		return errors.Join(c.letGo(s.pause), c.stopAt(watch))
	case s.mark != "" && s.call.method == "":
		return nil
	case s.mark != "":
		// The program is to end while nobody can see it.
		c.proxy.gate.armed.Store(true)
		if err := errors.Join(c.letGo(s.pause), c.dead(ctx)); err != nil {
			return err
		}
	}
	return c.awaitFact(ctx, func() bool {
		select {
		case <-c.proxy.gate.reached:
			return true
		default:
			return false
		}
	})
}

// stopAt holds the controller at the event of its step.
func (c *cell) stopAt(w *watch) error {
	err := w.first(c.over)
	if err == nil {
		_ = c.controller.Process.Signal(syscall.SIGSTOP) // it may have ended
	}
	return err
}

// awaitFact waits for what makes the step. A controller that ends before it leaves a moment
// for what it did last.
func (c *cell) awaitFact(ctx context.Context, reached func() bool) error {
	var ended time.Time
	early := false
	err := until(ctx, stepPatience, "step "+c.step.name, func() bool {
		select {
		case <-c.over:
			if ended.IsZero() {
				ended = time.Now()
			}
			early = time.Since(ended) > lastWords
		default:
		}
		return reached() || early
	})
	if err == nil && early {
		return errUnreached
	}
	return err
}

// lastWords is how long a request of a controller that has ended may take to arrive.
const lastWords = 2 * time.Second

// errUnreached means that there was no step at which a fault could happen.
var errUnreached = errors.New("the controller ended before the step")

// witness is the file that the program writes to, wherever it is by now.
func (c *cell) witness() string { return c.output("witness") }

// outputs is the directory that has the outputs.
func (c *cell) outputs() string { return filepath.Dir(c.output("answer")) }

// output is a file of the program: in the directory of its run, and at the end in ./final, wherever that is.
func (c *cell) output(name string) string {
	for _, dir := range append(record.OutputDirs(c.record(), c.final(), c.id), cmp.Or(c.moved, c.final())) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return filepath.Join(c.final(), name)
}

// marks returns what the program has written down, without the token of the start.
func (c *cell) marks() []string {
	text, _ := os.ReadFile(c.witness()) // it may not be there yet
	var marks []string
	for line := range strings.Lines(string(text)) {
		line, whole := strings.CutSuffix(line, "\n")
		if token, isStart := strings.CutPrefix(line, "start "); isStart {
			if token != c.token {
				continue
			}
			line = "start"
		}
		if whole {
			marks = append(marks, line)
		}
	}
	return marks
}

// dead waits until the program holds its lock no more.
func (c *cell) dead(ctx context.Context) error {
	return until(ctx, deathPatience, "the death of the program", func() bool { return !c.alive() })
}

// alive reports whether the program lives: it holds a lock while it does.
func (c *cell) alive() bool {
	file, err := os.Open(c.witness())
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// heard waits until the controller has taken its first signal: two of a kind that wait are
// one.
func (c *cell) heard(ctx context.Context) error {
	_ = c.controller.Process.Signal(syscall.SIGCONT) // it may be stopped at its step, or dead
	return until(ctx, stepPatience, "the controller to hear a signal", func() bool {
		select {
		case <-c.over:
			return true
		default:
			return c.pendingSignals() == 0
		}
	})
}

// pendingSignals reads how many signals the controller has not taken yet.
func (c *cell) pendingSignals() uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.controller.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "ShdPnd:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64) // the kernel's own format
			return n
		}
	}
	return 0
}

// recover does what a user does after trouble: adopt what can be finished, collect the rest.
func (c *cell) recover(ctx context.Context, s *seen) (truth, error) {
	var errs []error
	if err := c.lab.engine.answers(ctx); err != nil {
		return truth{}, err
	}
	if c.fault.finish != nil {
		// Who cleans up comes when the engine works again.
		errs = append(errs, c.lab.engine.works(ctx))
	}
	errs = append(errs, c.releaseDisk(ctx))
	for n := range 3 {
		errs = append(errs, c.letGo(n+1))
	}
	if len(c.marks()) > 0 && s.Killed {
		errs = append(errs, c.dead(ctx))
	}
	if c.lab.pool {
		_ = c.command(ctx, c.lab.engine.address(), "pool", "stop").Run() // what it leaves shows
	}
	c.cleanUp(ctx, s)
	c.look(ctx, s)
	return c.truth(), errors.Join(errs...)
}

// cleanUp does what a user does after a crash.
func (c *cell) cleanUp(ctx context.Context, s *seen) {
	if c.lab.adopts {
		if err := c.call(ctx, s, "adopt", "--all"); err != nil {
			s.Left = append(s.Left, err.Error())
		}
	}
	if err := c.call(ctx, s, "gc"); err != nil {
		s.Left = append(s.Left, err.Error())
	}
}

// call calls the command line under test, and notes if that does not end.
func (c *cell) call(ctx context.Context, s *seen, args ...string) error {
	bounded, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	out, err := c.command(bounded, c.lab.engine.address(), args...).CombinedOutput()
	s.Hung = s.Hung || bounded.Err() != nil
	if err != nil {
		return fmt.Errorf("%s failed: %w: %s", args[0], err, out)
	}
	return nil
}

// truth reads what the program has written down.
func (c *cell) truth() truth {
	t := truth{Meddler: c.fault.meddler, Erased: c.fault.erases, Alive: c.alive(), Graceful: c.fault.graceful, Contention: c.fault.contention}
	for _, mark := range c.marks() {
		name, value, _ := strings.Cut(mark, " ")
		switch name {
		case "start":
			t.Starts++
		case "score":
			score, _ := strconv.ParseFloat(value, 64) // the witness's own format
			t.Scores = append(t.Scores, score)
		case "term":
			t.Asked = true
		case "end":
			t.Ended = true
			t.Code, _ = strconv.Atoi(value)
		}
	}
	if printed := []float64{0.222, 0.585}; len(t.Scores) < len(printed) {
		t.Next = printed[len(t.Scores)]
	}
	_, err := os.Stat(c.output("answer"))
	t.Answer = err == nil && (len(t.Scores) > 1 || t.Graceful && t.Ended)
	return t
}

// look finds the result, and what is left or harmed.
func (c *cell) look(ctx context.Context, s *seen) {
	c.read(s)
	s.Left = append(s.Left, c.left(ctx)...)
	s.Harmed = append(s.Harmed, c.harmed()...)
}

// read finds the result.
func (c *cell) read(s *seen) {
	if text, err := os.ReadFile(filepath.Join(c.record(), "result.json")); err == nil {
		s.Result = new(result.Result)
		if err := json.Unmarshal(text, s.Result); err != nil {
			s.Harmed = append(s.Harmed, "result.json: "+err.Error())
			s.Result = nil
		}
	}
	if text := bytes.TrimSpace(c.stdout.Bytes()); len(text) > 0 && !s.Killed {
		s.Printed = new(result.Result)
		if json.Unmarshal(text, s.Printed) != nil || s.Printed.ID == "" {
			s.Printed = nil
		}
	}
	if res := cmp.Or(s.Result, s.Printed); res != nil {
		s.Contention = contentionIn(c.stdout.Bytes())
		has := func(name string) bool {
			return slices.ContainsFunc(res.Outputs, func(o result.Output) bool { return o.Path == name })
		}
		if s.Answer = has("answer"); has("theirs") {
			s.Wrong = append(s.Wrong, "a file of another directory is among the outputs")
		}
	}
}

// contentionIn is how the processors were shared, by a printed result.
func contentionIn(text []byte) string {
	var said struct {
		Resources struct {
			Contention struct {
				Verdict string `json:"verdict"`
			} `json:"contention"`
		} `json:"resources"`
	}
	_ = json.Unmarshal(text, &said) // nothing is said then
	return said.Resources.Contention.Verdict
}

// left lists what should not be there any more: on the engine, among the processes, on disk.
func (c *cell) left(ctx context.Context) []string {
	var left []string
	// A container that is removed takes the engine a moment.
	var containers []container.Summary
	err := until(ctx, 10*time.Second, "the removal of containers", func() bool {
		var err error
		containers, err = c.lab.engine.api.ContainerList(ctx, container.ListOptions{All: true, Filters: ours()})
		if slices.ContainsFunc(containers, func(s container.Summary) bool { return s.State == "created" }) {
			// The engine carried out a request to create it after its controller had died, and
			// after everything was cleaned up. The next garbage collection takes it.
			_ = c.command(ctx, c.lab.engine.address(), "gc").Run() // what is left shows
		}
		return err == nil && len(containers) == 0
	})
	if err != nil {
		for _, each := range containers {
			left = append(left, fmt.Sprintf("container %s (%s)", each.Names, each.Status))
			_ = c.lab.engine.api.ContainerRemove(ctx, each.ID, container.RemoveOptions{Force: true}) // for the next cell
		}
	}
	volumes, err := c.lab.engine.api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", spec.LabelRun))})
	if err == nil {
		for _, each := range volumes.Volumes {
			left = append(left, "volume "+each.Name)
			_ = c.lab.engine.api.VolumeRemove(ctx, each.Name, true)
		}
	}
	for _, pid := range processesNaming(c.token) {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	for _, point := range mountsBelow(c.dir) {
		if point != c.disk() {
			left = append(left, "mount "+point)
			_ = unix.Unmount(point, unix.MNT_DETACH)
		}
	}
	for _, slot := range c.poolSlots() {
		left = append(left, "slot "+slot+" of the pool")
	}
	for _, name := range []string{"reserve", "egress", "hold", "watch"} {
		if _, err := os.Lstat(filepath.Join(c.record(), name)); err == nil {
			left = append(left, "file "+name+" of the record")
		}
	}
	temporary, _ := os.ReadDir(c.tmp()) // a cell without one leaves nothing there
	for _, entry := range temporary {
		left = append(left, "temporary file "+entry.Name())
	}
	leases, _ := filepath.Glob("/run/evalbox/uids/*") // the pattern is right
	for _, path := range leases {
		if holder, err := os.ReadFile(path); err == nil && bytes.Contains(holder, []byte(strconv.Quote(c.id))) {
			left = append(left, "lease of user ID "+filepath.Base(path))
		}
	}
	if locks := locksIn(c.state()); locks > maxLocks {
		left = append(left, fmt.Sprintf("%d lock files", locks))
	}
	return left
}

// ours selects the containers of runs.
func ours() filters.Args { return filters.NewArgs(filters.Arg("label", owner.LabelManaged+"=true")) }

// maxLocks is how many lock files a state directory may have, however many runs it has seen.
const maxLocks = 4

// harmed lists what others would miss.
func (c *cell) harmed() []string {
	var harmed []string
	out := filepath.Dir(c.final())
	same := func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == own
	}
	if c.moved != "" {
		theirs, err := os.ReadDir(c.other())
		if err != nil || len(theirs) != 1 || !same(filepath.Join(c.other(), "theirs")) {
			harmed = append(harmed, fmt.Sprintf("another directory has %v, %v", theirs, err))
		}
		if to, err := os.Readlink(c.final()); !same(c.final()) && to != c.other() {
			harmed = append(harmed, fmt.Sprintf("what took the place of final is gone: %v", err))
		}
	}
	aside, _ := filepath.Glob(c.final() + ".before-*/mine") // the pattern is right
	if !same(filepath.Join(cmp.Or(c.moved, c.final()), "mine")) && !slices.ContainsFunc(aside, same) {
		harmed = append(harmed, "the user's file in final is gone")
	}
	if !same(filepath.Join(out, "beside")) || !same(filepath.Join(c.input(), "data")) {
		harmed = append(harmed, "a file of the user changed")
	}
	return append(harmed, foreign(out)...)
}

// foreign lists what belongs to others in a directory of the user, or can be written by
// others. A run gives everything back.
func foreign(dir string) []string {
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if uid, _, ok := fsx.OwnerOf(info); ok && uid != os.Geteuid() {
			found = append(found, fmt.Sprintf("%s belongs to user %d", strings.TrimPrefix(path, dir), uid))
		}
		if info.Mode().Type() != fs.ModeSymlink && info.Mode()&0o022 != 0 {
			found = append(found, fmt.Sprintf("%s has mode %v", strings.TrimPrefix(path, dir), info.Mode()))
		}
		return nil
	})
	if err != nil {
		found = append(found, err.Error())
	}
	return found
}

// clear deletes the cell.
func (c *cell) clear() error {
	if c.proxy != nil {
		c.proxy.close()
	}
	if c.lab.pool {
		_ = c.command(context.Background(), c.lab.engine.address(), "pool", "stop").Run() // it has usually ended
	}
	c.watch.close()
	var err error
	if c.device != "" {
		err = unmountSmall(c.disk(), c.device)
	}
	if left := mountsBelow(c.dir); len(left) > 0 {
		return errors.Join(err, fmt.Errorf("still mounted: %q", left))
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
