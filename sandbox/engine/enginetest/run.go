package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// atOnce checks that the end was not delayed.
func atOnce(t *testing.T, got observed) { assert.Less(t, got.took, 30*time.Second) }

// observed is the observed behavior of a job.
type observed struct {
	end            engine.End
	ready          wire.Ready
	stdout, stderr string
	took           time.Duration // from Start to the end of Wait
}

// recorder collects a stream, and can wait for a text in it.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
}

// lookFor returns a recorder that can wait for a text.
func lookFor(text string) *recorder { return &recorder{want: text, seen: make(chan struct{})} }

func (r *recorder) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(text)
	if r.want != "" && bytes.Contains(r.text.Bytes(), []byte(r.want)) {
		close(r.seen)
		r.want = ""
	}
	return len(text), nil
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// await waits for the text, at most a minute.
func (r *recorder) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.seen:
	case <-time.After(time.Minute):
		t.Fatalf("%q was not printed, only %q", r.want, r)
	}
}

// patience is the timeout for any end; no working engine reaches it.
const patience = 5 * time.Minute

// wait waits for the end of a job.
func wait(t *testing.T, c engine.Container) engine.End {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	end, err := c.Wait(ctx)
	require.NoError(t, err)
	return end
}

// do runs a job and waits for its end.
func do(t *testing.T, c engine.Container, job spec.Job, stdin io.Reader) observed {
	t.Helper()
	var stdout, stderr recorder
	began := time.Now()
	require.NoError(t, c.Start(t.Context(), job, engine.Streams{Stdin: stdin, Stdout: &stdout, Stderr: &stderr}))
	end := wait(t, c)
	return observed{end: end, ready: c.Ready(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
}

// begin starts a job and waits until its program has printed "ready".
func (s *suite) begin(t *testing.T, c engine.Container, name string) {
	t.Helper()
	stdout := lookFor("ready\n")
	require.NoError(t, c.Start(t.Context(), s.job(t, name), engine.Streams{Stdout: stdout}))
	stdout.await(t)
}

// interrupted calls interrupt while a Wait is blocked, and returns the error of that Wait.
func interrupted(t *testing.T, c engine.Container, interrupt func()) error {
	t.Helper()
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := c.Wait(waiting)
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("Wait returned before the interruption: %v", err)
	case <-time.After(100 * time.Millisecond): // it is blocked by now
	}
	interrupt()
	return <-answer
}

// runs prepares a container, runs one program in it and requires exit code 0.
func (s *suite) runs(t *testing.T, e engine.Engine, class spec.Class, meta engine.Meta, name string) observed {
	t.Helper()
	got := do(t, s.must(t, e, class, meta), s.job(t, name), nil)
	require.True(t, got.end.Reported && got.end.Complete, "%+v", got.end)
	require.Zero(t, got.end.ExitCode, got.stderr)
	require.Zero(t, got.end.Signal, got.stderr)
	return got
}

// job returns the job of a program in helpers.
func (s *suite) job(t *testing.T, name string) spec.Job {
	t.Helper()
	program, ok := helpers[name]
	require.True(t, ok, name)
	return python(name, program.python)
}

// NewScripted returns a fake that runs the functions of the suite's cases.
func NewScripted() *Fake {
	f := NewFake(func(p *Program) int {
		if c := findCase(p.Job.Name); c != nil {
			return c.fake(p)
		}
		return helpers[p.Job.Name].fake(p)
	})
	f.Launch = func(job spec.Job) *engine.LaunchError {
		if c := findCase(job.Name); c != nil {
			if c.Errno != 0 {
				return &engine.LaunchError{Stage: engine.StageExec, Errno: c.Errno}
			}
			return nil
		}
		if job.Name == helperNoDirectory {
			return &engine.LaunchError{Stage: "chdir", Errno: syscall.ENOENT}
		}
		return nil
	}
	f.Preload = scriptedPreload
	return f
}

func findCase(name string) *programCase {
	if i := slices.IndexFunc(cases(), func(c programCase) bool { return c.Name == name }); i >= 0 {
		return &cases()[i]
	}
	return nil
}

// programs runs all cases, each in a container of its own.
func (s *suite) programs(t *testing.T) {
	e := s.connect(t)
	var missing []string
	for _, c := range cases() {
		if s.Scripted && c.fake == nil {
			missing = append(missing, c.Name)
			continue
		}
		if !s.can(c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s.program(t, e, c)
		})
	}
	if len(missing) > 0 {
		t.Logf("without a kernel: %s", strings.Join(missing, ", "))
	}
}

