//go:build linux

package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/atend"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/recover"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// dieAt runs a request and simulates the death of its controller at a step: its locks are
// free, its connections are broken, and it does nothing any more. It returns another runner
// on the same state directory and engine.
func dieAt(t *testing.T, fake *enginetest.Fake, step string, req Request, opts ...Option) *Runner {
	t.Helper()
	return dieAtWork(t, fake, step, req, Work{}, opts...)
}

func dieAtWork(t *testing.T, fake *enginetest.Fake, step string, req Request, work Work, opts ...Option) *Runner {
	t.Helper()
	first := newFakeRunner(t, fake, opts...)
	dead := make(chan struct{})
	var died atomic.Bool
	first.at = func(at string, a *run) {
		if at != step {
			return
		}
		if died.Swap(true) {
			select {} // what the same process still did in the background died with it
		}
		first.behind.Close() // it looks for runs of dead controllers, and this is about to be one
		a.stopWatch()
		if a.gpus != nil {
			require.NoError(t, a.gpus.Leave())
		}
		_ = a.stage.Close() // the result may have been written, which closes it
		fake.Die()
		var note record.Journal
		path := filepath.Join(a.stage.Dir, record.JournalFile)
		require.NoError(t, record.ReadJSON(path, &note))
		note.Owner = recordtest.DeadOwner().String()
		require.NoError(t, record.WriteJSON(path, note))
		close(dead)
		select {} // for ever
	}
	ended := make(chan error, 1)
	go func() {
		_, err := first.Run(context.Background(), req, work)
		ended <- err
	}()
	select {
	case <-dead:
	case err := <-ended:
		t.Fatalf("the run ended before the step %s: %v", step, err)
	}
	second := newFakeRunner(t, fake, append(opts, WithStateDir(first.store.Dir()))...)
	return second
}

// worker is a program that prints a score and leaves a file. It ends when it is let go.
type worker struct {
	mu    sync.Mutex
	ran   int
	letGo chan struct{}
}

func newWorker() *worker { return &worker{letGo: make(chan struct{})} }

func (w *worker) program(p *enginetest.Program) int {
	w.mu.Lock()
	w.ran++
	w.mu.Unlock()
	p.Print("begin\n")
	p.PrintErr("oops\n")
	select {
	case <-w.letGo:
	case <-p.Term():
		return 3
	}
	_ = os.WriteFile(p.Final("model.bin"), []byte("weights"), 0o600)
	p.Print("Final Validation Performance: 0.75\n")
	return 0
}

func (w *worker) times() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran
}

// TestAdoptAtEveryStep kills the controller at each step of a run. Another one finishes the
// run: nothing is lost, nothing stays behind, and the program does not run twice.
func TestAdoptAtEveryStep(t *testing.T) {
	for i, step := range stepsOfARun {
		t.Run(step, func(t *testing.T) {
			w := newWorker()
			fake := enginetest.NewFake(w.program)
			close(w.letGo)
			out := filepath.Join(t.TempDir(), "out")
			require.NoError(t, os.Mkdir(out, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(out, "mine"), []byte("precious"), 0o600))
			req := command("train")
			req.Final = out
			r := dieAt(t, fake, step, req)

			state, err := r.store.State("r1")
			require.NoError(t, err)
			if step != "written" {
				require.Equal(t, record.Lost, state)
			}
			res, err := r.Adopt(t.Context(), "r1")
			ran := i >= slices.Index(stepsOfARun, "accepted")
			switch {
			case step == "staged":
				require.ErrorIs(t, err, outcome.ErrOwnerDied)
				require.NoDirExists(t, r.store.RecordDir("r1"))
			case !ran:
				require.NoError(t, err)
				require.Equal(t, result.StatusStartFailed, res.Status)
				require.Equal(t, result.FaultOperator, res.Fault)
				require.True(t, res.Recovered)
			default:
				require.NoError(t, err)
				require.Equal(t, result.StatusExited, res.Status, res.Explanation)
				require.Equal(t, result.FaultNone, res.Fault)
				require.Equal(t, step != "written", res.Recovered)
				require.True(t, res.OutputComplete)
				require.Equal(t, "begin\nFinal Validation Performance: 0.75\n", res.Stdout)
				require.Equal(t, "oops\n", res.Stderr)
				require.InDelta(t, 0.75, *res.Score, 0)
				require.Len(t, res.Outputs, 1)
				require.Equal(t, "model.bin", res.Outputs[0].Path)
			}
			if ran {
				require.Equal(t, 1, w.times())
				require.FileExists(t, filepath.Join(out, "model.bin"))
				require.FileExists(t, filepath.Join(out+".before-r1", "mine"), "it was not a run's")
				require.Equal(t, "r1", r.LeftBy(t.Context(), out), "the next run may delete exactly that")
				require.Equal(t, []uint32{uint32(os.Geteuid()), uint32(os.Geteuid())}, treetest.Owners(t, out, filepath.Join(out, "model.bin")))
				onDisk, err := os.ReadFile(filepath.Join(r.store.RecordDir("r1"), record.StdoutFile))
				require.NoError(t, err)
				require.Equal(t, res.Stdout, string(onDisk))
			} else {
				require.Zero(t, w.times())
				require.FileExists(t, filepath.Join(out, "mine"), "it was put back")
				require.NoDirExists(t, out+".before-r1")
			}
			if step != "staged" {
				again, err := r.Adopt(t.Context(), "r1")
				require.NoError(t, err)
				require.Equal(t, res.Status, again.Status, "a second time nothing happens")
				stored, err := r.store.Load("r1")
				require.NoError(t, err)
				require.Equal(t, record.Finished, stored.State)
				require.NoFileExists(t, filepath.Join(stored.Dir, record.ReserveFile))
			}
			require.Empty(t, fake.Left())
			require.Empty(t, fake.Misuse)
			// ./final is free for the next run.
			req.ID = "r2"
			_, err = r.Run(t.Context(), req)
			require.NoError(t, err)
		})
	}
}

