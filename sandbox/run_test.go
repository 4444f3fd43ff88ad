package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// newFakeRunner is a runner on a fake engine, with its own state folder.
func newFakeRunner(t *testing.T, engine *fakeEngine) *Runner {
	t.Helper()
	r, err := New(WithEngine(engine), WithStateDir(filepath.Join(t.TempDir(), "state")))
	require.NoError(t, err)
	t.Cleanup(func() { require.Empty(t, engine.misuse) })
	return r
}

func command(words ...string) Request { return Request{ID: "r1", Image: "debian", Command: words} }

// leftBehind lists what a run must not leave: containers, and, when it was
// refused, records.
func leftBehind(t *testing.T, r *Runner, engine *fakeEngine) []string {
	t.Helper()
	var left []string
	for name := range engine.containers {
		left = append(left, "container "+name)
	}
	left = append(left, engine.left()...)
	records, err := r.Store().List()
	require.NoError(t, err)
	for _, record := range records {
		left = append(left, "record "+record.ID)
	}
	return left
}

func TestRunTellsWhatTheProgramDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int {
			c.print("epoch 1\nFinal Validation Performance: 0.75\n")
			c.printErr("a note\n")
			time.Sleep(3 * time.Second)
			return 0
		})
		r := newFakeRunner(t, engine)
		var stdout, stderr bytes.Buffer
		req := command("python3", "-c", "pass")
		req.Stdout, req.Stderr = &stdout, &stderr
		req.Labels = map[string]string{"team": "blue"}

		res, err := r.Run(t.Context(), req)
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

		require.Empty(t, engine.containers)
		require.NoError(t, engine.removeCtxErr)
		require.Equal(t, "blue", engine.labels["team"])
		require.Equal(t, "true", engine.labels[LabelManaged])
		require.Equal(t, owner.This().String(), engine.labels[LabelOwner])

		record, err := r.Store().Get("r1")
		require.NoError(t, err)
		require.Equal(t, RecordFinished, record.State)
		require.Equal(t, res.Status, record.Result.Status)
		require.Equal(t, "sha256:0123", record.Spec.Class.Image.ID)
		text, err := os.ReadFile(record.StdoutPath())
		require.NoError(t, err)
		require.Equal(t, res.Stdout, string(text))
		require.NoFileExists(t, filepath.Join(record.Dir, reserveFile))
	})
}

func TestTimeLimitEndsARunInThreeSteps(t *testing.T) {
	for name, test := range map[string]struct {
		program func(c *fakeContainer) int
		after   time.Duration
		signals []string
		signal  int
	}{
		"ends on SIGTERM":    {func(c *fakeContainer) int { <-c.term; return 143 }, 10 * time.Second, []string{"SIGTERM"}, 15},
		"exits 0 on SIGTERM": {func(c *fakeContainer) int { <-c.term; return 0 }, 10 * time.Second, []string{"SIGTERM"}, 0},
		"ignores SIGTERM": {func(c *fakeContainer) int { <-c.kill; return 137 }, 15 * time.Second,
			[]string{"SIGTERM", "SIGKILL"}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := newFakeEngine(func(c *fakeContainer) int {
					c.print("Final Validation Performance: 0.5\nstill wor")
					return test.program(c)
				})
				r := newFakeRunner(t, engine)
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
				require.Equal(t, test.signals, engine.signals)
				require.Equal(t, test.after, time.Since(began))
				require.True(t, strings.HasSuffix(res.Stdout, "still wor"), "partial output is kept")
				require.Equal(t, 0.5, *res.Score)
				require.True(t, res.IsError)
				require.Equal(t, result.ErrorReasonTimedOut, res.ErrorReason)
				require.Empty(t, engine.containers)
			})
		})
	}
}

func TestCancelYieldsAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int { c.print("half"); <-c.kill; return 137 })
		r := newFakeRunner(t, engine)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		began := time.Now()
		res, err := r.Run(ctx, command("sleep"))
		require.NoError(t, err)
		require.Equal(t, result.StatusCanceled, res.Status)
		require.Equal(t, result.FaultOperator, res.Fault)
		require.Equal(t, "half", res.Stdout)
		require.Equal(t, 7*time.Second, time.Since(began), "2 s, and the grace period")
		require.NoError(t, engine.removeCtxErr, "cleanup has its own context")
		require.Empty(t, engine.containers)
	})
}

func TestSecondInterruptSkipsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int { <-c.kill; return 137 })
		r := newFakeRunner(t, engine)
		ctx, cancel := context.WithCancel(t.Context())
		kill := make(chan struct{})
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(1500*time.Millisecond, func() { close(kill) })
		req := command("sleep")
		req.Kill = kill
		began := time.Now()
		res, err := r.Run(ctx, req)
		require.NoError(t, err)
		require.Equal(t, result.StatusCanceled, res.Status)
		require.Equal(t, 1500*time.Millisecond, time.Since(began))
	})
}

