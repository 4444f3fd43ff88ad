package enginetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// testOrphan kills the process that prepared a container.
func testOrphan(t *testing.T, s *suite) {
	e := s.connect(t)
	waits := func(t *testing.T, class spec.Class) {
		t.Helper()
		meta := s.meta(t)
		ref := s.orphan(t, class, meta, nil)
		soon(t, "it still waits", func() bool {
			found := s.found(t, e, meta.Name)
			return len(found) == 0 || found[0].Ended
		})
		c, err := e.Open(t.Context(), ref, engine.Streams{})
		require.NoError(t, err)
		end := wait(t, c)
		require.True(t, end.NoJob && !end.Reported, "%+v", end)
		require.NoError(t, e.Remove(t.Context(), ref.ID))
	}
	t.Run("that waits", func(t *testing.T) { waits(t, s.class()) })
	t.Run("that waits with its interpreter", func(t *testing.T) {
		class := s.class()
		preloads("json")(&class)
		waits(t, class)
	})
	// takeOver waits for the end of a job that another process started.
	takeOverOf := func(t *testing.T, class spec.Class, job spec.Job, signals ...engine.Signal) (engine.End, string) {
		t.Helper()
		var stdout recorder
		c, err := e.Open(t.Context(), s.orphan(t, class, s.meta(t), &job), engine.Streams{Stdout: &stdout})
		require.NoError(t, err)
		for _, how := range signals {
			require.NoError(t, c.Signal(t.Context(), how))
		}
		end := wait(t, c)
		require.True(t, end.Reported && end.Complete, "%+v", end)
		require.NoError(t, c.Remove(t.Context()))
		return end, stdout.String()
	}
	takeOver := func(t *testing.T, job spec.Job, signals ...engine.Signal) (engine.End, string) {
		t.Helper()
		return takeOverOf(t, s.class(), job, signals...)
	}
	for name, modules := range map[string][]string{"": {"json"}, missingModule: {missingModule}} {
		t.Run("that preloads "+modules[0], func(t *testing.T) {
			class, job := s.class(), s.job(t, "prints")
			preloads(modules...)(&class)
			job.Env = []string{"OF_JOB=1"}
			end, _ := takeOverOf(t, class, job)
			if name == "" {
				require.Empty(t, end.NotPreloaded)
			} else {
				require.Contains(t, end.NotPreloaded, name)
			}
		})
	}
	t.Run("that runs", func(t *testing.T) {
		_, stdout := takeOver(t, s.job(t, "prints"))
		require.True(t, strings.HasPrefix(stdout, "0\n1\n") && strings.HasSuffix(stdout, "19\nend\n"), stdout)
	})
	t.Run("that runs into its time limit", func(t *testing.T) {
		job := s.job(t, "ignores")
		job.TimeoutSeconds, job.GraceSeconds = 5, 0.5
		end, _ := takeOver(t, job)
		require.Equal(t, engine.ByDeadline, end.Cause)
		require.True(t, end.Escalated)
	})
	t.Run("that runs into its orphan limit", func(t *testing.T) {
		job := s.job(t, "ignores")
		job.OrphanLimitSeconds, job.GraceSeconds = 5, 0.5
		end, _ := takeOver(t, job)
		require.Equal(t, engine.ByOrphanLimit, end.Cause)
		require.True(t, end.Escalated)
		require.Less(t, end.Duration, time.Minute)
	})
	t.Run("that finishes before its orphan limit", func(t *testing.T) {
		job := s.job(t, "prints")
		job.OrphanLimitSeconds = 100
		end, _ := takeOver(t, job)
		require.Equal(t, engine.ByItself, end.Cause)
	})
	for name, how := range map[string]engine.Signal{"that is stopped": engine.Stop, "that is killed": engine.Kill} {
		t.Run(name, func(t *testing.T) {
			end, _ := takeOver(t, s.job(t, "sleeps"), how)
			require.Equal(t, engine.BySignal, end.Cause)
		})
	}
}

