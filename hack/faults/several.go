//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/evalbox/evalbox/result"
)

// running is the step of the cells of this file, under the names of their columns.
func running(name string) step {
	return step{name: name, mark: "start", pause: 1, container: true, started: true, unpooled: true}
}

// commands are the columns of the table of torn files: what a user calls after a crash of the machine.
var commands = []step{running("ls"), running("gc"), running("adopt"), running("rm"), running("show"), running("run")}

// tornFiles are its rows: a file of a record as the crash of a machine leaves it.
var tornFiles = func() (rows []fault) {
	for _, name := range []string{"journal.json", "spec.json", "result.json"} {
		rows = append(rows, fault{name: name + " empty", kills: true, play: tear(name, false)},
			fault{name: name + " half", kills: true, play: tear(name, true)})
	}
	return rows
}()

// cases and several are the table of cells with several runs.
var (
	cases   = []step{running("verdict")}
	several = []fault{
		{name: "computes beside six that compute", meddler: theCrowd, limit: shortLimit, holds: true, runs: program{"busy", 0}, contention: "starved"},
		{name: "sleeps beside six that compute", runs: program{"idle", 0}, contention: "quiet"},
		{name: "batch killed as a script runs", runs: program{"idle", 0}, play: killBatch("program")},
		{name: "batch killed as the grader runs", runs: program{"idle", 0}, play: killBatch("grader")},
		{name: "gate killed as its command runs", runs: program{"idle", 0}, play: killGate},
		{name: "connection cut past the time limit (terminated) in a batch", runs: program{"plain", 0}, play: cutBatch("TERM")},
		{name: "connection cut past the time limit (killed) in a batch", runs: program{"plain", 0}, play: cutBatch("KILL")},
	}
)

// beside returns a prepared cell with the state directory of another one.
func (c *cell) beside(name string, f fault, p program) (*cell, error) {
	other := c.lab.cell(filepath.Join(c.dir, name), c.step, f, p)
	other.shared = c.state()
	return other, other.makeFiles()
}

// crowd is how many programs take two processors from another one.
const crowd = 6

// gather starts a crowd that computes, and waits until all of it does; leave ends it.
func (c *cell) gather(ctx context.Context) (leave func(), err error) {
	var all []*cell
	leave = sync.OnceFunc(func() {
		for _, each := range all {
			_ = each.letGo(1) // it ends at its time limit otherwise
		}
		for _, each := range all {
			each.await(ctx)
		}
	})
	for n := range crowd {
		each, err := c.beside(fmt.Sprintf("crowd%d", n), fault{}, program{"busy", 0})
		if err == nil {
			err = each.start(ctx, c.lab.engine.address())
		}
		if err != nil {
			return leave, err
		}
		all = append(all, each)
	}
	for _, each := range all {
		if err := each.reach(ctx); err != nil {
			return leave, err
		}
	}
	return leave, nil
}

// tear kills the controller of a run, damages a file of its record once the program has ended, and has
// a user call a command, while another run of the same state directory goes on.
func tear(name string, half bool) func(context.Context, *cell) (truth, seen, error) {
	return func(ctx context.Context, c *cell) (t truth, s seen, err error) {
		other, err := c.beside("other", fault{}, program{"plain", 0})
		if err != nil {
			return t, s, err
		}
		host := c.lab.engine.address()
		if err := other.start(ctx, host); err != nil {
			return t, s, err
		}
		defer other.await(ctx)
		defer func() { _ = other.letGo(1) }()
		if err := errors.Join(other.reach(ctx), c.start(ctx, host)); err != nil {
			return t, s, err
		}
		reached := c.reach(ctx)
		_ = c.controller.Process.Kill() // it may have ended, which shows
		<-c.over
		if err := errors.Join(reached, c.letGo(1), c.dead(ctx), tearFile(filepath.Join(c.record(), name), half)); err != nil {
			return t, s, err
		}
		s.Killed = true
		t = c.truth()
		t.Torn = true
		c.tryCommand(ctx, &s)
		if !other.alive() {
			s.Wrong = append(s.Wrong, "another run was stopped")
		}
		if err := other.letGo(1); err != nil {
			return t, s, err
		}
		s2 := other.await(ctx)
		other.read(&s2)
		s.Harmed = append(s.Harmed, other.harmed()...)
		if j := judge(other.truth(), s2); j.verdict != exact {
			s.Wrong = append(s.Wrong, "another run: "+j.verdict.String()+" "+j.Why)
		}
		for _, call := range [][]string{{"gc"}, {"ls"}, {"adopt", "--all"}} {
			if err := c.call(ctx, &s, call...); err != nil {
				s.Stuck = append(s.Stuck, err.Error())
			}
		}
		c.look(ctx, &s)
		// A record that is kept has the file that the crash has damaged.
		s.Harmed = slices.DeleteFunc(s.Harmed, func(harm string) bool { return strings.HasPrefix(harm, name+": ") })
		c.end(ctx, &s)
		return t, s, nil
	}
}

