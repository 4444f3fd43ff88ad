package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// newFakeRunner is a runner on a fake engine, with its own state directory. It remembers
// nothing of other tests' engines.
func newFakeRunner(t testing.TB, fake *enginetest.Fake, opts ...Option) *Runner {
	t.Helper()
	fake.Own = ""
	r, err := New(append([]Option{WithEngine(fake), WithStateDir(filepath.Join(t.TempDir(), "state"))}, opts...)...)
	require.NoError(t, err)
	r.users.dir = filepath.Join(t.TempDir(), "uids")
	t.Cleanup(func() { fake.Do(func(f *enginetest.Fake) { require.Empty(t, f.Misuse) }) })
	return r
}

func command(words ...string) Request { return Request{ID: "r1", Image: "debian", Command: words} }

// leftBehind lists what a run must not leave: containers, and, when it was
// refused, records.
func leftBehind(t *testing.T, r *Runner, fake *enginetest.Fake) []string {
	t.Helper()
	left := fake.Left()
	records, err := r.Store().List()
	require.NoError(t, err)
	for _, record := range records {
		left = append(left, "record "+record.ID)
	}
	return left
}

// signals are what the run asked for to end its program.
func signals(fake *enginetest.Fake) (all []engine.Signal) {
	fake.Do(func(f *enginetest.Fake) { all = slices.Clone(f.Signals) })
	return all
}

// end ends what a run that was lost has left.
func end(t *testing.T, fake *enginetest.Fake) {
	t.Helper()
	fake.Restore()
	fake.Do(func(f *enginetest.Fake) { f.Fail.Remove = nil })
	for _, name := range fake.Containers() {
		require.NoError(t, fake.Remove(context.Background(), name))
	}
}

// endsOnTerm is a program that SIGTERM ends.
func endsOnTerm(p *enginetest.Program) int {
	<-p.Term()
	return enginetest.Died(15)
}

// outlasts is a program that ignores SIGTERM.
func outlasts(p *enginetest.Program) int {
	<-p.Kill()
	return 0
}

func TestRunTellsWhatTheProgramDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(p *enginetest.Program) int {
			p.Print("epoch 1\nFinal Validation Performance: 0.75\n")
			p.PrintErr("a note\n")
			time.Sleep(3 * time.Second)
			return 0
		})
		r := newFakeRunner(t, fake)
		var stdout, stderr bytes.Buffer
		req := command("python3", "-c", "pass")
		streams := IO{Stdout: &stdout, Stderr: &stderr}
		req.Labels = map[string]string{"team": "blue"}

		res, err := r.Run(t.Context(), req, streams)
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status)
		require.Equal(t, result.FaultNone, res.Fault)
		require.Equal(t, 0, res.ExitCode)
		require.Equal(t, 0.75, *res.Score)
		require.Equal(t, "epoch 1\nFinal Validation Performance: 0.75\n", res.Stdout)
		require.Equal(t, res.Stdout, stdout.String())
		require.Equal(t, "a note\n", stderr.String())
		require.EqualValues(t, len(res.Stdout), res.StdoutBytes)
		require.Equal(t, 3.0, res.DurationSeconds)
		require.True(t, res.OutputComplete)
		require.Equal(t, []string{"a warning of the engine"}, res.Warnings)
		require.Equal(t, result.Resources{CPUSeconds: 1.5, PeakMemoryBytes: 42 << 20, Source: "fake"}, res.Resources)
		require.Equal(t, "none", res.Enforced.Network)

		require.Empty(t, fake.Left(), "nothing is left when the result is there")
		require.NoError(t, fake.RemoveCtxErr)
		require.Empty(t, signals(fake))
		require.Equal(t, "blue", fake.Labels()["team"])
		require.Equal(t, "true", fake.Labels()[spec.LabelManaged])
		require.Equal(t, owner.This().String(), fake.Labels()[spec.LabelOwner])
		require.Equal(t, "evalbox-r1", fake.Created[0].Meta.Name)

		kept, err := r.Store().Get("r1")
		require.NoError(t, err)
		require.Equal(t, record.Finished, kept.State)
		require.Equal(t, res.Status, kept.Result.Status)
		require.Equal(t, "sha256:0123", kept.Spec.Class.Image.ID)
		require.Equal(t, kept.Spec.Job, fake.Started[0], "what is recorded is what was handed over")
		require.Equal(t, kept.Spec.Class, fake.Created[0].Class)
		text, err := os.ReadFile(kept.StdoutPath())
		require.NoError(t, err)
		require.Equal(t, res.Stdout, string(text))
		require.NoFileExists(t, filepath.Join(kept.Dir, record.ReserveFile))
	})
}

// TestResultIsOnDiskBeforeTheContainerGoes: who dies in between leaves one or the other.
func TestResultIsOnDiskBeforeTheContainerGoes(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	removals := 0
	fake.Hook = func(call, _ string) error {
		if call == "Remove" {
			removals++
			require.FileExists(t, filepath.Join(r.Store().RecordDir("r1"), record.ResultFile))
		}
		return nil
	}
	_, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, 1, removals)
	require.Empty(t, fake.Left())
}

// TestTimeLimitIsKeptByTheContainersInit: nobody else has to ask for the end.
func TestTimeLimitIsKeptByTheContainersInit(t *testing.T) {
	for name, test := range map[string]struct {
		program func(p *enginetest.Program) int
		after   time.Duration
		signal  int
		says    string
	}{
		"ends on SIGTERM":      {endsOnTerm, 10 * time.Second, 15, "The program was stopped at its time limit."},
		"exits 0 on SIGTERM":   {func(p *enginetest.Program) int { <-p.Term(); return 0 }, 10 * time.Second, 0, "The program was stopped at its time limit."},
		"exits 143 on SIGTERM": {func(p *enginetest.Program) int { <-p.Term(); return 143 }, 10 * time.Second, 0, "The program was stopped at its time limit."},
		"ignores SIGTERM": {outlasts, 15 * time.Second, 9,
			"The program was stopped at its time limit. It did not end on SIGTERM and was killed."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					p.Print("Final Validation Performance: 0.5\nstill wor")
					return test.program(p)
				})
				r := newFakeRunner(t, fake)
				req := command("sleep")
				req.Limits.Timeout = 10 * time.Second
				began := time.Now()
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusTimedOut, res.Status)
				require.Equal(t, result.FaultProgram, res.Fault)
				require.True(t, res.TimedOut)
				require.Equal(t, -1, res.ExitCode)
				require.Equal(t, test.signal, res.Signal)
				require.Equal(t, test.says, res.Explanation)
				require.Equal(t, test.after, time.Since(began))
				require.Empty(t, signals(fake))
				require.True(t, strings.HasSuffix(res.Stdout, "still wor"), "partial output is kept")
				require.True(t, res.OutputComplete)
				require.Equal(t, 0.5, *res.Score)
				require.True(t, res.IsError)
				require.Equal(t, result.ErrorReasonTimedOut, res.ErrorReason)
				require.Empty(t, fake.Left())
			})
		})
	}
}