// TestAdoptARunningProgram goes on with a program until its end, with its output live.
func TestAdoptARunningProgram(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "accepted", command("train"))
	var live strings.Builder
	r.at = func(step string, _ *run) {
		if step == "accepted" {
			close(w.letGo)
		}
	}
	res, err := r.Adopt(t.Context(), "r1", IO{Stdout: &live})
	require.NoError(t, err)
	require.True(t, res.Recovered && res.OutputComplete)
	require.Equal(t, "begin\nFinal Validation Performance: 0.75\n", live.String())
	require.Equal(t, live.String(), res.Stdout)
	require.Equal(t, 1, w.times())
	require.Empty(t, fake.Left())
}

// TestCancelOfAnAdoptedProgram stops it as in a run.
func TestCancelOfAnAdoptedProgram(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "accepted", command("train"))
	ctx, cancel := context.WithCancel(t.Context())
	r.at = func(step string, _ *run) {
		if step == "accepted" {
			cancel()
		}
	}
	res, err := r.Adopt(ctx, "r1")
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, res.Status)
	require.Equal(t, 3, res.ExitCode)
	require.Empty(t, fake.Left())
}

// TestOneAdopts lets several controllers adopt one run.
func TestOneAdopts(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "accepted", command("train"))
	done := make(chan error, 8)
	for range cap(done) {
		go func() {
			_, err := r.Adopt(t.Context(), "r1")
			done <- err
		}()
	}
	for range cap(done) - 1 {
		require.ErrorIs(t, <-done, record.ErrRunning)
	}
	close(w.letGo)
	require.NoError(t, <-done)
	require.Equal(t, 1, w.times())
}

// TestAdoptLeavesALiveRunAlone checks that the run of a living controller is refused.
func TestAdoptLeavesALiveRunAlone(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := newFakeRunner(t, fake)
	started := make(chan struct{})
	r.at = func(step string, _ *run) {
		if step == "accepted" {
			close(started)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Run(t.Context(), command("train"))
		ended <- err
	}()
	<-started
	_, err := newFakeRunner(t, fake, WithStateDir(r.store.Dir())).Adopt(t.Context(), "r1")
	require.ErrorIs(t, err, record.ErrRunning)
	close(w.letGo)
	require.NoError(t, <-ended)
}

// TestAdoptWithoutItsEngine keeps the run for later.
func TestAdoptWithoutItsEngine(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "accepted", command("train"))
	close(w.letGo)
	fake.Break()
	_, err := r.Adopt(t.Context(), "r1")
	require.ErrorIs(t, err, ErrEngineUnavailable)
	fake.Restore()
	fake.Do(func(f *enginetest.Fake) { f.Facts.ID = "another" })
	_, err = r.Adopt(t.Context(), "r1")
	require.ErrorIs(t, err, recover.ErrElsewhere)
	fake.Do(func(f *enginetest.Fake) { f.Facts.ID = "fake" })
	res, err := r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status)
}

// TestAdoptARemovedContainer has what the dead controller had recorded, and the outputs.
func TestAdoptARemovedContainer(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	close(w.letGo)
	r := dieAt(t, fake, "ended", command("train"))
	require.NoError(t, fake.Remove(t.Context(), "evalbox-r1"))
	res, err := r.Adopt(t.Context(), "r1")
	require.ErrorContains(t, err, "no such container")
	require.Equal(t, result.StatusEngineLost, res.Status)
	require.Equal(t, result.FaultOperator, res.Fault)
	require.False(t, res.OutputComplete)
	require.Contains(t, res.Stdout, "begin\n")
	require.Len(t, res.Outputs, 1)
}

