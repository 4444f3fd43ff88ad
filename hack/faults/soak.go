//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// sample is what a process holds at a moment.
type sample struct {
	Runs, Goroutines, Descriptors, Locks int
	Heap                                 float64 // MiB
}

// measure counts what this process holds, and the lock files of a state directory.
func measure(runs int, state string) sample {
	runtime.GC()
	debug.FreeOSMemory()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	descriptors, _ := os.ReadDir("/proc/self/fd") // Linux has it
	return sample{runs, runtime.NumGoroutine(), len(descriptors), locksIn(state), float64(memory.HeapAlloc) / (1 << 20)}
}

// locksIn counts the lock files of a state directory. The notes beside them, which run
// filled which ./final, are as many as those directories.
func locksIn(state string) int {
	files, _ := os.ReadDir(filepath.Join(state, "locks")) // there may be none
	notes := 0
	for _, file := range files {
		if filepath.Ext(file.Name()) == ".json" {
			notes++
		}
	}
	return len(files) - notes
}

// slope returns by how much a value grows in 1,000 runs, by least squares.
func slope(samples []sample, value func(sample) float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, s := range samples {
		x, y := float64(s.Runs)/1000, value(s)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return math.NaN()
}

// bounds are the slopes that count as flat, in 1,000 runs.
var bounds = []struct {
	name  string
	value func(sample) float64
	most  float64
}{
	{"goroutines", func(s sample) float64 { return float64(s.Goroutines) }, 8},
	{"descriptors", func(s sample) float64 { return float64(s.Descriptors) }, 8},
	{"lock files", func(s sample) float64 { return float64(s.Locks) }, 8},
	{"heap in MiB", func(s sample) float64 { return s.Heap }, 4},
}

// flatness reports every slope, and those that are too steep.
func flatness(samples []sample) (text string, steep []string) {
	var parts []string
	for _, b := range bounds {
		grows := slope(samples, b.value)
		parts = append(parts, fmt.Sprintf("%s %+.2f", b.name, grows))
		if math.IsNaN(grows) || grows > b.most {
			steep = append(steep, b.name)
		}
	}
	return strings.Join(parts, ", "), steep
}

// soak is the long form: many runs of one process, then everything at once.
func soak(ctx context.Context, o options) (ok bool, err error) {
	bin, err := buildBinaries()
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(bin.dir) }() // a leftover of the suite
	l, err := newLab(ctx, bin)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	many, err := l.manyRuns(ctx, o.soakRuns, o.workers)
	if err != nil {
		return false, err
	}
	mixed, err := l.mixedLoad(ctx, o.soak)
	return many && mixed, err
}

// manyRuns carries out n runs by one process through so many workers. Each of them is
// judged. One in eight is canceled.
func (l *lab) manyRuns(ctx context.Context, n, workers int) (ok bool, err error) {
	began := time.Now()
	dir := filepath.Join(l.dir, "many")
	state := filepath.Join(dir, "state")
	input := filepath.Join(dir, "input")
	if err := os.MkdirAll(input, 0o755); err != nil {
		return false, err
	}
	for pause := range 3 {
		if err := os.WriteFile(filepath.Join(input, "go"+strconv.Itoa(pause+1)), nil, 0o644); err != nil {
			return false, err
		}
	}
	box, err := docker.Connect(docker.Address{Host: l.engine.address()})
	if err != nil {
		return false, err
	}
	runner, err := sandbox.New(sandbox.WithEngine(box), sandbox.WithStateDir(state))
	if err != nil {
		return false, err
	}
	var mu sync.Mutex
	var reports []report
	var samples []sample
	do := func(i int) {
		c := &cell{lab: l, dir: filepath.Join(dir, strconv.Itoa(i)), id: "m" + strconv.Itoa(i), token: "witness-" + rand.Text(),
			program: programs[i%len(programs)]}
		r := report{Program: c.program.kind}
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		req := sandbox.Request{ID: c.id, Image: witnessImage, Input: input, Final: c.final(),
			Command: []string{"/witness", c.program.kind, strconv.Itoa(c.program.code), c.token},
			Limits:  policy.Limits{Timeout: timeLimit, Grace: 2 * time.Second, Memory: 64 * policy.MiB, CPUs: 1}}
		if err := os.MkdirAll(c.final(), 0o755); err != nil {
			r.Err = err.Error()
		}
		var hooks sandbox.Hooks
		if i%8 == 7 {
			c.fault.meddler = theCaller
			hooks.Started = cancel
		}
		res, err := runner.Run(running, req, hooks)
		s := seen{Printed: res}
		if err != nil {
			s.ExitCode = 1
		}
		if res != nil {
			s.Answer = slices.ContainsFunc(res.Outputs, func(o result.Output) bool { return o.Path == "answer" })
		}
		r.judgment = judge(c.truth(), s)
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r)
		if r.bad() {
			fmt.Printf("run %d: %s %s\n%v\n%s\n", i, r.verdict, r.Why, err, explain(res))
		}
	}
	// Every so often all workers pause, so that nothing of a run is counted.
	const round = 50
	for done := 0; done < n && ctx.Err() == nil; {
		var work sync.WaitGroup
		next := make(chan int)
		for range workers {
			work.Go(func() {
				for i := range next {
					do(i)
				}
			})
		}
		for range min(round, n-done) {
			next <- done
			done++
		}
		close(next)
		work.Wait()
		// A container that is removed takes its engine a moment, and us a goroutine.
		if err := l.idle(ctx); err != nil {
			return false, errors.Join(err, runner.Close())
		}
		if done > n/5 { // what is made once is there
			samples = append(samples, measure(done, state))
		}
	}
	closing := runner.Close()
	text, steep := flatness(samples)
	leftovers := (&cell{lab: l, dir: dir, id: "none"}).left(ctx)
	fmt.Printf("%s\n%d runs through %d workers in %v; growth in 1,000 runs: %s\n", tally(reports), n, workers, time.Since(began).Round(time.Second), text)
	if len(steep)+len(leftovers) > 0 {
		fmt.Printf("not flat: %q; left: %q\n", steep, leftovers)
	}
	return len(steep)+len(leftovers) == 0 && !slices.ContainsFunc(reports, report.bad), errors.Join(closing, ctx.Err())
}