// silentEngine has containers whose end is never reported, until they are ended from
// outside. So does an init that a program has stopped in a way that nobody knows of.
type silentEngine struct {
	*enginetest.Fake
	obeys engine.Signal
}

type silentContainer struct {
	engine.Container
	obeys engine.Signal
}

func (e *silentEngine) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	c, err := e.Fake.Prepare(ctx, class, meta)
	if err != nil {
		return nil, err
	}
	return &silentContainer{c, e.obeys}, nil
}

func (c *silentContainer) Start(ctx context.Context, job spec.Job, streams engine.Streams) error {
	job.TimeoutSeconds = 0
	return c.Container.Start(ctx, job, streams)
}

func (c *silentContainer) Signal(ctx context.Context, how engine.Signal) error {
	if how < c.obeys {
		return nil
	}
	return c.Container.Signal(ctx, how)
}

// TestInitThatDoesNotKeepTheLimitIsEnded: it is asked more and more firmly.
func TestInitThatDoesNotKeepTheLimitIsEnded(t *testing.T) {
	for name, test := range map[string]struct {
		obeys  engine.Signal
		cancel bool
		after  time.Duration
		status result.Status
	}{
		"a kill":                        {engine.Kill, false, 17 * time.Second, result.StatusTimedOut},
		"the end of the container":      {engine.Abort, false, 19 * time.Second, result.StatusTimedOut},
		"canceled, and a kill":          {engine.Kill, true, 9 * time.Second, result.StatusCanceled},
		"canceled, and the container's": {engine.Abort, true, 11 * time.Second, result.StatusCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(outlasts)
				r := newFakeRunner(t, fake)
				r.engine = &silentEngine{fake, test.obeys}
				req := command("sleep")
				req.Limits.Timeout = 10 * time.Second
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel {
					time.AfterFunc(2*time.Second, cancel)
				}
				began := time.Now()
				res, err := r.Run(ctx, req)
				require.NoError(t, err)
				require.Equal(t, test.after, time.Since(began))
				require.Equal(t, test.status, res.Status)
				require.Equal(t, test.obeys == engine.Kill, res.OutputComplete)
				if test.obeys == engine.Abort {
					require.Contains(t, res.Explanation, "It did not end on SIGTERM and was killed.")
				}
				require.Empty(t, fake.Left())
			})
		})
	}
}

func TestCancelYieldsAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(p *enginetest.Program) int { p.Print("half"); return outlasts(p) })
		r := newFakeRunner(t, fake)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		began := time.Now()
		res, err := r.Run(ctx, command("sleep"))
		require.NoError(t, err)
		require.Equal(t, result.StatusCanceled, res.Status)
		require.Equal(t, result.FaultOperator, res.Fault)
		require.Equal(t, "half", res.Stdout)
		require.Equal(t, 7*time.Second, time.Since(began), "2 s, and the grace period")
		require.Equal(t, []engine.Signal{engine.Stop}, signals(fake), "the rest is the init's")
		require.NoError(t, fake.RemoveCtxErr, "cleanup has its own context")
		require.Empty(t, fake.Left())
	})
}

func TestSecondInterruptSkipsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(outlasts)
		r := newFakeRunner(t, fake)
		ctx, cancel := context.WithCancel(t.Context())
		kill := make(chan struct{})
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(1500*time.Millisecond, func() { close(kill) })
		req := command("sleep")
		hooks := Hooks{Kill: kill}
		began := time.Now()
		res, err := r.Run(ctx, req, hooks)
		require.NoError(t, err)
		require.Equal(t, result.StatusCanceled, res.Status)
		require.Equal(t, 1500*time.Millisecond, time.Since(began))
		require.Equal(t, []engine.Signal{engine.Stop, engine.Kill}, signals(fake))
	})
}

// TestKillIsNoted: if this process died now, another one would know who ended the program.
func TestKillIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(outlasts)
		r := newFakeRunner(t, fake)
		kill := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(kill) })
		res, err := r.Run(t.Context(), command("sleep"), Hooks{Kill: kill})
		require.NoError(t, err)
		require.Equal(t, result.StatusCanceled, res.Status)
		note, err := r.Store().Journal(res.ID)
		require.NoError(t, err)
		require.Equal(t, int(outcome.StopCanceled), note.Stop)
	})
}

// TestCancelWhileItStartsIsHeard: from the moment on that the job is handed over, the
// program ends as any other.
func TestCancelWhileItStartsIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(endsOnTerm)
		r := newFakeRunner(t, fake)
		ctx, cancel := context.WithCancel(t.Context())
		req := command("sleep")
		hooks := Hooks{Started: cancel}
		res, err := r.Run(ctx, req, hooks)
		require.NoError(t, err)
		require.Equal(t, result.StatusCanceled, res.Status)
		require.Equal(t, 15, res.Signal)
		require.Equal(t, []engine.Signal{engine.Stop}, signals(fake))
	})
}

func TestCancelBeforeTheStartLeavesNothing(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "while it is prepared": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
				fake.PrepareTakes = 2 * time.Second
				r := newFakeRunner(t, fake)
				ctx, cancel := context.WithCancelCause(t.Context())
				gaveUp := errors.New("gave up")
				if after == 0 {
					cancel(gaveUp)
				} else {
					time.AfterFunc(after, func() { cancel(gaveUp) })
				}
				res, err := r.Run(ctx, command("true"))
				if after == 0 {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.ErrorIs(t, err, outcome.ErrCanceled)
					require.ErrorIs(t, err, gaveUp)
				}
				require.Nil(t, res)
				require.Empty(t, leftBehind(t, r, fake))
			})
		})
	}
}

func TestFailuresBeforeTheStartLeaveNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, prepare := range map[string]func(f *enginetest.Fake){
		"engine away":     func(f *enginetest.Fake) { f.Fail.Info = fmt.Errorf("%w: %w", ErrEngineUnavailable, broken) },
		"image missing":   func(f *enginetest.Fake) { f.Fail.Resolve = fmt.Errorf("%w: %w", images.ErrNotFound, broken) },
		"prepare refused": func(f *enginetest.Fake) { f.Fail.Prepare = broken },
		"not our init":    func(f *enginetest.Fake) { f.Fail.Prepare = fmt.Errorf("%w: %w", engine.ErrProtocol, broken) },
		"its answer is lost": func(f *enginetest.Fake) {
			f.Fail.Prepare, f.PrepareAnyway = fmt.Errorf("%w: %w", ErrEngineUnavailable, broken), true
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
			prepare(fake)
			r := newFakeRunner(t, fake)
			final := filepath.Join(t.TempDir(), "final")
			require.NoError(t, os.Mkdir(final, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(final, "precious"), nil, 0o644))
			req := command("true")
			req.Final = final
			res, err := r.Run(t.Context(), req)
			require.ErrorIs(t, err, broken)
			require.Nil(t, res)
			require.Empty(t, leftBehind(t, r, fake))
			require.FileExists(t, filepath.Join(final, "precious"), "emptied too early")
		})
	}
}

// TestLostAnswerToTheStart loses the engine while it hands the job over: only
// the container itself can tell whether the program runs.
func TestLostAnswerToTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		runs   bool
		status result.Status
	}{"it runs": {true, result.StatusExited}, "it never started": {false, result.StatusStartFailed}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(*enginetest.Program) int { time.Sleep(time.Minute); return 0 })
				away := fmt.Errorf("%w: EOF", ErrEngineUnavailable)
				fake.Fail.Start, fake.StartAnyway = away, test.runs
				fake.WaitErrs = []error{away}
				r := newFakeRunner(t, fake)
				res, err := r.Run(t.Context(), command("train"))
				require.Equal(t, test.runs, err == nil, "%v", err)
				require.Equal(t, test.status.String(), res.Status.String())
				require.True(t, res.OutputComplete, "what was missing was read from the log")
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestStartFailureIsRecorded: the engine cannot start the container, or the container that
// it started takes no job.
func TestStartFailureIsRecorded(t *testing.T) {
	for name, fail := range map[string]func(f *enginetest.Fake, err error){
		"of the container": func(f *enginetest.Fake, err error) { f.Fail.Prepare = err },
		"of the job":       func(f *enginetest.Fake, err error) { f.Fail.Start = err },
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
			failure := fmt.Errorf("%w: OCI runtime create failed", engine.ErrNotStarted)
			fail(fake, failure)
			r := newFakeRunner(t, fake)
			res, err := r.Run(t.Context(), command("true"))
			require.ErrorIs(t, err, failure)
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, result.FaultEnvironment, res.Fault)
			require.Equal(t, -1, res.ExitCode)
			require.Contains(t, res.Explanation, "OCI runtime create failed")
			require.Empty(t, fake.Left())
			record, err := r.Store().Get("r1")
			require.NoError(t, err)
			require.Equal(t, result.StatusStartFailed, record.Result.Status)
		})
	}
}

// TestNobodyWritesToAResult: what speaks in a container whose run is over for us is not heard
// any more when the result is written.
func TestNobodyWritesToAResult(t *testing.T) {
	for name, fail := range map[string]func(f *enginetest.Fake, err error){
		"no job": func(f *enginetest.Fake, err error) { f.Fail.Start, f.StartAnyway = err, true },
		"no end": func(f *enginetest.Fake, err error) { f.WaitErrs = []error{err} },
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					for {
						p.Print("on and on\n")
					}
				})
				fail(fake, fmt.Errorf("%w: it speaks", engine.ErrProtocol))
				fake.Fail.Remove = ErrEngineUnavailable
				_, err := newFakeRunner(t, fake).Run(t.Context(), command("forever"))
				require.ErrorIs(t, err, engine.ErrProtocol)
				fake.Do(func(f *enginetest.Fake) { f.Fail.Remove = nil })
				require.NoError(t, fake.Remove(t.Context(), "evalbox-r1"))
			}
		})
	}
}

// TestProgramThatIsNotExecuted: the init of the container reports why, by errno.
func TestProgramThatIsNotExecuted(t *testing.T) {
	for name, test := range map[string]struct {
		why   engine.LaunchError
		code  int
		fault result.Fault
		says  string
	}{
		"not there":         {engine.LaunchError{Stage: engine.StageExec, Errno: syscall.ENOENT}, 127, result.FaultOperator, "The command is not in the image."},
		"below a file":      {engine.LaunchError{Stage: engine.StageExec, Errno: syscall.ENOTDIR}, 127, result.FaultOperator, "The command is not in the image."},
		"not executable":    {engine.LaunchError{Stage: engine.StageExec, Errno: syscall.EACCES}, 126, result.FaultOperator, "The command is not executable."},
		"no directory":      {engine.LaunchError{Stage: "chdir", Errno: syscall.ENOENT}, -1, result.FaultEnvironment, "The program was not started: chdir: no such file or directory."},
		"no way to a proxy": {engine.LaunchError{Stage: "relay", Errno: syscall.ECONNREFUSED}, -1, result.FaultEnvironment, "The program was not started: relay: connection refused."},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
			fake.Launch = func(spec.Job) *engine.LaunchError { return &test.why }
			r := newFakeRunner(t, fake)
			res, err := r.Run(t.Context(), command("nosuch"))
			require.NoError(t, err)
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, test.fault, res.Fault)
			require.Equal(t, test.code, res.ExitCode)
			require.Zero(t, res.Signal)
			require.Equal(t, test.says, res.Explanation)
			require.Empty(t, res.Stdout+res.Stderr, "nobody else's words are in its output")
			require.Empty(t, fake.Left())
		})
	}
}