// TestCancelRightAfterTheStartIsHeard cancels before the container's init listens
// for signals.
func TestCancelRightAfterTheStartIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int { <-c.kill; return 137 })
		r := newFakeRunner(t, engine)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := r.Run(ctx, command("sleep"))
		require.NoError(t, err)
		require.Equal(t, []string{"SIGTERM", "SIGTERM", "SIGKILL"}, engine.signals)
	})
}

func TestCancelBeforeTheStartLeavesNothing(t *testing.T) {
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	r := newFakeRunner(t, engine)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Run(ctx, command("true"))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, leftBehind(t, r, engine))
}

func TestFailuresBeforeTheStartLeaveNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, prepare := range map[string]func(e *fakeEngine){
		"engine away":    func(e *fakeEngine) { e.infoErr = fmt.Errorf("%w: %w", ErrEngineUnavailable, broken) },
		"image missing":  func(e *fakeEngine) { e.imageErr = fmt.Errorf("%w: %w", images.ErrNotFound, broken) },
		"create refused": func(e *fakeEngine) { e.createErr = broken },
		"attach refused": func(e *fakeEngine) { e.attachErr = broken },
	} {
		t.Run(name, func(t *testing.T) {
			engine := newFakeEngine(func(*fakeContainer) int { return 0 })
			prepare(engine)
			r := newFakeRunner(t, engine)
			final := filepath.Join(t.TempDir(), "final")
			require.NoError(t, os.Mkdir(final, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(final, "precious"), nil, 0o644))
			req := command("true")
			req.Final = final
			res, err := r.Run(t.Context(), req)
			require.ErrorIs(t, err, broken)
			require.Nil(t, res)
			require.Empty(t, leftBehind(t, r, engine))
			require.FileExists(t, filepath.Join(final, "precious"), "emptied too early")
		})
	}
}

// TestLostAnswerToTheStart loses the engine while it starts the program: only
// the container itself can tell whether the program runs.
func TestLostAnswerToTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		runs   bool
		status result.Status
	}{"it runs": {true, result.StatusExited}, "it never started": {false, result.StatusEngineLost}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := newFakeEngine(func(*fakeContainer) int { time.Sleep(time.Minute); return 0 })
				away := fmt.Errorf("%w: EOF", ErrEngineUnavailable)
				engine.startErr, engine.startAnyway = away, test.runs
				engine.waitErrs = []error{away}
				r := newFakeRunner(t, engine)
				res, err := r.Run(t.Context(), command("train"))
				require.Equal(t, test.runs, err == nil, "%v", err)
				require.Equal(t, test.status.String(), res.Status.String())
				require.Empty(t, engine.containers)
			})
		})
	}
}

func TestStartFailureIsRecorded(t *testing.T) {
	engine := newFakeEngine(nil)
	engine.startErr = errors.New("OCI runtime create failed")
	r := newFakeRunner(t, engine)
	res, err := r.Run(t.Context(), command("true"))
	require.ErrorIs(t, err, engine.startErr)
	require.Equal(t, result.StatusStartFailed, res.Status)
	require.Equal(t, -1, res.ExitCode)
	require.Contains(t, res.Explanation, "OCI runtime create failed")
	require.Empty(t, engine.containers)
	record, err := r.Store().Get("r1")
	require.NoError(t, err)
	require.Equal(t, result.StatusStartFailed, record.Result.Status)
}

func TestOutputLimitEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int {
			for {
				select {
				case <-c.term:
					return 143
				default:
					c.print(strings.Repeat("x", 1000))
				}
			}
		})
		r := newFakeRunner(t, engine)
		req := command("yes")
		req.Limits.Output = 100 * policy.KiB
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, result.StatusOutputLimit, res.Status)
		require.Greater(t, res.StdoutBytes, int64(100<<10))
	})
}

func TestDiskLimitEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine *fakeEngine
		engine = newFakeEngine(func(c *fakeContainer) int {
			big := filepath.Join(engine.mounts[RoleFinal], "big")
			if err := os.WriteFile(big, make([]byte, 1<<20), 0o644); err != nil {
				return 1
			}
			<-c.term
			return 143
		})
		r := newFakeRunner(t, engine)
		req := command("dd")
		req.Limits.Disk = 512 * policy.KiB
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, result.StatusDiskLimit, res.Status)
		require.Len(t, res.Outputs, 1)
	})
}

func TestStuckContainerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		engine := newFakeEngine(func(c *fakeContainer) int { <-never; return 0 })
		engine.ignoreKill = true
		r := newFakeRunner(t, engine)
		req := command("sleep")
		req.Limits.Timeout = time.Second
		began := time.Now()
		res, err := r.Run(t.Context(), req)
		require.ErrorIs(t, err, ErrEngineUnavailable)
		require.Equal(t, result.StatusEngineLost, res.Status)
		require.Equal(t, result.FaultEnvironment, res.Fault)
		require.False(t, res.OutputComplete)
		require.Less(t, time.Since(began), 2*time.Minute)
		close(never)
	})
}

func TestEngineThatComesBackIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int { time.Sleep(20 * time.Second); return 3 })
		engine.waitErrs = []error{fmt.Errorf("%w: EOF", ErrEngineUnavailable), fmt.Errorf("%w: EOF", ErrEngineUnavailable)}
		r := newFakeRunner(t, engine)
		res, err := r.Run(t.Context(), command("train"))
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status)
		require.Equal(t, 3, res.ExitCode)
		require.False(t, res.OutputComplete)
	})
}

func TestEngineThatStaysAwayIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine *fakeEngine
		engine = newFakeEngine(func(c *fakeContainer) int {
			c.print("so far\n")
			engine.mu.Lock()
			engine.inspectErr = fmt.Errorf("%w: refused", ErrEngineUnavailable)
			engine.mu.Unlock()
			close(engine.waitGate)
			<-c.closed
			return 0
		})
		engine.waitErrs = []error{fmt.Errorf("%w: EOF", ErrEngineUnavailable)}
		engine.waitGate = make(chan struct{})
		r := newFakeRunner(t, engine)
		res, err := r.Run(t.Context(), command("train"))
		require.ErrorIs(t, err, ErrEngineUnavailable)
		require.Equal(t, result.StatusEngineLost, res.Status)
		require.Equal(t, "so far\n", res.Stdout)
		require.Equal(t, -1, res.ExitCode)
	})
}

func TestFailedRemovalIsTold(t *testing.T) {
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	engine.removeErr = errors.New("device busy")
	r := newFakeRunner(t, engine)
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "evalbox-r1 is left behind: device busy")
}

func TestKeepLeavesTheContainer(t *testing.T) {
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	r := newFakeRunner(t, engine)
	req := command("true")
	req.Keep = true
	_, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, engine.containers, 1)
	require.Equal(t, "true", engine.labels[LabelKeep])
}

func TestStdinReachesTheProgram(t *testing.T) {
	engine := newFakeEngine(func(c *fakeContainer) int {
		text, _ := io.ReadAll(c.stdinR)
		c.print(strings.ToUpper(string(text)))
		return 0
	})
	r := newFakeRunner(t, engine)
	req := command("cat")
	req.Stdin = strings.NewReader("hello")
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "HELLO", res.Stdout)
}

func TestBrokenLiveWriterDoesNotHoldTheProgramUp(t *testing.T) {
	engine := newFakeEngine(func(c *fakeContainer) int {
		c.print(strings.Repeat("line\n", 10_000))
		return 0
	})
	r := newFakeRunner(t, engine)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	req := command("yes")
	req.Stdout = write
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.EqualValues(t, 50_000, res.StdoutBytes)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "live output")
}

func TestScoreAndTracebackAreFoundInTheDroppedMiddle(t *testing.T) {
	filler := strings.Repeat("filler filler filler\n", 50_000)
	engine := newFakeEngine(func(c *fakeContainer) int {
		c.print(filler + "Final Validation Performance: 0.625\n" + filler)
		c.printErr(filler + "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'x'\n" + filler)
		return 1
	})
	r := newFakeRunner(t, engine)
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
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	r := newFakeRunner(t, engine)
	_, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	_, err = r.Run(t.Context(), command("true"))
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "id", field.Field)
}

func TestPlanOfARunnerChangesNothing(t *testing.T) {
	engine := newFakeEngine(nil)
	r := newFakeRunner(t, engine)
	spec, err := r.Plan(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, "sha256:0123", spec.Class.Image.ID)
	require.Equal(t, "runc", spec.Class.Runtime)
	require.NoDirExists(t, r.Store().Dir())
	require.Empty(t, engine.created)
}

func TestUnenforceableLimitIsRefused(t *testing.T) {
	engine := newFakeEngine(nil)
	engine.info.PIDsLimit = false
	r := newFakeRunner(t, engine)
	_, err := r.Run(t.Context(), command("true"))
	require.ErrorIs(t, err, ErrUnenforceable)
	require.Empty(t, leftBehind(t, r, engine))
}