// TestGCFinishesFirst checks that a garbage collection throws away no program that has ended,
// and ends none that runs.
func TestGCFinishesFirst(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "accepted", command("train"))
	report, err := r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Empty(t, report.Removed)
	require.Empty(t, report.Finished)
	require.Len(t, report.Left, 1)
	require.Contains(t, report.Left[0].Reason, "still runs until its time limit")
	require.Equal(t, []string{"evalbox-r1"}, fake.Containers())

	close(w.letGo)
	report, err = r.GC(t.Context(), GCOptions{DryRun: true})
	require.NoError(t, err)
	require.Len(t, report.Finished, 1)
	require.Equal(t, []string{"evalbox-r1"}, fake.Containers())
	report, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, report.Finished, 1)
	require.Equal(t, "r1", report.Finished[0].RunID)
	require.Empty(t, report.Left)
	require.Empty(t, fake.Left())
	res, err := r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.True(t, res.Recovered)
	require.InDelta(t, 0.75, *res.Score, 0)
	require.Equal(t, 1, w.times())
	orphans, err := r.store.Orphans()
	require.NoError(t, err)
	require.Empty(t, orphans)
}

// TestGCAtEveryStep is TestAdoptAtEveryStep for a garbage collection.
func TestGCAtEveryStep(t *testing.T) {
	for i, step := range stepsOfARun {
		t.Run(step, func(t *testing.T) {
			w := newWorker()
			close(w.letGo)
			fake := enginetest.NewFake(w.program)
			r := dieAt(t, fake, step, command("train"))
			_, err := r.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			require.Empty(t, fake.Left())
			orphans, err := r.store.Orphans()
			require.NoError(t, err)
			require.Empty(t, orphans)
			if step == "staged" {
				return
			}
			stored, err := r.store.Load("r1")
			require.NoError(t, err)
			if i >= slices.Index(stepsOfARun, "accepted") {
				require.Equal(t, result.StatusExited, stored.Result.Status)
				require.InDelta(t, 0.75, *stored.Result.Score, 0)
				require.Equal(t, 1, w.times())
			} else {
				require.Equal(t, result.StatusStartFailed, stored.Result.Status)
			}
		})
	}
}

// TestTheNextRunFinishesTheLast lets a run use the ./final of a dead controller's program.
func TestTheNextRunFinishesTheLast(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	req := command("train")
	req.Final = filepath.Join(t.TempDir(), "out")
	r := dieAt(t, fake, "accepted", req)
	req.ID = "r2"
	_, err := r.Run(t.Context(), req)
	require.ErrorIs(t, err, ErrStillRuns)
	require.ErrorContains(t, err, "is still in use: run r1: its own process died, and its program still runs until its time limit")
	close(w.letGo)
	_, err = r.Run(t.Context(), req)
	require.NoError(t, err)
	stored, err := r.store.Load("r1")
	require.NoError(t, err)
	require.True(t, stored.Result.Recovered)
	require.Len(t, stored.Result.Outputs, 1)
	require.Equal(t, 2, w.times(), "once each")
	require.Empty(t, fake.Left())
}

// TestRunsFinishOthersBehindThem checks that a runner finishes what has ended while its own
// program runs.
func TestRunsFinishOthersBehindThem(t *testing.T) {
	w := newWorker()
	close(w.letGo)
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "ended", command("train"))
	fake.Do(func(f *enginetest.Fake) {
		f.Program = func(p *enginetest.Program) int {
			for {
				if state, err := r.store.State("r1"); err != nil || state == record.Finished {
					return 0
				}
				p.Sleep(time.Millisecond)
			}
		}
	})
	req := command("other")
	req.ID = "r2"
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status)
	r.behind.Close()
	stored, err := r.store.Load("r1")
	require.NoError(t, err)
	require.True(t, stored.Result.Recovered)
	require.Empty(t, fake.Left())
}