func (s *suite) program(t *testing.T, e engine.Engine, c programCase) {
	class := s.class()
	job := spec.Job{Name: c.Name, Command: c.Argv(), TimeoutSeconds: cmp.Or(c.Timeout, 2*time.Minute).Seconds(), GraceSeconds: c.Grace.Seconds(),
		SoftTimeoutSeconds: c.Soft.Seconds(), SoftSignal: c.SoftSignal, NoFork: c.NoFork, Stdin: c.Stdin, Env: []string{spec.DeadlineEnv + "=0"}}
	class.Cgroup.PIDs = cmp.Or(c.PIDs, class.Cgroup.PIDs)
	if c.class != nil {
		c.class(&class)
	}
	if c.job != nil {
		c.job(&job)
	}
	var stdin io.Reader
	if c.Stdin {
		stdin = strings.NewReader(c.Input)
	}
	container := s.must(t, e, class, s.meta(t))
	stdout, stderr := lookFor("ready\n"), &recorder{}
	streams := engine.Streams{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	manyOut, manyErr := &ends.Repeated{Text: c.Stdout}, &ends.Repeated{Text: c.Stderr}
	if c.Times > 0 {
		streams.Stdout, streams.Stderr = manyOut, manyErr
	}
	began := time.Now()
	require.NoError(t, container.Start(t.Context(), job, streams))
	for i, signal := range c.Signals {
		if i == 0 {
			stdout.await(t)
		}
		require.NoError(t, container.Signal(t.Context(), map[ends.Signal]engine.Signal{ends.Stop: engine.Stop, ends.Kill: engine.Kill}[signal]))
	}
	end := wait(t, container)
	got := observed{end: end, ready: container.Ready(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
	if c.Times > 0 {
		require.Equal(t, []int{c.Times, c.Times}, []int{manyOut.Times(), manyErr.Times()})
		c.Stdout, c.Stderr = "", ""
	}
	c.compare(t, got)
	if c.check != nil {
		c.check(t, got)
	}
}

// compare compares an end with the expected one.
func (c programCase) compare(t *testing.T, got observed) {
	t.Helper()
	end := got.end
	about := fmt.Sprintf("%+v\nstdout %.300q\nstderr %.2000s", end, got.stdout, got.stderr)
	if c.mayDie && !end.Reported {
		unreported(t, end, c.OOM)
		return
	}
	require.True(t, end.Reported && end.Complete && !end.Interrupted, about)
	assert.True(t, ends.Fits(c.Stdout, got.stdout), about)
	assert.True(t, ends.Fits(c.Stderr, got.stderr), about)
	if c.Errno != 0 {
		require.Equal(t, &engine.LaunchError{Stage: engine.StageExec, Errno: c.Errno}, end.Launch, about)
		require.Equal(t, c.Code, end.Launch.ExitCode(), about)
		return
	}
	require.Nil(t, end.Launch, about)
	if c.Forged && end.Signal == 0 { // the engine knows that nobody outside sent a signal
		c.Code, c.Signal = ends.Success, 0
	}
	cause := engine.ByItself
	switch {
	case c.Deadline:
		cause = engine.ByDeadline
	case len(c.Signals) > 0:
		cause = engine.BySignal
	}
	if c.Signal == 0 {
		assert.Equal(t, c.Code, end.ExitCode, about)
	}
	assert.Equal(t, c.Signal, end.Signal, about)
	assert.Equal(t, cause, end.Cause, about)
	assert.Equal(t, c.Asked, end.SoftAfter > 0, about)
	if !c.Forged && len(c.Signals) < 2 { // else it depends on the moment of the last signal
		assert.Equal(t, c.Escalated(), end.Escalated, about)
	}
	assert.Equal(t, c.OOM, end.OOMKilled, about)
	assert.Zero(t, end.ProcessesLeft, about)
	assert.Empty(t, end.Foreign, about)
	assert.NoError(t, end.ForeignErr, about)
	assert.False(t, end.StartedAt.IsZero(), about)
	assert.False(t, end.FinishedAt.Before(end.StartedAt), about)
	assert.LessOrEqual(t, end.Duration, got.took, about)
}

// unreported checks the end of a container whose init was killed.
func unreported(t *testing.T, end engine.End, oom bool) {
	t.Helper()
	assert.False(t, end.Reported || end.Complete || end.Interrupted, "%+v", end)
	assert.Equal(t, oom, end.OOMKilled, "%+v", end)
	assert.Empty(t, end.Foreign)
	assert.NoError(t, end.ForeignErr)
}