// tearFile leaves nothing of a file, or its first half.
func tearFile(path string, half bool) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte(`{"schema": "`+result.SchemaV1+`", "status": "exited", "exit_code": 0, "stdout": "`+strings.Repeat("x", 100)), nil
	}
	if err != nil {
		return err
	}
	if !half {
		text = nil
	}
	return os.WriteFile(path, text[:len(text)/2], 0o600)
}

// tryCommand calls the command of the column. It may fail once: a garbage collection later it must not,
// unless what it is about is gone.
func (c *cell) tryCommand(ctx context.Context, s *seen) {
	args := map[string][]string{
		"ls": {"ls"}, "gc": {"gc"}, "adopt": {"adopt", "--all"}, "rm": {"rm", c.id}, "show": {"show", c.id},
		"run": c.runOf([]string{"--quiet", "--final", c.final()}, "/witness", "plain", "0", "another"),
	}[c.step.name]
	first := c.call(ctx, s, args...)
	if c.step.name == "rm" && first == nil {
		return
	}
	_ = c.call(ctx, s, "gc") // a later one shows
	err := c.call(ctx, s, args...)
	if _, gone := os.Stat(c.record()); err == nil || gone != nil && slices.Contains(args, c.id) {
		return
	}
	s.Stuck = append(s.Stuck, err.Error())
}

// end removes a record, and uses its ./final again: nothing may hold either.
func (c *cell) end(ctx context.Context, s *seen) {
	if _, err := os.Stat(c.record()); err == nil {
		if err := c.call(ctx, s, "rm", c.id); err != nil {
			s.Stuck = append(s.Stuck, err.Error())
		}
	}
	if err := c.call(ctx, s, c.runOf([]string{"--quiet", "--final", c.final()}, "/witness", "plain", "0", "another")...); err != nil {
		s.Stuck = append(s.Stuck, err.Error())
	}
	if _, err := os.Stat(c.record()); err == nil {
		s.Left = append(s.Left, "the record")
	}
}

// job is a call of the command line that has runs of its own.
type job struct {
	*cell
	args []string
}

// batch is a batch of one script, whose words are those of a witness.
func (c *cell) batch(words string, args ...string) (job, error) {
	c.out = filepath.Join(c.dir, "work", "s", "final")
	files := map[string]string{
		"s.py": fmt.Sprintf("# %s\n", words), "grade.py": "# idle 0 " + c.token + "-grader\n",
		"task.yaml": "{competition_id: t, task_type: tabular, data_modality: tabular, evaluation_metric: m, metric_direction: maximize, description: d}\n",
	}
	if err := os.Mkdir(filepath.Join(c.dir, "answers"), 0o755); err != nil {
		return job{}, err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			return job{}, err
		}
	}
	return job{c, append([]string{"batch", "--task", "task.yaml", "--image", witnessImage, "--memory", "64m", "--cpus", "1", "--quiet", "s.py"}, args...)}, nil
}

// run starts the job.
func (j job) run(ctx context.Context, host string) error {
	return j.control(j.command(context.WithoutCancel(ctx), host, j.args...))
}

// again gives the job again until it is done.
func (j job) again(ctx context.Context, s *seen) {
	var err error
	for range 3 {
		if err = j.call(ctx, s, j.args...); err == nil {
			return
		}
	}
	s.Stuck = append(s.Stuck, err.Error())
}

// containerOf waits for a running container with a value among its labels; "" takes any.
func (c *cell) containerOf(ctx context.Context, label string) (id string, err error) {
	err = c.awaitFact(ctx, func() bool {
		all, err := c.lab.engine.api.ContainerList(ctx, container.ListOptions{Filters: ours()})
		if err != nil {
			return false
		}
		for _, each := range all {
			for _, value := range each.Labels {
				if label == "" || value == label {
					id = each.ID
				}
			}
		}
		return id != ""
	})
	return id, err
}

// interrupted kills the controller once the container is there.
func (j job) interrupted(ctx context.Context, label string) error {
	if err := j.run(ctx, j.lab.engine.address()); err != nil {
		return err
	}
	_, err := j.containerOf(ctx, label)
	_ = j.controller.Process.Kill() // it may have ended, which shows
	<-j.over
	return err
}