// batchSize is the number of scripts of a batch.
const batchSize = 24

// mixedLoad runs batches that are killed and go on, single runs, garbage collections,
// adoptions and operators at the same time, on an engine that is killed now and then and
// keeps its containers.
func (l *lab) mixedLoad(ctx context.Context, d time.Duration) (ok bool, err error) {
	began := time.Now()
	if err := l.engine.keepContainers(ctx, true); err != nil {
		return false, err
	}
	if err := os.MkdirAll((&cell{dir: filepath.Join(l.dir, "mix")}).tmp(), 0o755); err != nil {
		return false, err
	}
	loading, stop := context.WithTimeout(ctx, d)
	defer stop()
	m := &mix{lab: l, until: loading, count: map[string]int{}}
	var work sync.WaitGroup
	for worker := range 2 {
		work.Go(func() { m.batches(ctx, worker) })
	}
	work.Go(func() { m.collect(ctx) })
	work.Go(func() { m.trouble(ctx) })
	work.Wait()
	leftovers := m.cleaned(ctx)
	fmt.Printf("mixed load for %v: %v\n", time.Since(began).Round(time.Second), m.count)
	for _, problem := range m.problems {
		fmt.Println(problem)
	}
	if len(leftovers) > 0 {
		fmt.Printf("left: %q\n", leftovers)
	}
	return len(m.problems)+len(leftovers) == 0 && m.count["script exact"] > 0, ctx.Err()
}

// mix is a mixed load.
type mix struct {
	lab   *lab
	until context.Context

	mu       sync.Mutex
	count    map[string]int
	problems []string
	dirs     []string
}

func (m *mix) add(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count[what]++
}

func (m *mix) problem(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// command is a call of the command line with the state directory that all share.
func (m *mix) command(ctx context.Context, args ...string) *exec.Cmd {
	c := &cell{lab: m.lab, dir: filepath.Join(m.lab.dir, "mix")}
	return c.command(ctx, m.lab.engine.address(), args...)
}

// batches begins one batch after the other. Each is killed or interrupted several times and
// goes on, until every script has a conclusive result, which is judged.
func (m *mix) batches(ctx context.Context, worker int) {
	for n := 0; m.until.Err() == nil; n++ {
		dir := filepath.Join(m.lab.dir, "mix", fmt.Sprintf("b%d-%d", worker, n))
		tokens, err := writeBatch(dir)
		if err != nil {
			m.problem("%v", err)
			return
		}
		m.mu.Lock()
		m.dirs = append(m.dirs, dir)
		m.mu.Unlock()
		args := []string{"batch", "--task", "task.yaml", "--image", witnessImage, "-j", "4", "--timeout", "60s", "--grace", "1s",
			"--memory", "64m", "--cpus", "1", "--quiet"}
		for i := range batchSize {
			args = append(args, scriptName(i))
		}
		for try := 0; ; try++ {
			if try == 30 {
				m.problem("%s: no end after %d tries", dir, try)
				return
			}
			bounded, cancel := context.WithTimeout(ctx, 2*runPatience)
			cmd := m.command(bounded, args...)
			cmd.Dir = dir
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Start()
			if err == nil && try < 4 {
				// Not a moment of its choice.
				timer := time.AfterFunc(time.Duration(500+mathrand.IntN(4000))*time.Millisecond, func() {
					_ = cmd.Process.Signal([]os.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGINT}[try%3])
				})
				err = cmd.Wait()
				timer.Stop()
			} else if err == nil {
				err = cmd.Wait()
			}
			hung := bounded.Err() != nil && ctx.Err() == nil
			cancel()
			m.add("batch calls")
			if hung {
				m.problem("%s: a batch did not end: %s", dir, out.String())
			}
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				break
			}
		}
		m.judgeBatch(dir, tokens)
	}
}