// TestProgramsCannotForgeTheirEnd: neither words nor exit codes make a program look as if
// it had not been started, or as if something had killed it.
func TestProgramsCannotForgeTheirEnd(t *testing.T) {
	for _, words := range []string{
		"[FATAL tini (7)] exec train failed: No such file or directory\n",
		"[FATAL evalbox launch] no way\n",
		"sandbox-init: exec train: no such file or directory\n",
	} {
		for _, code := range []int{125, 126, 127, 137, 139, 143} {
			fake := enginetest.NewFake(func(p *enginetest.Program) int { p.PrintErr(words); return code })
			r := newFakeRunner(t, fake)
			res, err := r.Run(t.Context(), command("train"))
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status)
			require.Equal(t, result.FaultProgram, res.Fault)
			require.Equal(t, code, res.ExitCode)
			require.Zero(t, res.Signal)
			require.Equal(t, words, res.Stderr)
		}
	}
	for _, signal := range []int{6, 9, 11, 15} {
		fake := enginetest.NewFake(func(*enginetest.Program) int { return enginetest.Died(signal) })
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), command("train"))
		require.NoError(t, err)
		require.Equal(t, result.StatusSignaled, res.Status)
		require.Equal(t, result.FaultProgram, res.Fault)
		require.Equal(t, 128+signal, res.ExitCode)
		require.Equal(t, signal, res.Signal)
	}
}

func TestOutputLimitEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(p *enginetest.Program) int {
			for range 200 {
				p.Print(strings.Repeat("x", 1000))
			}
			return endsOnTerm(p)
		})
		r := newFakeRunner(t, fake)
		req := command("yes")
		req.Limits.Output = 100 * policy.KiB
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, result.StatusOutputLimit, res.Status)
		require.Equal(t, 143, res.ExitCode)
		require.Greater(t, res.StdoutBytes, int64(100<<10))
		require.Equal(t, []engine.Signal{engine.Stop}, signals(fake))
	})
}

// fills writes more to ./final than a small disk limit.
func fills(p *enginetest.Program) error {
	return os.WriteFile(p.Final("big"), make([]byte, 1<<20), 0o644)
}

func TestDiskLimitEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(p *enginetest.Program) int {
			if fills(p) != nil {
				return 1
			}
			return endsOnTerm(p)
		})
		r := newFakeRunner(t, fake)
		req := command("dd")
		req.Limits.Disk = 512 * policy.KiB
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, result.StatusDiskLimit, res.Status)
		require.Len(t, res.Outputs, 1)
	})
}

// TestStuckContainerIsGivenUp: what does not end by any means is removed, and nobody knows
// what its program did until then, or does.
func TestStuckContainerIsGivenUp(t *testing.T) {
	for name, removeErr := range map[string]error{"it can be removed": nil, "it stays": errors.New("device busy")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					if fills(p) != nil {
						return 1
					}
					return outlasts(p)
				})
				fake.IgnoreKill, fake.Fail.Remove = true, removeErr
				defer end(t, fake)
				r := newFakeRunner(t, fake)
				req := command("sleep")
				req.Limits.Timeout = time.Second
				began := time.Now()
				res, err := r.Run(t.Context(), req)
				require.ErrorIs(t, err, ErrEngineUnavailable)
				require.Equal(t, result.StatusEngineLost.String(), res.Status.String(), res.Explanation)
				require.Equal(t, result.FaultEnvironment, res.Fault)
				require.Equal(t, -1, res.ExitCode)
				require.False(t, res.OutputComplete)
				require.Less(t, time.Since(began), 2*time.Minute)
				require.Equal(t, []engine.Signal{engine.Kill, engine.Abort, engine.Abort}, signals(fake)[:3])
				require.Empty(t, res.Outputs, "the program may still write")
				warnings := strings.Join(res.Warnings, "\n")
				require.Contains(t, warnings, "the program may still run: its outputs were not collected")
				if removeErr == nil {
					require.Empty(t, fake.Left())
					return
				}
				require.Contains(t, warnings, "evalbox-r1 is left behind: device busy")
			})
		})
	}
}

// TestUnknownEndOfAContainerThatStays: it ended without a report as far as the engine says;
// but who cannot remove it does not know that it is over.
func TestUnknownEndOfAContainerThatStays(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if fills(p) != nil {
			return 1
		}
		p.KillInit()
		return 0
	})
	fake.Fail.Remove = errors.New("device busy")
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), command("train"))
	require.ErrorIs(t, err, ErrEngineUnavailable)
	require.ErrorContains(t, err, "device busy")
	require.Equal(t, result.StatusEngineLost, res.Status)
	require.Empty(t, res.Outputs)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "evalbox-r1 is left behind: device busy")
}

func TestEngineThatComesBackIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(p *enginetest.Program) int { time.Sleep(20 * time.Second); return 3 })
		fake.WaitErrs = []error{fmt.Errorf("%w: EOF", ErrEngineUnavailable), fmt.Errorf("%w: EOF", ErrEngineUnavailable)}
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), command("train"))
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status)
		require.Equal(t, 3, res.ExitCode)
		require.True(t, res.OutputComplete, "the engine's log has what the connection did not bring")
		require.Contains(t, res.Warnings, "the connection to the engine was lost for a while: output of that time is from the engine's log")
	})
}

func TestEngineThatStaysAwayIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		fake.Program = func(p *enginetest.Program) int {
			p.Print("so far\n")
			fake.Break()
			return outlasts(p)
		}
		defer end(t, fake)
		r := newFakeRunner(t, fake)
		began := time.Now()
		res, err := r.Run(t.Context(), command("train"))
		require.ErrorIs(t, err, ErrEngineUnavailable)
		require.Equal(t, result.StatusEngineLost, res.Status)
		require.Equal(t, result.FaultEnvironment, res.Fault)
		require.Equal(t, "so far\n", res.Stdout)
		require.Equal(t, -1, res.ExitCode)
		require.Contains(t, strings.Join(res.Warnings, "\n"), "the program may still run: its outputs were not collected")
		require.GreaterOrEqual(t, time.Since(began), engine.ReconnectBudget)
		require.Less(t, time.Since(began), 2*engine.ReconnectBudget)
		require.Equal(t, []string{"container evalbox-r1"}, fake.Left(), "nobody could remove it")
	})
}