// TestWorkIsDoneOnce resumes a job whose controller died at each step of its run: the program
// never runs a second time.
func TestWorkIsDoneOnce(t *testing.T) {
	for i, step := range stepsOfARun {
		for _, between := range []string{"at once", "after gc"} {
			t.Run(step+" "+between, func(t *testing.T) {
				w := newWorker()
				close(w.letGo)
				fake := enginetest.NewFake(w.program)
				req := command("train")
				req.Final = filepath.Join(t.TempDir(), "out")
				r := dieAtWork(t, fake, step, req, Work{Key: "job 1"})
				if between == "after gc" {
					_, err := r.GC(t.Context(), GCOptions{})
					require.NoError(t, err)
				}
				other := req
				other.ID, other.Final = "other", ""
				_, err := r.Run(t.Context(), other, Work{Key: "job 2"})
				require.NoError(t, err)
				require.Equal(t, i >= slices.Index(stepsOfARun, "accepted"), w.times() == 2, "another job is other work")
				before := w.times()

				req.ID, req.Labels = "r2", map[string]string{"trial.id": "another"}
				ctx, done := atend.With(t.Context())
				res, err := r.Run(ctx, req, Work{Key: "job 1"})
				require.NoError(t, err)
				require.Equal(t, result.StatusExited, res.Status)
				require.InDelta(t, 0.75, *res.Score, 0)
				require.Len(t, res.Outputs, 1)
				if i >= slices.Index(stepsOfARun, "accepted") {
					require.Equal(t, "r1", res.ID)
					require.Equal(t, before, w.times())
				} else {
					require.Equal(t, "r2", res.ID)
					require.Equal(t, before+1, w.times())
				}
				r.behind.Wait(t.Context()) // it may have finished the run
				require.Empty(t, fake.Left())
				if i >= slices.Index(stepsOfARun, "accepted") {
					require.Len(t, treetest.Everything(t, r.store.WorkDir()), 1, "until the end of the job")
				}
				// A second try of the job is a run of its own, and so is a new job.
				req.ID = "r3"
				res, err = r.Run(ctx, req, Work{Key: "job 1"})
				require.NoError(t, err)
				require.Equal(t, "r3", res.ID)
				done()
				require.Empty(t, treetest.Everything(t, r.store.WorkDir()))
				r.taken.Range(func(id, _ any) bool {
					t.Errorf("%v is not forgotten", id)
					return true
				})
			})
		}
	}
}

// TestWorkWithADamagedNote: a note that names no run is not about the directory of all runs.
func TestWorkWithADamagedNote(t *testing.T) {
	fake := enginetest.NewFake(nil)
	state := filepath.Join(t.TempDir(), "state")
	store, err := record.Open(state)
	require.NoError(t, err)
	r := dieAtWork(t, fake, "ended", command("train"), Work{Key: "job 1", Version: "1"}, WithStateDir(state))
	notes, err := filepath.Glob(filepath.Join(store.WorkDir(), "*.json"))
	require.NoError(t, err)
	require.Len(t, notes, 1)
	require.NoError(t, os.WriteFile(notes[0], []byte(`{"schema": "x"}`), 0o600))
	long := time.Now().Add(-2 * reservePatience)
	require.NoError(t, os.Chtimes(store.RunsDir(), long, long))

	req := command("train")
	req.ID = "r2"
	res, err := r.Run(t.Context(), req, Work{Key: "job 1", Version: "2"})
	require.NoError(t, err)
	r.behind.Close() // it finishes the first run
	require.Equal(t, "r2", res.ID)
	require.DirExists(t, store.RecordDir("r1"))
	require.NoFileExists(t, filepath.Join(store.RunsDir(), record.StopFile))
	require.ErrorIs(t, store.Discard(""), record.ErrNoRecord)
	require.DirExists(t, store.RunsDir())
}