func scriptName(i int) string { return fmt.Sprintf("s%02d.py", i) }

// codeOf is the exit code of a script of a batch.
func codeOf(i int) int { return []int{0, 0, 3}[i%3] }

func writeBatch(dir string) (tokens []string, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "input"), 0o755); err != nil {
		return nil, err
	}
	files := map[string]string{"input/x": "x",
		"task.yaml": "{competition_id: t, task_type: tabular, data_modality: tabular, evaluation_metric: m, metric_direction: maximize, description: d}\n"}
	for i := range batchSize {
		token := "witness-" + rand.Text()
		tokens = append(tokens, token)
		files[scriptName(i)] = fmt.Sprintf("# plain %d %s\n", codeOf(i), token)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// batchLine is what the suite reads of a line of a results file.
type batchLine struct {
	Name     string   `json:"name"`
	Score    *float64 `json:"score"`
	ExitCode int      `json:"exit_code"`
	Status   string   `json:"status"`
}

// judgeBatch compares the last line of each script with what it does.
func (m *mix) judgeBatch(dir string, tokens []string) {
	text, err := os.ReadFile(filepath.Join(dir, "results.jsonl"))
	if err != nil {
		m.problem("%v", err)
		return
	}
	last := map[string]batchLine{}
	for line := range bytes.Lines(text) {
		var b batchLine
		if err := json.Unmarshal(line, &b); err != nil {
			m.problem("%s: %v", dir, err)
			continue
		}
		last[b.Name] = b
	}
	for i := range tokens {
		name := strings.TrimSuffix(scriptName(i), ".py")
		b, found := last[name]
		switch {
		case !found:
			m.problem("%s: %s is lost", dir, name)
		case b.ExitCode != codeOf(i) || b.Score == nil || *b.Score != 0.585:
			m.problem("%s: %s exits with %d, said: %+v", dir, name, codeOf(i), b)
		default:
			m.add("script exact")
		}
	}
}

// collect calls gc and adopt all the time.
func (m *mix) collect(ctx context.Context) {
	calls := [][]string{{"gc"}}
	if m.lab.adopts {
		calls = append(calls, []string{"adopt", "--all"})
	}
	for i := 0; m.until.Err() == nil; i++ {
		args := calls[i%len(calls)]
		bounded, cancel := context.WithTimeout(ctx, runPatience)
		cmd := m.command(bounded, args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Run()
		if bounded.Err() != nil && ctx.Err() == nil {
			m.problem("%s did not end: %s", args[0], said.String())
		}
		cancel()
		m.add(args[0])
		if err != nil {
			// The engine may be away, or the container was just removed by others.
			m.add(fmt.Sprintf("%s failed: %.200s", args[0], plain.ReplaceAll(said.Bytes(), []byte("*"))))
		}
		pauseFor(m.until, time.Second)
	}
}

// trouble kills containers and the engine.
func (m *mix) trouble(ctx context.Context) {
	for i := 0; m.until.Err() == nil; i++ {
		pauseFor(m.until, time.Duration(2+mathrand.IntN(6))*time.Second)
		if i%8 == 7 {
			m.lab.engine.dockerd.signal(syscall.SIGKILL)
			<-m.lab.engine.dockerd.done
			if err := m.lab.engine.startDockerd(ctx, true); err != nil {
				m.problem("%v", err)
				return
			}
			m.add("engine killed")
			continue
		}
		containers, err := m.lab.engine.api.ContainerList(ctx, container.ListOptions{})
		if err != nil || len(containers) == 0 {
			continue
		}
		victim := containers[mathrand.IntN(len(containers))]
		switch i % 3 {
		case 0:
			err = m.lab.engine.api.ContainerKill(ctx, victim.ID, "KILL")
		case 1:
			err = m.lab.engine.api.ContainerKill(ctx, victim.ID, "TERM")
		case 2:
			err = m.lab.engine.api.ContainerRemove(ctx, victim.ID, container.RemoveOptions{Force: true})
		}
		if err == nil {
			m.add("container meddled with")
		}
	}
}

// plain replaces what differs between two messages of a kind.
var plain = regexp.MustCompile(`[0-9a-f]{12,}|[0-9]{8}-[-0-9a-z]+|[0-9]+|\s+`)

// idle waits until the engine has no container of the suite.
func (l *lab) idle(ctx context.Context) error {
	return until(ctx, answerPatience, "the engine to have removed every container", func() bool {
		left, err := l.engine.api.ContainerList(ctx, container.ListOptions{All: true, Filters: ours()})
		return err == nil && len(left) == 0
	})
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// cleaned collects one last time, and lists what is left or not given back.
func (m *mix) cleaned(ctx context.Context) []string {
	if out, err := m.command(ctx, "gc").CombinedOutput(); err != nil {
		m.problem("gc: %v: %s", err, out)
	}
	c := &cell{lab: m.lab, dir: filepath.Join(m.lab.dir, "mix"), id: "none"}
	left := c.left(ctx)
	for _, dir := range m.dirs {
		left = append(left, foreign(dir)...)
	}
	return left
}