// TestLostEndIsKnownLater: an engine that comes back after its run was given up still has the end, and
// the outputs.
func TestLostEndIsKnownLater(t *testing.T) {
	for name, test := range map[string]struct {
		between func(t *testing.T, fake *enginetest.Fake)
		status  result.Status
		code    int
		outputs int
	}{
		"the engine has it": {func(*testing.T, *enginetest.Fake) {}, result.StatusExited, 3, 1},
		"it was removed": {func(t *testing.T, f *enginetest.Fake) {
			t.Helper()
			require.NoError(t, f.Remove(t.Context(), "evalbox-r1"))
		}, result.StatusEngineLost, -1, 0},
		"the engine stays away":   {func(_ *testing.T, f *enginetest.Fake) { f.Break() }, result.StatusEngineLost, -1, 0},
		"another engine is there": {func(_ *testing.T, f *enginetest.Fake) { f.Facts.ID = "another" }, result.StatusEngineLost, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(nil)
				fake.Program = func(p *enginetest.Program) int {
					p.Print("so far\n")
					if err := os.WriteFile(p.Final("model"), []byte("weights"), 0o600); err != nil {
						return 99
					}
					fake.Break()
					time.Sleep(10 * time.Second)
					return 3
				}
				r := newFakeRunner(t, fake)
				res, err := r.Run(t.Context(), command("train"))
				require.ErrorIs(t, err, ErrEngineUnavailable)
				require.Equal(t, result.StatusEngineLost, res.Status)
				require.Empty(t, res.Outputs)
				fake.Restore()
				test.between(t, fake)
				res, err = r.Adopt(t.Context(), "r1")
				require.Equal(t, test.status.String(), res.Status.String(), res.Explanation)
				require.Equal(t, test.code, res.ExitCode)
				require.Len(t, res.Outputs, test.outputs)
				found, loadErr := r.store.Load("r1")
				require.NoError(t, loadErr)
				require.Equal(t, res.Status, found.Result.Status, "it is on disk")
				if test.status == result.StatusExited {
					require.NoError(t, err)
					require.True(t, res.Recovered)
					require.Equal(t, "so far\n", res.Stdout)
					require.Empty(t, fake.Left())
					require.False(t, r.store.IsOpen("r1"))
				}
			})
		})
	}
}

// TestLostRunAndTheNextOne: the next run on the same ./final is the last moment at which a lost run can
// get its outputs. It never gets the outputs of another run.
func TestLostRunAndTheNextOne(t *testing.T) {
	for name, transfer := range map[string]string{"mounted": spec.TransferBind, "copied": spec.TransferCopy} {
		for when, runs := range map[string]bool{"ended": false, "still runs": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fake := enginetest.NewFake(nil)
					fake.Program = func(p *enginetest.Program) int {
						if os.WriteFile(p.Final(p.Job.RunID), []byte(p.Job.RunID), 0o600) != nil {
							return 99
						}
						if p.Job.RunID == "r2" {
							return 0
						}
						fake.Break()
						if runs {
							return outlasts(p)
						}
						return 3
					}
					r := newFakeRunner(t, fake)
					final := filepath.Join(t.TempDir(), "out")
					req := command("train")
					req.Final, req.Transfer, req.Limits.Timeout = final, transfer, 24*time.Hour
					res, err := r.Run(t.Context(), req)
					require.ErrorIs(t, err, ErrEngineUnavailable)
					require.Equal(t, result.StatusEngineLost.String(), res.Status.String())
					fake.Restore()
					req.ID = "r2"
					res, err = r.Run(t.Context(), req)
					require.NoError(t, err)
					require.Len(t, res.Outputs, 1)
					_, err = r.GC(t.Context(), GCOptions{})
					require.NoError(t, err)
					first, err := r.store.Load("r1")
					require.NoError(t, err)
					if runs {
						require.Equal(t, result.StatusEngineLost.String(), first.Result.Status.String())
					} else {
						require.Equal(t, result.StatusExited.String(), first.Result.Status.String())
						require.Len(t, first.Result.Outputs, 1, "%q", first.Result.Warnings)
						require.Equal(t, "r1", first.Result.Outputs[0].Path)
					}
					second, err := os.ReadDir(final)
					require.NoError(t, err)
					require.Len(t, second, 1)
					require.Equal(t, "r2", second[0].Name())
					require.Empty(t, fake.Left())
				})
			})
		}
	}
}

// TestGarbageCollectionOfALostRun: a program that still runs keeps its container.
func TestGarbageCollectionOfALostRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		fake.Program = func(p *enginetest.Program) int {
			fake.Break()
			return outlasts(p)
		}
		defer end(t, fake)
		r := newFakeRunner(t, fake)
		req := command("train")
		req.Limits.Timeout = 24 * time.Hour
		_, err := r.Run(t.Context(), req)
		require.ErrorIs(t, err, ErrEngineUnavailable)
		fake.Restore()
		report, err := r.GC(t.Context(), GCOptions{})
		require.NoError(t, err)
		require.Empty(t, report.Finished)
		require.Empty(t, report.Removed)
		require.Len(t, report.Left, 1)
	})
}

// TestFailedRemovalIsTold: the result of a program that has ended for certain is on disk by
// then, and only the log tells.
func TestFailedRemovalIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		end func(end *engine.End)
		// warned says that the result has a warning.
		warned bool
	}{
		"the program has ended":     {func(*engine.End) {}, false},
		"its processes are not all": {func(end *engine.End) { end.ProcessesLeft = 2 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(p *enginetest.Program) int { p.End(test.end); return 0 })
			fake.Fail.Remove = errors.New("device busy")
			var log bytes.Buffer
			r := newFakeRunner(t, fake, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			res, err := r.Run(t.Context(), command("true"))
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status)
			require.Contains(t, log.String(), "the container is left behind")
			require.Contains(t, log.String(), "device busy")
			warnings := strings.Join(res.Warnings, "\n")
			require.Equal(t, test.warned, strings.Contains(warnings, "evalbox-r1 is left behind: device busy"), warnings)
			require.Equal(t, test.warned, strings.Contains(warnings, "2 processes of the program could not be killed"), warnings)
		})
	}
}