// TestWorkWithAnotherRequest runs a job again with another request, or another version, after its controller
// died at each step. The orphan is ended and has its result, its mounted copies are removed, and the job
// continues: no later call has to clean up.
func TestWorkWithAnotherRequest(t *testing.T) {
	for _, step := range stepsOfARun {
		for name, change := range map[string]func(req *Request, work *Work){
			"time limit":  func(req *Request, _ *Work) { req.Limits.Timeout = time.Hour },
			"script":      func(req *Request, _ *Work) { require.NoError(t, os.WriteFile(req.Script, []byte("print(2)"), 0o600)) },
			"version":     func(_ *Request, work *Work) { work.Version = "2" },
			"other final": func(req *Request, _ *Work) { req.Final = "" },
		} {
			t.Run(step+" "+name, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					if p.Job.RunID == "r1" && slices.Index(stepsOfARun, step) < slices.Index(stepsOfARun, "ended") {
						<-p.Kill() // it would not end before its time limit
					}
					return 0
				})
				state := filepath.Join(t.TempDir(), "state")
				store, err := record.Open(state)
				require.NoError(t, err)
				req := command()
				req.Script, req.Final = filepath.Join(t.TempDir(), "train.py"), filepath.Join(t.TempDir(), "out")
				require.NoError(t, os.WriteFile(req.Script, []byte("print(1)"), 0o600))
				dead, remove, err := store.Temp("grading") // of the process that dies
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, remove()) })
				fill := func() {
					require.NoError(t, os.MkdirAll(filepath.Join(dead, "input"), 0o755))
					require.NoError(t, os.MkdirAll(filepath.Join(dead, "program"), 0o755))
				}
				fill()
				req.Input, req.Mounts = filepath.Join(dead, "input"), []Mount{{Source: filepath.Join(dead, "program"), Target: "/work/program"}}
				r := dieAtWork(t, fake, step, req, Work{Key: "job 1", Version: "1"}, WithStateDir(state))
				require.NoError(t, os.RemoveAll(dead))
				fill() // without the lock of the process
				if step == "accepted" && name == "version" {
					_, err = r.GC(t.Context(), GCOptions{})
					require.NoError(t, err)
					require.DirExists(t, dead, "a program reads it")
				}

				work := Work{Key: "job 1", Version: "1"}
				req.ID, req.Input, req.Mounts = "r2", "", nil
				change(&req, &work)
				res, err := r.Run(t.Context(), req, work)
				require.NoError(t, err)
				require.Equal(t, "r2", res.ID)
				require.Equal(t, result.StatusExited, res.Status)
				orphans, err := store.Orphans()
				require.NoError(t, err)
				require.Empty(t, orphans)
				if first, err := store.Load("r1"); err == nil {
					require.Equal(t, record.Finished, first.State)
				} else {
					require.ErrorIs(t, err, record.ErrNoRecord)
				}
				require.Empty(t, fake.Left())
				require.NoDirExists(t, dead)
			})
		}
	}
}

// TestWorkOfALivingController is left alone.
func TestWorkOfALivingController(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	living := newFakeRunner(t, fake)
	running := make(chan struct{})
	first := make(chan *result.Result, 1)
	go func() {
		res, _ := living.Run(context.Background(), command("train"), Work{Key: "job 1"}, Hooks{Running: func() { close(running) }})
		first <- res
	}()
	<-running
	other := newFakeRunner(t, fake, WithStateDir(living.store.Dir()))
	req := command("other")
	req.ID = "r2"
	second := make(chan *result.Result, 1)
	go func() {
		res, _ := other.Run(context.Background(), req, Work{Key: "job 1"}, Hooks{Running: func() { close(w.letGo) }})
		second <- res
	}()
	require.Equal(t, 0, (<-first).ExitCode)
	require.Equal(t, 0, (<-second).ExitCode)
}

// logFunc calls a function with each record of a log.
type logFunc func(text string)

func (f logFunc) Write(text []byte) (int, error) {
	f(string(text))
	return len(text), nil
}

// TestWorkThatAnotherFinishesFirst has another controller finish the run of a dead one right
// before this one would.
func TestWorkThatAnotherFinishesFirst(t *testing.T) {
	w := newWorker()
	close(w.letGo)
	fake := enginetest.NewFake(w.program)
	var faster *Runner
	var once sync.Once
	log := logFunc(func(text string) {
		if faster != nil && strings.Contains(text, "the run of a dead controller is finished") {
			once.Do(func() {
				_, err := faster.Adopt(t.Context(), "r1")
				require.NoError(t, err)
			})
		}
	})
	r := dieAtWork(t, fake, "ended", command("train"), Work{Key: "job 1"},
		WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	faster = newFakeRunner(t, fake, WithStateDir(r.store.Dir()))
	req := command("train")
	req.ID = "r2"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := r.Run(ctx, req, Work{Key: "job 1"})
	require.NoError(t, err)
	require.Equal(t, "r1", res.ID)
	require.Equal(t, 1, w.times())
}

// TestGPUsBelongToTheContainer checks that the lease of a dead controller lasts until its
// program has ended, and that adoption takes it over.
func TestGPUsBelongToTheContainer(t *testing.T) {
	standInSMI(t, twoT4)
	w := newWorker()
	fake := gpuEngine(w.program)
	r := dieAt(t, fake, "accepted", gpuCommand("2"))
	require.Equal(t, []string{"quarantined", "quarantined"}, gpuStates(t, r))
	next := gpuCommand("1")
	next.ID = "r2"
	_, err := r.Run(t.Context(), next)
	require.ErrorContains(t, err, "its program still runs until its time limit; watch or end it with: sandbox adopt r1")

	adopting := make(chan struct{})
	r.at = func(step string, a *run) {
		if step == "accepted" && a.spec.Job.RunID == "r1" {
			close(adopting)
		}
	}
	adopted := make(chan error, 1)
	go func() {
		_, err := r.Adopt(t.Context(), "r1")
		adopted <- err
	}()
	<-adopting
	require.Equal(t, []string{"held", "held"}, gpuStates(t, r), "by the process that adopted it")
	close(w.letGo)
	require.NoError(t, <-adopted)
	require.Equal(t, []string{"free", "free"}, gpuStates(t, r))
	_, err = r.Run(t.Context(), next)
	require.NoError(t, err)
}

// TestGPUsOfAnEndedOrphan finishes its run before they are lent again.
func TestGPUsOfAnEndedOrphan(t *testing.T) {
	standInSMI(t, twoT4)
	w := newWorker()
	close(w.letGo)
	fake := gpuEngine(w.program)
	r := dieAt(t, fake, "accepted", gpuCommand("2"))
	next := gpuCommand("2")
	next.ID = "r2"
	_, err := r.Run(t.Context(), next)
	require.NoError(t, err)
	r.behind.Wait(t.Context())
	_, err = r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	stored, err := r.store.Load("r1")
	require.NoError(t, err)
	require.True(t, stored.Result.Recovered)
	require.Empty(t, fake.Left())
	require.Equal(t, []string{"free", "free"}, gpuStates(t, r))
}

// TestAnOrphanHasItsOwnTimeLimit checks the setting, and what the result says.
func TestAnOrphanHasItsOwnTimeLimit(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		<-p.Term()
		return 3
	})
	r := dieAt(t, fake, "accepted", command("train"), WithPolicy(policy.Policy{OrphanTimeout: 10 * time.Millisecond}))
	res, err := r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, res.Status)
	require.Equal(t, result.FaultOperator, res.Fault)
	require.Contains(t, res.Explanation, "orphan limit")
}