// lines reads the results file of a batch.
func (j job) lines() (all []evaluation, err error) {
	text, err := os.ReadFile(filepath.Join(j.dir, "results.jsonl"))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var e evaluation
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// evaluation is what the suite reads of a line of a results file.
type evaluation struct {
	GradedScore *float64       `json:"graded_score"`
	Run         *result.Result `json:"run"`
}

func (e evaluation) String() string {
	if e.Run == nil {
		return "no run"
	}
	return brief(e.Run)
}

// ended reports whether the script ended by itself, with code 0.
func (e evaluation) ended() bool {
	return e.Run != nil && e.Run.Status == result.StatusExited && e.Run.Fault == result.FaultNone
}

// What follows finds by itself what is said and did not happen: its truth is empty.

// killBatch kills a batch as one of its programs runs, and gives it again.
func killBatch(role string) func(context.Context, *cell) (truth, seen, error) {
	return func(ctx context.Context, c *cell) (t truth, s seen, err error) {
		j, err := c.batch("idle 0 "+c.token, "--grader", "grade.py", "--answers", "answers")
		if err == nil {
			err = j.interrupted(ctx, role)
		}
		if err != nil {
			return t, s, err
		}
		s.Killed = true
		j.again(ctx, &s)
		lines, err := j.lines()
		switch {
		case err != nil:
			s.Wrong = append(s.Wrong, err.Error())
		case len(lines) == 0 || !lines[len(lines)-1].ended() || lines[len(lines)-1].GradedScore == nil:
			s.Wrong = append(s.Wrong, fmt.Sprintf("the script ended with 0 and was graded, said: %v", lines))
		}
		c.cleanUp(ctx, &s)
		s.Left = append(s.Left, c.left(ctx)...)
		return t, s, nil
	}
}

// killGate kills a gate as its command runs, and runs it again.
func killGate(ctx context.Context, c *cell) (t truth, s seen, err error) {
	root := filepath.Join(c.dir, "project")
	if err := os.MkdirAll(filepath.Join(root, "final"), 0o755); err != nil {
		return t, s, err
	}
	if err := os.WriteFile(filepath.Join(root, "test.py"), []byte("# idle 0 "+c.token+"\n"), 0o644); err != nil {
		return t, s, err
	}
	gate := func(evidence string) []string {
		return []string{"gate", "run", "--root", root, "--output", filepath.Join(c.dir, evidence), "--image", witnessImage, "--memory", "64m",
			"--", "python3", "test.py"}
	}
	if err := (job{c, gate("evidence")}).interrupted(ctx, ""); err != nil {
		return t, s, err
	}
	s.Killed = true
	again := c.call(ctx, &s, gate("again")...)
	if code := new(exec.ExitError); again != nil && !(errors.As(again, &code) && code.ExitCode() == blocked) {
		s.Stuck = append(s.Stuck, again.Error())
	}
	c.cleanUp(ctx, &s)
	s.Left = append(s.Left, c.left(ctx)...)
	return t, s, nil
}

// blocked is the exit code of a gate with the verdict BLOCKED: nobody has locked the image of the suite.
const blocked = 1

// cutBatch cuts a batch from its engine around the time limit of its script, which somebody else ends
// before, and gives it again: the script is not done before it has ended by itself.
func cutBatch(signal string) func(context.Context, *cell) (truth, seen, error) {
	return func(ctx context.Context, c *cell) (t truth, s seen, err error) {
		j, err := c.batch("plain 0 "+c.token+" wait", "--timeout", shortLimit.String(), "--grace", shortGrace.String())
		if err == nil {
			err = j.run(ctx, "unix://"+filepath.Join(c.dir, "sock"))
		}
		if err != nil {
			return t, s, err
		}
		id, missing := c.containerOf(ctx, "program")
		if err := errors.Join(missing, c.reach(ctx)); err != nil {
			_ = c.controller.Process.Signal(syscall.SIGTERM)
			c.await(ctx)
			return t, s, err
		}
		c.proxy.cut(true)
		err = errors.Join(c.lab.engine.api.ContainerKill(ctx, id, signal), c.dead(ctx))
		if time.Since(c.startedAfter()) > shortLimit {
			err = errors.Join(err, errors.New("the machine is too slow: the time limit may have ended the program"))
		}
		err = errors.Join(err, c.letGo(1), c.outlast(ctx)) // a new run ends by itself
		c.proxy.cut(false)
		s = c.await(ctx)
		s.Killed, s.ExitCode = true, 0 // there is more than one call
		if err != nil {
			return t, s, err
		}
		j.again(ctx, &s)
		lines, err := j.lines()
		if err != nil || len(lines) == 0 || !lines[len(lines)-1].ended() {
			s.Wrong = append(s.Wrong, fmt.Sprintf("the script ended with 0, said: %v, %v", lines, err))
		}
		for _, line := range lines {
			if line.Run != nil && !line.ended() && line.Run.Conclusive() {
				s.Wrong = append(s.Wrong, "kept as conclusive: "+brief(line.Run))
			}
		}
		c.cleanUp(ctx, &s)
		s.Left = append(s.Left, c.left(ctx)...)
		return t, s, nil
	}
}