// TestOutputsAreCollectedOnceNothingCanChangeThem: where the end of every process is not
// certain, the container goes first.
func TestOutputsAreCollectedOnceNothingCanChangeThem(t *testing.T) {
	for name, end := range map[string]func(end *engine.End){
		"all is reported":  func(*engine.End) {},
		"something lives":  func(end *engine.End) { end.ProcessesLeft = 1 },
		"nothing reported": nil,
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(p *enginetest.Program) int {
				if end != nil {
					p.End(end)
				}
				return 0
			})
			fake.NoReport = end == nil
			var final string
			fake.Hook = func(call, _ string) error {
				if call == "Remove" && final != "" {
					// The last word of what could not be killed.
					return os.WriteFile(filepath.Join(final, "late"), nil, 0o644)
				}
				return nil
			}
			r := newFakeRunner(t, fake)
			req := command("train")
			hooks := Hooks{Started: func() { final = fake.Sources()[spec.RoleFinal] }}
			res, err := r.Run(t.Context(), req, hooks)
			if end == nil {
				require.ErrorIs(t, err, outcome.ErrInitKilled)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, name != "all is reported", len(res.Outputs) == 1, "%v", res.Outputs)
			require.Empty(t, fake.Left())
		})
	}
}

func TestKeepLeavesTheContainer(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	req := command("true")
	req.Keep = true
	_, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []string{"container evalbox-r1"}, fake.Left())
	require.Equal(t, "true", fake.Labels()[spec.LabelKeep])
	found, err := r.Containers(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.True(t, found[0].Ended, "its init was let go")
}

func TestStdinReachesTheProgram(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		text, _ := io.ReadAll(p.Stdin())
		p.Print(strings.ToUpper(string(text)))
		return 0
	})
	r := newFakeRunner(t, fake)
	req := command("cat")
	streams := IO{Stdin: strings.NewReader("hello")}
	res, err := r.Run(t.Context(), req, streams)
	require.NoError(t, err)
	require.Equal(t, "HELLO", res.Stdout)
}

func TestBrokenLiveWriterDoesNotHoldTheProgramUp(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print(strings.Repeat("line\n", 10_000))
		return 0
	})
	r := newFakeRunner(t, fake)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	req := command("yes")
	streams := IO{Stdout: write}
	res, err := r.Run(t.Context(), req, streams)
	require.NoError(t, err)
	require.EqualValues(t, 50_000, res.StdoutBytes)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "live output")
}

func TestScoreAndTracebackAreFoundInTheDroppedMiddle(t *testing.T) {
	filler := strings.Repeat("filler filler filler\n", 50_000)
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print(filler + "Final Validation Performance: 0.625\n" + filler)
		p.PrintErr(filler + "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'x'\n" + filler)
		return 1
	})
	r := newFakeRunner(t, fake)
	req := command("train")
	req.Limits.CaptureStdout, req.Limits.CaptureStderr = 4*policy.KiB, 4*policy.KiB
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 0.625, *res.Score)
	require.Contains(t, *res.ErrorTraceback, "KeyError: 'x'")
	require.True(t, res.StdoutTruncated)
	require.NotContains(t, res.Stdout, "0.625")
	require.Contains(t, res.Stdout, "bytes dropped")
	require.Less(t, len(res.Stdout), 5<<10)
}

func TestSameIDTwiceIsRefused(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	_, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	_, err = r.Run(t.Context(), command("true"))
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "id", field.Field)
}

func TestPlanOfARunnerChangesNothing(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	spec, err := r.Plan(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, "sha256:0123", spec.Class.Image.ID)
	require.Equal(t, "runc", spec.Class.Runtime)
	require.NoDirExists(t, r.Store().Dir())
	require.Empty(t, fake.Created)
}

func TestUnenforceableLimitIsRefused(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Facts.Missing = []string{"a limit of processes"}
	r := newFakeRunner(t, fake)
	_, err := r.Run(t.Context(), command("true"))
	require.ErrorIs(t, err, ErrUnenforceable)
	require.ErrorContains(t, err, "a limit of processes")
	require.Empty(t, fake.Created)
	require.Empty(t, leftBehind(t, r, fake))
}

func TestSweepTakesWhatTheDeadLeft(t *testing.T) {
	dead := owner.Owner{Boot: owner.BootID(), Namespace: owner.PIDNamespace(), PID: 1 << 30, Start: "1"}.String()
	elsewhere := owner.Owner{Boot: "another", Namespace: "1", PID: 1, Start: "1"}.String()
	container := func(name, by string, more ...string) engine.Found {
		labels := map[string]string{spec.LabelManaged: "true", spec.LabelRun: name, spec.LabelOwner: by}
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
		return engine.Found{ID: name, Name: name, Labels: labels, Running: true}
	}
	past := time.Now().Add(-time.Minute).Format(time.RFC3339)
	future := time.Now().Add(time.Minute).Format(time.RFC3339)
	fake := enginetest.NewFake(nil)
	fake.Listed = []engine.Found{
		container("dead", dead),
		container("alive", owner.This().String(), spec.LabelDeadline, past),
		container("dead-kept", dead, spec.LabelKeep, "true"),
		{ID: "reader", Name: "reader", Labels: map[string]string{ // of package images, and of no run
			spec.LabelManaged: "true", spec.LabelOwner: dead, spec.LabelPart: "reader"}},
		container("elsewhere-late", elsewhere, spec.LabelDeadline, past),
		container("elsewhere-in-time", elsewhere, spec.LabelDeadline, future),
		container("elsewhere-no-deadline", elsewhere),
		container("damaged", "nonsense"),
		{ID: "foreign", Name: "foreign", Labels: map[string]string{spec.LabelOwner: dead}},
	}
	r := newFakeRunner(t, fake)

	report, err := r.GC(t.Context(), GCOptions{DryRun: true})
	require.NoError(t, err)
	require.Len(t, report.Removed, 3)
	require.Empty(t, fake.Removed)

	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"dead", "reader", "elsewhere-late"}, fake.Removed)

	fake.Removed = nil
	_, err = r.GC(t.Context(), GCOptions{Kept: true})
	require.NoError(t, err)
	require.Contains(t, fake.Removed, "dead-kept")
	require.NotContains(t, fake.Removed, "alive")
}

