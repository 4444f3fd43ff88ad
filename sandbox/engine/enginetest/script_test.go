package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// scripted prepares a container of a fake.
func scripted(t *testing.T, f *Fake, change func(class *spec.Class, meta *engine.Meta)) engine.Container {
	t.Helper()
	class, meta := spec.Class{User: "64646:64646", Image: spec.Image{ID: "sha256:0123"}}, engine.Meta{Name: "evalbox-r1"}
	if change != nil {
		change(&class, &meta)
	}
	c, err := f.Prepare(t.Context(), class, meta)
	require.NoError(t, err)
	return c
}

func job(timeout, grace float64) spec.Job {
	return spec.Job{Command: []string{"train"}, TimeoutSeconds: timeout, GraceSeconds: grace}
}

func softJob(signal string, orphan float64) func(job *spec.Job) {
	return func(job *spec.Job) {
		job.SoftTimeoutSeconds, job.SoftSignal, job.OrphanLimitSeconds = 8, signal, orphan
	}
}

var errAway = fmt.Errorf("%w: EOF", engine.ErrUnavailable)

func TestFakeEnds(t *testing.T) {
	for name, test := range map[string]struct {
		program func(p *Program) int
		job     func(job *spec.Job)
		after   time.Duration // when a signal is sent, or the controller dies
		alone   bool
		how     engine.Signal
		change  func(f *Fake)
		end     engine.End
	}{
		"exit": {program: func(*Program) int { time.Sleep(time.Second); return 3 },
			end: engine.End{Reported: true, Complete: true, ExitCode: 3, Duration: time.Second}},
		"signal": {program: func(*Program) int { return Died(11) }, end: engine.End{Reported: true, Complete: true, Signal: 11}},
		"deadline": {program: func(p *Program) int { <-p.Term(); return Died(15) },
			end: engine.End{Reported: true, Complete: true, Signal: 15, Cause: engine.ByDeadline, Duration: 10 * time.Second}},
		"deadline ignored": {program: func(p *Program) int { p.Sleep(time.Hour); return 0 },
			end: engine.End{Reported: true, Complete: true, Signal: 9, Cause: engine.ByDeadline, Escalated: true, Duration: 15 * time.Second}},
		"keeps printing": {program: func(p *Program) int {
			for {
				p.Print("x")
				p.Sleep(time.Second)
			}
		}, end: engine.End{Reported: true, Complete: true, Signal: 9, Cause: engine.ByDeadline, Escalated: true, Duration: 15 * time.Second}},
		"soft signal": {program: func(p *Program) int { <-p.Soft(); return 3 }, job: softJob("SIGUSR1", 0),
			end: engine.End{Reported: true, Complete: true, ExitCode: 3, SoftAfter: 8 * time.Second, Duration: 8 * time.Second}},
		"soft signal that is SIGTERM": {program: func(p *Program) int { <-p.Term(); return Died(15) }, job: softJob("SIGTERM", 0),
			end: engine.End{Reported: true, Complete: true, Signal: 15, SoftAfter: 8 * time.Second, Duration: 8 * time.Second}},
		"soft signal ignored": {program: func(p *Program) int { p.Sleep(time.Hour); return 0 }, job: softJob("SIGTERM", 0),
			end: engine.End{Reported: true, Complete: true, Signal: 9, Cause: engine.ByDeadline, Escalated: true, SoftAfter: 8 * time.Second, Duration: 15 * time.Second}},
		"no controller": {program: func(p *Program) int { p.Sleep(time.Hour); return 0 }, job: softJob("SIGTERM", 4), after: time.Second, alone: true,
			end: engine.End{Reported: true, Abandoned: true, Signal: 9, Cause: engine.ByOrphanLimit, Escalated: true, SoftAfter: 3 * time.Second, Duration: 10 * time.Second}},
		"no controller shortly before the deadline": {program: func(p *Program) int { p.Sleep(time.Hour); return 0 }, job: softJob("SIGTERM", 4), after: 7 * time.Second, alone: true,
			end: engine.End{Reported: true, Abandoned: true, Signal: 9, Cause: engine.ByDeadline, Escalated: true, SoftAfter: 8 * time.Second, Duration: 15 * time.Second}},
		"stop": {program: func(p *Program) int { <-p.Term(); return 0 }, after: time.Second,
			end: engine.End{Reported: true, Complete: true, Cause: engine.BySignal, Duration: time.Second}},
		"kill": {program: func(p *Program) int { <-p.Kill(); return 0 }, after: time.Second, how: engine.Kill,
			end: engine.End{Reported: true, Complete: true, Signal: 9, Cause: engine.BySignal, Duration: time.Second}},
		"abort": {program: func(p *Program) int { <-p.Kill(); return 0 }, after: time.Second, how: engine.Abort,
			end: engine.End{ExitCode: 137, Duration: time.Second}},
		"init killed":   {program: func(p *Program) int { p.KillInit(); return 0 }, end: engine.End{ExitCode: 137}},
		"report lost":   {program: func(*Program) int { return 0 }, change: func(f *Fake) { f.NoReport = true }, end: engine.End{ExitCode: 137}},
		"not there":     {change: func(f *Fake) { f.Launch = NotFound }, end: engine.End{Reported: true, Complete: true, Launch: NotFound(spec.Job{})}},
		"changed":       {program: func(p *Program) int { p.End(func(e *engine.End) { e.ProcessesLeft = 2 }); return 0 }, end: engine.End{Reported: true, Complete: true, ProcessesLeft: 2}},
		"out of memory": {program: func(*Program) int { return Died(9) }, change: func(f *Fake) { f.OOMKilled = true }, end: engine.End{Reported: true, Complete: true, Signal: 9, OOMKilled: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFake(test.program)
				f.NoUsage = true
				if test.change != nil {
					test.change(f)
				}
				c := scripted(t, f, nil)
				job := job(10, 5)
				if test.job != nil {
					test.job(&job)
				}
				require.NoError(t, c.Start(t.Context(), job, engine.Streams{Stdout: io.Discard}))
				time.Sleep(test.after)
				switch {
				case test.alone:
					c.Disconnect()
				case test.after > 0:
					require.NoError(t, c.Signal(t.Context(), test.how))
				}
				end, err := c.Wait(t.Context())
				require.NoError(t, err)
				end.StartedAt, end.FinishedAt = time.Time{}, time.Time{}
				require.Equal(t, test.end, end)
				require.NoError(t, c.Remove(t.Context()))
				require.Empty(t, f.Left())
				require.Empty(t, f.Misuse)
			})
		})
	}
}

func TestFakeStreamsAndOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(func(p *Program) int {
			text, _ := io.ReadAll(p.Stdin())
			for i := range 10 {
				p.Print(fmt.Sprint(strings.ToUpper(string(text)), i, "\n"))
				time.Sleep(time.Second)
			}
			p.PrintErr("done\n")
			return 0
		})
		f.WaitErrs = []error{errAway}
		c := scripted(t, f, nil)
		var stdout, stderr bytes.Buffer
		run := job(60, 5)
		run.Stdin = true
		require.NoError(t, c.Start(t.Context(), run, engine.Streams{Stdin: strings.NewReader("a"), Stdout: &stdout, Stderr: &stderr}))
		_, err := c.Wait(t.Context())
		require.ErrorIs(t, err, engine.ErrUnavailable)

		time.AfterFunc(2500*time.Millisecond, f.Break)
		_, err = c.Wait(t.Context())
		require.ErrorIs(t, err, engine.ErrUnavailable)
		_, err = f.Info(t.Context())
		require.ErrorIs(t, err, engine.ErrUnavailable)
		time.Sleep(time.Second)
		f.Restore()
		end, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, end.Complete)
		require.True(t, end.Interrupted)
		require.Equal(t, "A0\nA1\nA2\nA3\nA4\nA5\nA6\nA7\nA8\nA9\n", stdout.String())
		require.Equal(t, "done\n", stderr.String())

		f.Die()
		var again bytes.Buffer
		opened, err := f.Open(t.Context(), c.Ref(), engine.Streams{Stdout: &again})
		require.NoError(t, err)
		end, err = opened.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, end.Complete && end.Reported)
		require.Equal(t, stdout.String(), again.String())
		require.NoError(t, opened.Remove(t.Context()))
		_, err = f.Open(t.Context(), c.Ref(), engine.Streams{})
		require.ErrorIs(t, err, engine.ErrNoContainer)
		require.Empty(t, f.Misuse)
	})
}

func TestFakeStuckStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(func(*Program) int { return 4 })
		f.Stuck = true
		c := scripted(t, f, nil)
		require.NoError(t, c.Start(t.Context(), job(10, 5), engine.Streams{}))
		time.AfterFunc(time.Minute, c.Disconnect)
		began := time.Now()
		end, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(began))
		require.True(t, end.Reported)
		require.False(t, end.Complete)
		require.Equal(t, 4, end.ExitCode)
	})
}

func TestFakeIgnoresKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		f := NewFake(func(*Program) int { <-never; return 0 })
		f.IgnoreKill = true
		c := scripted(t, f, nil)
		require.NoError(t, c.Start(t.Context(), job(1, 1), engine.Streams{}))
		time.Sleep(3 * time.Second)
		for _, how := range []engine.Signal{engine.Stop, engine.Kill, engine.Abort} {
			require.NoError(t, c.Signal(t.Context(), how))
		}
		time.AfterFunc(time.Hour, c.Disconnect)
		_, err := c.Wait(t.Context())
		require.ErrorIs(t, err, engine.ErrUnavailable, "nothing has ended")
		time.AfterFunc(time.Hour, func() { close(never) })
		end, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, end.Reported && end.Interrupted)
		require.False(t, end.Complete)
		require.Equal(t, []engine.Signal{engine.Stop, engine.Kill, engine.Abort}, f.Signals)
	})
}

