package enginetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// atOnce checks that the end was not delayed.
func atOnce(t *testing.T, got observed) { assert.Less(t, got.took, 30*time.Second) }

// hashes hashes two streams instead of keeping them.
type hashes struct{ stdout, stderr hash.Hash }

func newHashes() hashes { return hashes{sha256.New(), sha256.New()} }

func (h hashes) sums() (stdout, stderr string) {
	return hex.EncodeToString(h.stdout.Sum(nil)), hex.EncodeToString(h.stderr.Sum(nil))
}

func sumOf(text []byte, times int) string {
	h := sha256.New()
	for range times {
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

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
			return c.want.launch
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
	if i := slices.IndexFunc(cases(), func(c programCase) bool { return c.name == name }); i >= 0 {
		return &cases()[i]
	}
	return nil
}

// programs runs all cases, each in a container of its own.
func (s *suite) programs(t *testing.T) {
	e := s.connect(t)
	var missing []string
	for _, c := range cases() {
		if s.Scripted && c.fake == nil && c.want.launch == nil {
			missing = append(missing, c.name)
			continue
		}
		if !s.can(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s.program(t, e, c)
		})
	}
	if len(missing) > 0 {
		t.Logf("without a kernel: %s", strings.Join(missing, ", "))
	}
}

func (s *suite) program(t *testing.T, e engine.Engine, c programCase) {
	class, job := s.class(), python(c.name, c.python)
	if c.class != nil {
		c.class(&class)
	}
	if c.job != nil {
		c.job(&job)
	}
	var stdin io.Reader
	if c.stdin != nil {
		stdin, job.Stdin = c.stdin(), true
	}
	container := s.must(t, e, class, s.meta(t))
	stdout, stderr, hashes := lookFor("ready\n"), &recorder{}, newHashes()
	streams := engine.Streams{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	if c.hashed {
		streams.Stdout, streams.Stderr = hashes.stdout, hashes.stderr
	}
	began := time.Now()
	require.NoError(t, container.Start(t.Context(), job, streams))
	if len(c.signals) > 0 {
		stdout.await(t)
	}
	for _, how := range c.signals {
		require.NoError(t, container.Signal(t.Context(), how))
	}
	end := wait(t, container)
	got := observed{end: end, ready: container.Ready(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
	if c.hashed {
		got.stdout, got.stderr = hashes.sums()
	}
	if c.oneOf != nil {
		c.want = c.oneOf(end)
	}
	c.want.compare(t, got)
	if c.check != nil {
		c.check(t, got)
	}
}

// compare compares the parts of an end that a case specifies.
func (w want) compare(t *testing.T, got observed) {
	t.Helper()
	end := got.end
	about := fmt.Sprintf("%+v\nstdout %.300q\nstderr %.2000s", end, got.stdout, got.stderr)
	if w.unreported {
		require.False(t, end.Reported, about)
		require.False(t, end.Complete, about)
		assert.False(t, end.Interrupted, about)
		assert.Equal(t, w.oom, end.OOMKilled, about)
		assert.Empty(t, end.Foreign, about)
		assert.NoError(t, end.ForeignErr, about)
		return
	}
	require.True(t, end.Reported, about)
	require.True(t, end.Complete, about)
	require.False(t, end.Interrupted, about)
	require.Equal(t, w.launch, end.Launch, about)
	if w.launch != nil {
		require.Empty(t, got.stdout+got.stderr, about)
		return
	}
	if w.signal == 0 {
		assert.Equal(t, w.code, end.ExitCode, about)
	}
	assert.Equal(t, w.signal, end.Signal, about)
	assert.Equal(t, w.cause, end.Cause, about)
	assert.Equal(t, w.soft, end.SoftAfter > 0, about)
	if w.mayEscalate == "" {
		assert.Equal(t, w.escalated, end.Escalated, about)
	}
	assert.Equal(t, w.oom, end.OOMKilled, about)
	assert.Zero(t, end.ProcessesLeft, about)
	assert.Empty(t, end.Foreign, about)
	assert.NoError(t, end.ForeignErr, about)
	assert.False(t, end.StartedAt.IsZero(), about)
	assert.False(t, end.FinishedAt.Before(end.StartedAt), about)
	assert.LessOrEqual(t, end.Duration, got.took, about)
	if w.duration > 0 {
		assert.InDelta(t, w.duration.Seconds(), end.Duration.Seconds(), 0.9, about)
	}
	if w.stdout != "" {
		assert.Equal(t, w.stdout, got.stdout)
	}
	if w.stderr != "" {
		assert.Equal(t, w.stderr, got.stderr)
	}
}