// TestSweepKnowsLabelsOfVersion1: containers that a sandbox of today leaves are removed, whatever
// version their state directory has; those of its living processes stay.
func TestSweepKnowsLabelsOfVersion1(t *testing.T) {
	self, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	namespace, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	here := strings.TrimSpace(string(boot)) + "/" + strings.Trim(namespace, "pid:[]") + "/"
	fields := strings.Fields(string(self[bytes.LastIndexByte(self, ')'):]))

	older := recordtest.OpenCopy(t, "record/testdata/state").Dir()
	require.NoError(t, os.Remove(filepath.Join(older, record.StateFile)))
	fake := enginetest.NewFake(nil)
	for id, labels := range map[string]map[string]string{
		"late":    LabelsOfVersion1("running", "", "", older),
		"dead":    LabelsOfVersion1("lost", "", here+"1073741824/1", older),
		"courier": LabelsOfVersion1("lost", "courier", here+"1073741824/1", older),
		"emptied": LabelsOfVersion1("lost", "", here+"1073741824/1", "/no/such/directory"),
		"lives":   LabelsOfVersion1("finished", "", here+strconv.Itoa(os.Getpid())+"/"+fields[20], older),
	} {
		fake.Listed = append(fake.Listed, engine.Found{ID: id, Name: id, Labels: labels, Running: true})
	}
	r := newFakeRunner(t, fake)
	report, err := r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"late", "dead", "courier", "emptied"}, fake.Removed)
	require.Len(t, report.Left, 1)
	require.Equal(t, "lives", report.Left[0].Container)
}

func TestRecordIsReadableByOthers(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(r.Store().Dir(), "runs", res.ID, record.ResultFile))
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	require.Equal(t, result.SchemaV1, fields["schema"])
}

// TestLateReportOfAnEndIsNoTimeout reports the end of the program long after it,
// as a busy engine does.
func TestLateReportOfAnEndIsNoTimeout(t *testing.T) {
	for _, late := range []time.Duration{3 * time.Second, 20 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(*enginetest.Program) int { time.Sleep(100 * time.Millisecond); return 0 })
				fake.LateBy = late
				r := newFakeRunner(t, fake)
				req := command("train")
				req.Limits.Timeout = time.Second
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusExited.String(), res.Status.String())
				require.Equal(t, 0, res.ExitCode)
				require.False(t, res.TimedOut)
			})
		})
	}
}

// TestConnectionThatNeverEndsIsCut: a stream that stays open after the end of the program
// costs the rest of the output, and not the end.
func TestConnectionThatNeverEndsIsCut(t *testing.T) {
	for name, change := range map[string]func(f *enginetest.Fake){
		"the first": func(f *enginetest.Fake) { f.Stuck = true },
		"the second": func(f *enginetest.Fake) {
			f.WaitErrs, f.StuckAgain = []error{fmt.Errorf("%w: EOF", ErrEngineUnavailable)}, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(*enginetest.Program) int { time.Sleep(5 * time.Second); return 3 })
				change(fake)
				r := newFakeRunner(t, fake)
				req := command("train")
				req.Limits.Timeout = 10 * time.Second
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusExited.String(), res.Status.String(), res.Explanation)
				require.Equal(t, 3, res.ExitCode)
				require.False(t, res.OutputComplete)
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestContainerThatEndsWithoutAReport: its init was killed. Who did that is not always
// known; a better end than the true one is never reported.
func TestContainerThatEndsWithoutAReport(t *testing.T) {
	gone := fmt.Errorf("%w: connection refused", ErrEngineUnavailable)
	killsInit := func(p *enginetest.Program) int { p.KillInit(); return 0 }
	for name, test := range map[string]struct {
		program func(p *enginetest.Program) int
		change  func(f *enginetest.Fake)
		status  result.Status
		fault   result.Fault
		code    int
		says    string
		err     error
	}{
		"by the machine": {killsInit, nil, result.StatusEngineLost, result.FaultEnvironment, -1, "init_killed", outcome.ErrInitKilled},
		"for memory": {killsInit, func(f *enginetest.Fake) { f.OOMKilled = true },
			result.StatusOutOfMemory, result.FaultProgram, 137, "with the whole container", nil},
		"by somebody": {killsInit, func(f *enginetest.Fake) { f.Foreign = []string{"15", "9"} },
			result.StatusEngineLost, result.FaultOperator, -1, "Somebody else killed the container through the engine (15, 9)", outcome.ErrKilled},
		"perhaps by somebody": {killsInit, func(f *enginetest.Fake) { f.ForeignErr = errors.New("no events") },
			result.StatusEngineLost, result.FaultOperator, -1, "Somebody else killed the container", outcome.ErrKilled},
		"by an engine that goes": {killsInit, func(f *enginetest.Fake) { f.Foreign, f.Hook = []string{"9"}, awayAfterTheStart(f, gone) },
			result.StatusEngineLost, result.FaultEnvironment, -1, "The engine stopped", outcome.ErrStoppedBy},
		"by an engine that is gone": {killsInit, func(f *enginetest.Fake) { f.ForeignErr = gone },
			result.StatusEngineLost, result.FaultEnvironment, -1, "The engine stopped", outcome.ErrStoppedBy},
		"while the engine was away": {killsInit, func(f *enginetest.Fake) { f.WaitErrs = []error{gone} },
			result.StatusEngineLost, result.FaultEnvironment, -1, "The engine stopped", outcome.ErrStoppedBy},
		"and is not there any more": {outlasts, func(f *enginetest.Fake) { f.WaitErrs = []error{engine.ErrNoContainer} },
			result.StatusEngineLost, result.FaultOperator, -1, "Somebody else removed", engine.ErrNoContainer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					p.Print("so far\n")
					close(gate)
					return test.program(p)
				})
				fake.WaitGate = gate
				if test.change != nil {
					test.change(fake)
				}
				r := newFakeRunner(t, fake)
				res, err := r.Run(t.Context(), command("train"))
				if test.err == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, test.err)
				}
				require.Equal(t, test.status.String(), res.Status.String(), res.Explanation)
				require.Equal(t, test.fault, res.Fault)
				require.Equal(t, test.code, res.ExitCode)
				require.Contains(t, res.Explanation, test.says)
				require.Equal(t, "so far\n", res.Stdout)
				require.False(t, res.OutputComplete)
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestAnotherEngineInItsPlace: a container that another engine does not have was removed by nobody.
func TestAnotherEngineInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		fake := enginetest.NewFake(nil)
		fake.Program = func(p *enginetest.Program) int {
			fake.Do(func(f *enginetest.Fake) { f.Facts.ID = "another" })
			close(gate)
			return outlasts(p)
		}
		fake.WaitErrs, fake.WaitGate = []error{engine.ErrNoContainer}, gate
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), command("train"))
		require.ErrorIs(t, err, outcome.ErrOtherEngine)
		require.Equal(t, result.StatusEngineLost.String(), res.Status.String())
		require.Equal(t, result.FaultEnvironment, res.Fault)
		require.Contains(t, res.Explanation, "Another engine answers")
		require.True(t, res.ContainerLeft)
		require.True(t, r.store.IsOpen(res.ID), "somebody can remove it once its engine is back")
	})
}