func TestFakeLostAnswers(t *testing.T) {
	for _, anyway := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := NewFake(func(p *Program) int { p.Sleep(time.Minute); return 0 })
			f.Fail.Start, f.StartAnyway, f.WaitErrs = errAway, anyway, []error{errAway}
			c := scripted(t, f, nil)
			require.ErrorIs(t, c.Start(t.Context(), job(0, 0), engine.Streams{}), engine.ErrUnavailable)
			_, err := c.Wait(t.Context())
			require.ErrorIs(t, err, engine.ErrUnavailable)
			end, err := c.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, anyway, end.Reported)
			require.Equal(t, anyway, !end.StartedAt.IsZero())
			require.Len(t, f.Started, map[bool]int{true: 1}[anyway])

			f.Fail.Prepare, f.PrepareAnyway = errAway, anyway
			_, err = f.Prepare(t.Context(), f.Created[0].Class, engine.Meta{Name: "evalbox-r2"})
			require.ErrorIs(t, err, engine.ErrUnavailable)
			require.Len(t, f.Containers(), map[bool]int{true: 2, false: 1}[anyway])
			require.NoError(t, f.Remove(t.Context(), "evalbox-r2"))
			require.NoError(t, f.Remove(t.Context(), "evalbox-r1"))
			require.Empty(t, f.Left())
			require.Equal(t, []string{"evalbox-r2", "evalbox-r1"}, f.Removed)
		})
	}
}

func TestFakeNotesMisuse(t *testing.T) {
	f := NewFake(nil)
	c := scripted(t, f, func(class *spec.Class, _ *engine.Meta) { class.Image.ID = "" })
	_, err := c.Wait(t.Context())
	require.Error(t, err)
	require.NoError(t, c.Start(t.Context(), job(0, 0), engine.Streams{}))
	require.Error(t, c.Start(t.Context(), job(0, 0), engine.Streams{}))
	require.NoError(t, f.Close())
	_, err = f.Info(t.Context())
	require.Error(t, err)
	require.Len(t, f.Misuse, 4)
}

func TestFakeSeesWhatItIsGiven(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "data.txt")
	require.NoError(t, os.WriteFile(file, []byte("data"), 0o644))
	f := NewFake(func(p *Program) int {
		text, err := os.ReadFile(p.Path("/work/input/data.txt"))
		if err != nil || p.Path("/etc") != "" || p.Env()["A"] != "2" {
			return 1
		}
		p.Print(string(text))
		return 0
	})
	prepare := func(class *spec.Class, meta *engine.Meta) {
		class.Env = []string{"A=1"}
		class.Binds = []spec.Bind{{Role: spec.RoleInput, Target: "/work/input", ReadOnly: true}}
		meta.Sources = engine.Sources{spec.RoleInput: dir}
		meta.Stat, meta.Witness = []string{"/work/input", "/nowhere"}, "/work/input/data.txt"
	}
	c := scripted(t, f, prepare)
	seen := c.Ready()
	require.Len(t, seen.Stats, 2)
	require.Equal(t, identify(dir), seen.Stats["/work/input"])
	require.NotZero(t, seen.Stats["/nowhere"].Errno)
	require.Zero(t, seen.Witness)
	var out bytes.Buffer
	run := job(0, 0)
	run.Env = []string{"A=2"}
	require.NoError(t, c.Start(t.Context(), run, engine.Streams{Stdout: &out}))
	end, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, end.ExitCode)
	require.Equal(t, "data", out.String())

	f.Ready = func(_ spec.Class, _ engine.Meta, ready *wire.Ready) { ready.BootID = "another" }
	class, meta := f.Created[0].Class, f.Created[0].Meta
	meta.Name = "evalbox-r2"
	c, err = f.Prepare(t.Context(), class, meta)
	require.NoError(t, err)
	require.Equal(t, "another", c.Ready().BootID)

	f.Unseen = true
	meta.Name = "evalbox-r3"
	_, err = f.Prepare(t.Context(), class, meta)
	require.ErrorIs(t, err, engine.ErrNoSource)
	source, err := f.CreateVolume(t.Context(), spec.Spec{Job: spec.Job{RunID: "r3"}}, nil)
	require.NoError(t, err)
	meta.Sources = engine.Sources{spec.RoleInput: source}
	_, err = f.Prepare(t.Context(), class, meta)
	require.NoError(t, err)
	require.NoError(t, f.RemoveVolume(t.Context(), "r3"))
}

func TestFakePrepareThatIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(nil)
		f.PrepareTakes = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Prepare(ctx, spec.Class{Image: spec.Image{ID: "x"}}, engine.Meta{Name: "n"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, f.Left())
		f.Hook = func(call, name string) error { return errors.New(call + " " + name) }
		_, err = f.Prepare(t.Context(), spec.Class{}, engine.Meta{Name: "n"})
		require.EqualError(t, err, "Prepare n")
	})
}