// TestAdoptARunWithAProxy says that its proxy was lost.
func TestAdoptARunWithAProxy(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	req := command("train")
	req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"example.org"}}
	r := dieAt(t, fake, "accepted", req, WithPolicy(policy.Policy{AllowEgress: policy.API}))
	close(w.letGo)
	res, err := r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode)
	require.Equal(t, result.FaultOperator, res.Fault)
	require.Contains(t, res.Explanation, "Its proxy had died with the controller")
	require.NotNil(t, res.Network)
	require.NoDirExists(t, filepath.Join(r.store.RecordDir("r1"), record.EgressDir))
}

// TestWorkIsForgottenAtItsEnd checks the notes of a job whose run was resumed.
func TestWorkIsForgottenAtItsEnd(t *testing.T) {
	w := newWorker()
	close(w.letGo)
	fake := enginetest.NewFake(w.program)
	r := dieAtWork(t, fake, "ended", command("train"), Work{Key: "job 1"})
	require.Len(t, treetest.Everything(t, r.store.WorkDir()), 1)
	req := command("train")
	req.ID = "r2"
	res, err := r.Run(t.Context(), req, Work{Key: "job 1"})
	require.NoError(t, err)
	require.Equal(t, "r1", res.ID)
	require.Empty(t, treetest.Everything(t, r.store.WorkDir()), "outside of a job: when the run returns")

	r = dieAtWork(t, fake, "noted", command("train"), Work{Key: "job 2"})
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, treetest.Everything(t, r.store.WorkDir()), 1)
	require.NoError(t, r.store.Remove("r1"))
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	notes := treetest.Everything(t, r.store.WorkDir())
	require.Len(t, notes, 1, "its run may be about to begin")
	long := time.Now().Add(-2 * reservePatience)
	require.NoError(t, os.Chtimes(filepath.Join(r.store.WorkDir(), notes[0]), long, long))
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Empty(t, treetest.Everything(t, r.store.WorkDir()), "its record is gone")
}

// TestAdoptACanceledProgram whose controller died right after it had asked for the end: that
// was not somebody else.
func TestAdoptACanceledProgram(t *testing.T) {
	for name, asked := range map[string]bool{"by its controller": true, "by somebody else": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorker()
			fake := enginetest.NewFake(w.program)
			r := dieAt(t, fake, "accepted", command("train"))
			note, err := r.store.Journal("r1")
			require.NoError(t, err)
			if asked {
				note.Stop = int(outcome.StopCanceled)
				require.NoError(t, record.WriteJSON(filepath.Join(r.store.RecordDir("r1"), record.JournalFile), note))
			}
			before, err := fake.Open(t.Context(), engine.Ref(note.Ref), engine.Streams{})
			require.NoError(t, err)
			require.NoError(t, before.Signal(t.Context(), engine.Stop))
			res, err := r.Adopt(t.Context(), "r1")
			require.NoError(t, err)
			require.Equal(t, result.FaultOperator, res.Fault)
			require.Equal(t, asked, res.Status == result.StatusCanceled, res.Explanation)
		})
	}
}