// TestEndWhileTheEngineWasAway: the timer of a controller that could not reach the engine fires long
// after the end of the program, and ends nothing.
func TestEndWhileTheEngineWasAway(t *testing.T) {
	for name, test := range map[string]struct {
		ends    func(p *enginetest.Program) int
		foreign []string
		unknown error
		status  result.Status
		fault   result.Fault
		code    int
	}{
		"by itself":            {func(*enginetest.Program) int { return 3 }, nil, nil, result.StatusExited, result.FaultProgram, 3},
		"at its limit":         {outlasts, nil, nil, result.StatusTimedOut, result.FaultProgram, -1},
		"by SIGTERM":           {stopped, []string{"SIGTERM"}, nil, result.StatusSignaled, result.FaultOperator, 143},
		"... of an old engine": {stopped, nil, errors.New("forgotten"), result.StatusEngineLost, result.FaultEnvironment, -1},
		"by SIGKILL":           {func(p *enginetest.Program) int { p.KillInit(); return 0 }, []string{"SIGKILL"}, nil, result.StatusEngineLost, result.FaultOperator, -1},
		"... of nobody known":  {func(p *enginetest.Program) int { p.KillInit(); return 0 }, nil, errors.New("forgotten"), result.StatusEngineLost, result.FaultEnvironment, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(nil)
				fake.Program = func(p *enginetest.Program) int {
					time.Sleep(time.Second)
					fake.Break()
					time.AfterFunc(50*time.Second, fake.Restore)
					time.Sleep(2 * time.Second)
					return test.ends(p)
				}
				fake.Foreign, fake.ForeignErr = test.foreign, test.unknown
				r := newFakeRunner(t, fake)
				req := command("train")
				req.Limits.Timeout = 15 * time.Second
				res, _ := r.Run(t.Context(), req)
				require.Equal(t, test.status.String(), res.Status.String(), res.Explanation)
				require.Equal(t, test.fault, res.Fault, res.Explanation)
				require.Equal(t, test.code, res.ExitCode)
			})
		})
	}
}

// stopped is the end of a program that got a signal from outside.
func stopped(p *enginetest.Program) int {
	p.End(func(end *engine.End) { end.Cause = engine.BySignal })
	return enginetest.Died(15)
}

// awayAfterTheStart answers nothing but removals and waits once the job runs.
func awayAfterTheStart(f *enginetest.Fake, err error) func(call, name string) error {
	return func(call, _ string) error {
		started := false
		f.Do(func(f *enginetest.Fake) { started = len(f.Started) > 0 })
		if started && call == "Info" {
			return err
		}
		return nil
	}
}

// TestForeignStopIsTold: init tells that somebody outside sent SIGTERM, and the engine
// whether it goes away itself.
func TestForeignStopIsTold(t *testing.T) {
	gone := fmt.Errorf("%w: connection refused", ErrEngineUnavailable)
	for name, test := range map[string]struct {
		result int
		change func(f *enginetest.Fake)
		status result.Status
		fault  result.Fault
		code   int
		signal int
		says   string
		takes  time.Duration
	}{
		"ends by it": {enginetest.Died(15), func(*enginetest.Fake) {}, result.StatusSignaled, result.FaultOperator, 143, 15,
			"Somebody else stopped the program: SIGTERM was sent through the engine, and not by us.", shutdownGrace},
		"exits 0 on it": {0, func(*enginetest.Fake) {}, result.StatusSignaled, result.FaultOperator, 143, 15, "The program then exited with 0.", shutdownGrace},
		"is killed after it": {enginetest.Died(9), func(*enginetest.Fake) {}, result.StatusSignaled, result.FaultOperator, 137, 9,
			"SIGKILL was sent through the engine", shutdownGrace},
		"the engine goes": {enginetest.Died(15), func(f *enginetest.Fake) { f.Hook = awayAfterTheStart(f, gone) },
			result.StatusEngineLost, result.FaultEnvironment, -1, 0, "The engine stopped, and stopped the program with it.", 0},
		"the engine is gone": {enginetest.Died(15), func(f *enginetest.Fake) { f.Foreign, f.ForeignErr = nil, gone },
			result.StatusEngineLost, result.FaultEnvironment, -1, 0, "The engine stopped", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					p.End(func(end *engine.End) { end.Cause = engine.BySignal })
					return test.result
				})
				fake.Foreign = []string{"15"}
				test.change(fake)
				r := newFakeRunner(t, fake)
				began := time.Now()
				res, err := r.Run(t.Context(), command("train"))
				require.Equal(t, test.takes, time.Since(began), "it is waited for an engine that goes")
				require.Equal(t, test.status.String(), res.Status.String(), res.Explanation)
				require.Equal(t, test.fault, res.Fault)
				require.Equal(t, test.code, res.ExitCode)
				require.Equal(t, test.signal, res.Signal)
				require.Contains(t, res.Explanation, test.says)
				require.Equal(t, test.status == result.StatusEngineLost, errors.Is(err, ErrEngineUnavailable), err)
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestKnownEndSurvivesAnEngineThatCannotTellOfOthers: the end was reported by the
// container's own init, and nobody else has to say how it came about.
func TestKnownEndSurvivesAnEngineThatCannotTellOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(p *enginetest.Program) int { p.Print("done"); return 3 })
		fake.ForeignErr = errors.New("no events")
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), command("train"))
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status)
		require.Equal(t, 3, res.ExitCode)
		require.Equal(t, "done", res.Stdout)
	})
}

// TestDiskLimitThatWasNoticedTooLateIsTold ends before the first look.
func TestDiskLimitThatWasNoticedTooLateIsTold(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if fills(p) != nil {
			return 1
		}
		return 0
	})
	r := newFakeRunner(t, fake)
	req := command("dd")
	req.Limits.Disk = 512 * policy.KiB
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "more than its disk limit of 512KiB")
}

// TestCloseWaitsForTheEngine: what it removes is certain then.
func TestCloseWaitsForTheEngine(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Fail.Close = errors.New("still removing")
	r := newFakeRunner(t, fake)
	require.ErrorIs(t, r.Close(), fake.Fail.Close)
}