func TestSweepTakesWhatTheDeadLeft(t *testing.T) {
	dead := owner.Owner{Boot: owner.BootID(), Namespace: owner.PIDNamespace(), PID: 1 << 30, Start: "1"}.String()
	elsewhere := owner.Owner{Boot: "another", Namespace: "1", PID: 1, Start: "1"}.String()
	container := func(name, by string, more ...string) Container {
		labels := map[string]string{LabelManaged: "true", LabelRun: name, LabelOwner: by}
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
		return Container{ID: name, Name: name, Labels: labels, Running: true}
	}
	past := time.Now().Add(-time.Minute).Format(time.RFC3339)
	future := time.Now().Add(time.Minute).Format(time.RFC3339)
	engine := newFakeEngine(nil)
	engine.list = []Container{
		container("dead", dead),
		container("alive", owner.This().String(), LabelDeadline, past),
		container("dead-kept", dead, LabelKeep, "true"),
		{ID: "reader", Name: "reader", Labels: map[string]string{ // of package images, and of no run
			LabelManaged: "true", LabelOwner: dead, LabelPart: "reader"}},
		container("elsewhere-late", elsewhere, LabelDeadline, past),
		container("elsewhere-in-time", elsewhere, LabelDeadline, future),
		container("elsewhere-no-deadline", elsewhere),
		container("damaged", "nonsense"),
		{ID: "foreign", Name: "foreign", Labels: map[string]string{LabelOwner: dead}},
	}
	r := newFakeRunner(t, engine)

	report, err := r.Sweep(t.Context(), SweepOptions{DryRun: true})
	require.NoError(t, err)
	require.Len(t, report.Removed, 3)
	require.Empty(t, engine.removed)

	_, err = r.Sweep(t.Context(), SweepOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"dead", "reader", "elsewhere-late"}, engine.removed)

	engine.removed = nil
	_, err = r.Sweep(t.Context(), SweepOptions{Kept: true})
	require.NoError(t, err)
	require.Contains(t, engine.removed, "dead-kept")
	require.NotContains(t, engine.removed, "alive")
}

func TestRecordIsReadableByOthers(t *testing.T) {
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	r := newFakeRunner(t, engine)
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(r.Store().Dir(), "runs", res.ID, resultFile))
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	require.Equal(t, result.SchemaV1, fields["schema"])
}

// TestLateReportOfAnEndIsNoTimeout reports the end of the program long after it,
// as a busy engine does.
func TestLateReportOfAnEndIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(*fakeContainer) int { time.Sleep(100 * time.Millisecond); return 0 })
		engine.lateBy = 3 * time.Second
		r := newFakeRunner(t, engine)
		req := command("train")
		req.Limits.Timeout = time.Second
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, result.StatusExited.String(), res.Status.String())
		require.Equal(t, 0, res.ExitCode)
		require.False(t, res.TimedOut)
	})
}

func TestKnownEndSurvivesAFailedInspect(t *testing.T) {
	engine := newFakeEngine(func(c *fakeContainer) int { c.print("done"); return 3 })
	engine.inspectErr = errors.New("no such container")
	r := newFakeRunner(t, engine)
	res, err := r.Run(t.Context(), command("train"))
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status)
	require.Equal(t, 3, res.ExitCode)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "could not tell the program's times")
}

// TestSecondConnectionThatNeverEndsIsCut reconnects to a stream that stays open
// after the end of the program.
func TestSecondConnectionThatNeverEndsIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(c *fakeContainer) int {
			_ = c.stdout.Close() // the first connection breaks
			_ = c.stderr.Close()
			time.Sleep(5 * time.Second)
			return 0
		})
		engine.waitErrs = []error{fmt.Errorf("%w: EOF", ErrEngineUnavailable)}
		engine.stuckAgain = true
		r := newFakeRunner(t, engine)
		res, err := r.Run(t.Context(), command("train"))
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status)
		require.False(t, res.OutputComplete)
	})
}

// TestContainerThatWasRemovedUnderItsProgram is killed by whoever removed it.
func TestContainerThatWasRemovedUnderItsProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(*fakeContainer) int { return 137 })
		engine.inspectErr = ErrNoContainer
		r := newFakeRunner(t, engine)
		res, err := r.Run(t.Context(), command("train"))
		require.NoError(t, err)
		require.Equal(t, result.StatusSignaled, res.Status)
		require.Equal(t, result.FaultOperator, res.Fault)
	})
}

// TestDiskLimitThatWasNoticedTooLateIsTold ends before the first look.
func TestDiskLimitThatWasNoticedTooLateIsTold(t *testing.T) {
	var engine *fakeEngine
	engine = newFakeEngine(func(*fakeContainer) int {
		if os.WriteFile(filepath.Join(engine.mounts[RoleFinal], "big"), make([]byte, 1<<20), 0o644) != nil {
			return 1
		}
		return 0
	})
	r := newFakeRunner(t, engine)
	req := command("dd")
	req.Limits.Disk = 512 * policy.KiB
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "more than its disk limit of 512KiB")
}