// TestAdoptWithoutAJournal: nobody can know how the program ended. What is left of the run is
// removed, and its outputs come to ./final.
func TestAdoptWithoutAJournal(t *testing.T) {
	for _, step := range stepsOfARun[1:] { // each has a journal
		t.Run(step, func(t *testing.T) {
			w := newWorker()
			fake := enginetest.NewFake(w.program)
			if step != "accepted" {
				close(w.letGo)
			}
			out := filepath.Join(t.TempDir(), "out")
			require.NoError(t, os.Mkdir(out, 0o755))
			req := command("train")
			req.Final = out
			r := dieAt(t, fake, step, req)
			require.NoError(t, os.Remove(filepath.Join(r.store.RecordDir("r1"), record.JournalFile)))
			_, err := r.Adopt(t.Context(), "r1")
			if step != "written" {
				require.ErrorIs(t, err, record.ErrRunning, "this process lives")
			}
			recordtest.BegunBy(t, r.store, "r1", recordtest.DeadOwner())
			var all []Adopted
			require.NoError(t, r.AdoptAll(t.Context(), func(a Adopted) { all = append(all, a) }))
			require.Len(t, all, 1)
			if step == "written" {
				require.NoError(t, all[0].Err)
				require.Equal(t, result.StatusExited, all[0].Result.Status)
			} else {
				require.ErrorIs(t, all[0].Err, outcome.ErrOwnerDied)
				require.ErrorContains(t, all[0].Err, "its journal is gone")
				require.True(t, all[0].Settled())
				require.NoDirExists(t, r.store.RecordDir("r1"))
			}
			require.Empty(t, fake.Left())
			require.Equal(t, []uint32{uint32(os.Geteuid())}, treetest.Owners(t, out))
			all = nil
			require.NoError(t, r.AdoptAll(t.Context(), func(a Adopted) { all = append(all, a) }))
			require.Empty(t, all, "nothing is left to do")
		})
	}
}

// TestEveryoneAtOnce lets two adopters, two garbage collections and the next run with the same ./final meet a dead
// run: one of them finishes it, and nothing is lost, left or done twice.
func TestEveryoneAtOnce(t *testing.T) {
	for _, step := range stepsOfARun[1:] {
		t.Run(step, func(t *testing.T) {
			w := newWorker()
			close(w.letGo)
			fake := enginetest.NewFake(w.program)
			out := filepath.Join(t.TempDir(), "out")
			req := command("train")
			req.Final = out
			r := dieAt(t, fake, step, req)
			var all sync.WaitGroup
			others := []*Runner{newFakeRunner(t, fake, WithStateDir(r.store.Dir())), newFakeRunner(t, fake, WithStateDir(r.store.Dir()))}
			for _, other := range others {
				all.Go(func() {
					if _, err := other.Adopt(t.Context(), "r1"); err != nil && !errors.Is(err, ErrBusy) {
						assert.ErrorIs(t, err, record.ErrRunning)
					}
				})
				all.Go(func() {
					_, err := other.GC(t.Context(), GCOptions{})
					assert.NoError(t, err)
				})
			}
			next := req
			next.ID = "r2"
			all.Go(func() {
				if _, err := r.Run(t.Context(), next); err != nil {
					assert.ErrorIs(t, err, ErrBusy)
				}
			})
			all.Wait()
			r.behind.Wait(t.Context())
			_, err := r.Adopt(t.Context(), "r1")
			require.NoError(t, err)
			found, err := r.store.Get("r1")
			require.NoError(t, err)
			ran := slices.Index(stepsOfARun, step) >= slices.Index(stepsOfARun, "accepted")
			require.Equal(t, ran, found.Result.Status == result.StatusExited, found.Result.Explanation)
			require.Len(t, found.Result.Outputs, map[bool]int{true: 1}[ran])
			next.ID = "r3"
			_, err = r.Run(t.Context(), next)
			require.NoError(t, err)
			require.Equal(t, "r3", r.LeftBy(t.Context(), out))
			aside, err := filepath.Glob(out + ".*")
			require.NoError(t, err)
			require.Empty(t, aside)
			r.behind.Wait(t.Context())
			require.Empty(t, fake.Left())
			orphans, err := r.store.Orphans()
			require.NoError(t, err)
			require.Empty(t, orphans)
		})
	}
}