// testOutage makes the engine unreachable at each call.
func testOutage(t *testing.T, s *suite) {
	if s.Breakable == nil {
		t.Fatal("Options.Breakable is nil; say so in Options.Without")
	}
	s.connect(t) // resolves the image, once
	e, stop, start := s.Breakable(t)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	meta := s.meta(t)
	waiting := s.must(t, e, s.class(), s.meta(t))
	running := s.must(t, e, s.class(), s.meta(t))
	stdout := lookFor("0\n")
	require.NoError(t, running.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: stdout}))
	stdout.await(t)
	lost := interrupted(t, running, func() {
		stop()
		for name, call := range map[string]func(ctx context.Context) error{
			"info":    func(ctx context.Context) error { _, err := e.Info(ctx); return err },
			"resolve": func(ctx context.Context) error { _, err := e.Resolve(ctx, s.Image); return err },
			"prepare": func(ctx context.Context) error { _, err := e.Prepare(ctx, s.class(), meta); return err },
			"open":    func(ctx context.Context) error { _, err := e.Open(ctx, running.Ref(), engine.Streams{}); return err },
			"list":    func(ctx context.Context) error { _, err := e.List(ctx); return err },
			"remove":  func(ctx context.Context) error { return e.Remove(ctx, "evalbox-t"+randomID()) },
			"signal":  func(ctx context.Context) error { return running.Signal(ctx, engine.Stop) },
			"start": func(ctx context.Context) error {
				return waiting.Start(ctx, s.job(t, "nothing"), engine.Streams{})
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := call(ctx)
			cancel()
			if name == "resolve" && !s.can(name) {
				continue
			}
			assert.ErrorIs(t, err, engine.ErrUnavailable, name)
		}
	})
	assert.ErrorIs(t, lost, engine.ErrUnavailable, "wait")
	start()
	end := wait(t, running)
	require.True(t, end.Reported && end.Complete && end.Interrupted, "%+v", end)
	require.Zero(t, end.ExitCode)
	require.Equal(t, 1, strings.Count(stdout.String(), "19\nend\n"), stdout.String())
	require.Equal(t, 21, strings.Count(stdout.String(), "\n"), "every line once: %q", stdout.String())
	require.Empty(t, s.found(t, e, meta.Name))
	never := wait(t, waiting)
	require.True(t, !never.Reported && never.NoJob, "its job never arrived: %+v", never)
	require.NoError(t, e.Remove(t.Context(), waiting.Ref().ID))
	require.NoError(t, e.Remove(t.Context(), running.Ref().ID))

	// A container that Prepare had created when the engine went away can be removed by name.
	for _, after := range []time.Duration{5 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		meta, made := s.meta(t), make(chan error, 1)
		go func() {
			_, err := e.Prepare(t.Context(), s.class(), meta)
			made <- err
		}()
		<-time.After(after)
		stop()
		start()
		if err := <-made; err != nil {
			require.ErrorIs(t, err, engine.ErrUnavailable)
		}
		if !s.Scripted {
			<-time.After(time.Second) // requests in flight arrive, which nothing shows
		}
		require.NoError(t, e.Remove(t.Context(), meta.Name))
		require.Empty(t, s.found(t, e, meta.Name))
	}
}

// orphanEnv is the variable with the container that the test's own binary must prepare.
const orphanEnv = "EVALBOX_ENGINETEST_ORPHAN"

// orphaned describes the container that the test's own binary must prepare.
type orphaned struct {
	Class spec.Class  `json:"class"`
	Meta  engine.Meta `json:"meta"`
	Job   *spec.Job   `json:"job"`
}

// beOrphan prepares a container in another process and waits to be killed.
func (s *suite) beOrphan(t *testing.T, text string) {
	var what orphaned
	require.NoError(t, json.Unmarshal([]byte(text), &what)) //nolint:musttag // read by this very program
	c, err := s.New(t).Prepare(t.Context(), what.Class, what.Meta)
	require.NoError(t, err)
	if what.Job != nil {
		require.NoError(t, c.Start(t.Context(), *what.Job, engine.Streams{Stdout: io.Discard, Stderr: io.Discard}))
	}
	ref, err := json.Marshal(c.Ref())
	require.NoError(t, err)
	_, err = fmt.Fprintf(os.Stdout, "\norphan=%s\n", ref)
	require.NoError(t, err)
	select {}
}

// orphan prepares a container in another process and kills that process.
func (s *suite) orphan(t *testing.T, class spec.Class, meta engine.Meta, job *spec.Job) engine.Ref {
	t.Helper()
	if s.Orphan != nil {
		return s.Orphan(t, class, meta, job)
	}
	text, err := json.Marshal(orphaned{class, meta, job}) //nolint:musttag // read by this very program
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(s.top)+"$") //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), orphanEnv+"="+string(text))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var ref engine.Ref
	var said strings.Builder
	for lines := bufio.NewScanner(stdout); ref.ID == "" && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if text, ok := strings.CutPrefix(lines.Text(), "orphan="); ok {
			require.NoError(t, json.Unmarshal([]byte(text), &ref))
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.NotEmpty(t, ref.ID, said.String())
	return ref
}