// TestGPUsAreNotHeldForOutputs: who waits for the GPUs of a dead controller's program does not wait for the
// outputs of this program, which are collected behind the wait.
func TestGPUsAreNotHeldForOutputs(t *testing.T) {
	standInSMI(t, twoT4)
	w := newWorker()
	fake := gpuEngine(w.program)
	r := dieAt(t, fake, "accepted", gpuCommand("2"))
	containers, err := fake.List(t.Context())
	require.NoError(t, err)
	require.Len(t, containers, 1)
	close(w.letGo)
	collecting := make(chan struct{})
	r.at = func(step string, _ *run) {
		if step == "collected" {
			<-collecting
		}
	}
	require.Empty(t, r.endOrphan(t.Context(), containers[0]))
	state, err := r.store.State("r1")
	require.NoError(t, err)
	require.Equal(t, record.Running, state, "it is being finished")
	require.Equal(t, []string{"free", "free"}, gpuStates(t, r))
	close(collecting)
	r.behind.Wait(t.Context())
	found, err := r.store.Get("r1")
	require.NoError(t, err)
	require.Equal(t, record.Finished, found.State)
	require.Equal(t, result.StatusExited, found.Result.Status)
	require.Empty(t, fake.Left())
}

// TestARunOfAnotherEngine stays as it is until its deadline: its program may run there, and use its files.
func TestARunOfAnotherEngine(t *testing.T) {
	w := newWorker()
	close(w.letGo)
	fake := enginetest.NewFake(w.program)
	req := command("train")
	req.Final = filepath.Join(t.TempDir(), "out")
	r := dieAt(t, fake, "accepted", req)
	other := enginetest.NewFake(nil)
	other.Facts.ID = "another"
	elsewhere := newFakeRunner(t, other, WithStateDir(r.store.Dir()))
	gc := func() record.Record {
		_, err := elsewhere.GC(t.Context(), GCOptions{})
		require.NoError(t, err)
		found, err := r.store.Get("r1")
		require.NoError(t, err)
		return found
	}
	require.Equal(t, record.Lost, gc().State)
	entries, err := os.ReadDir(req.Final)
	require.NoError(t, err)
	require.Empty(t, entries)

	journal := filepath.Join(r.store.RecordDir("r1"), record.JournalFile)
	var note record.Journal
	require.NoError(t, record.ReadJSON(journal, &note))
	note.Deadline = time.Now().Add(-time.Second)
	require.NoError(t, record.WriteJSON(journal, note))
	require.Equal(t, record.Lost, gc().State)
	require.FileExists(t, filepath.Join(req.Final, "model.bin"), "nothing can write it any more")
	res, err := r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status, "its engine knows")
	require.InDelta(t, 0.75, *res.Score, 0)
	require.Len(t, res.Outputs, 1)
	require.Empty(t, fake.Left())
}

// TestARunThatBeginsElsewhere has no journal yet. Its controller cannot be seen from here, and lives.
func TestARunThatBeginsElsewhere(t *testing.T) {
	r := newFakeRunner(t, enginetest.NewFake(nil))
	_, err := r.store.Create("r1")
	require.NoError(t, err)
	elsewhere := owner.This()
	elsewhere.Namespace = "another"
	recordtest.BegunBy(t, r.store, "r1", elsewhere)
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	_, err = r.Adopt(t.Context(), "r1")
	require.ErrorIs(t, err, record.ErrRunning)
	old := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(r.store.RecordDir("r1"), old, old))
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.NoDirExists(t, r.store.RecordDir("r1"))
}

// TestAResultThatCannotBeWritten is not lost: the container stays until somebody can write the result.
func TestAResultThatCannotBeWritten(t *testing.T) {
	for _, transfer := range []string{spec.TransferBind, spec.TransferCopy} {
		t.Run(transfer, func(t *testing.T) {
			w := newWorker()
			close(w.letGo)
			fake := enginetest.NewFake(w.program)
			r := newFakeRunner(t, fake)
			inTheWay := filepath.Join(r.store.RecordDir("r1"), record.ResultFile)
			r.at = func(step string, _ *run) {
				if step == "collected" {
					assert.NoError(t, os.Mkdir(inTheWay, 0o700))
				}
			}
			req := finalRequest("r1", filepath.Join(t.TempDir(), "out"))
			req.Transfer = transfer
			res, err := r.Run(t.Context(), req)
			require.ErrorContains(t, err, "cannot be written")
			require.InDelta(t, 0.75, *res.Score, 0)
			require.Equal(t, []string{"evalbox-r1"}, fake.Containers())
			require.NoError(t, os.Remove(inTheWay))
			r.at = nil
			_, err = r.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			found, err := r.store.Get("r1")
			require.NoError(t, err)
			require.Equal(t, record.Finished, found.State)
			require.Equal(t, result.StatusExited, found.Result.Status, found.Result.Explanation)
			require.InDelta(t, 0.75, *found.Result.Score, 0)
			require.Equal(t, "begin\nFinal Validation Performance: 0.75\n", found.Result.Stdout)
			require.Len(t, found.Result.Outputs, 1)
			require.Empty(t, fake.Left())
		})
	}
}
