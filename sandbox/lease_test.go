//go:build unix

package sandbox

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// standInSMI puts a script in the place of nvidia-smi that names n healthy GPUs,
// or what the returned function writes instead.
func standInSMI(t *testing.T, rows string) (change func(script string)) {
	t.Helper()
	dir := t.TempDir()
	change = func(script string) {
		// By name, so that nobody ever finds half a script.
		next := filepath.Join(dir, "next")
		require.NoError(t, os.WriteFile(next, []byte("#!/bin/sh\n"+script), 0o755))
		require.NoError(t, os.Rename(next, filepath.Join(dir, "nvidia-smi")))
	}
	change("echo '" + rows + "'")
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return change
}

const twoT4 = "0, GPU-0, Tesla T4, 15360, 3, 0, [N/A]\n1, GPU-1, Tesla T4, 15360, 3, 0, [N/A]"

func gpuEngine(program func(p *enginetest.Program) int) *enginetest.Fake {
	fake := enginetest.NewFake(program)
	fake.Facts.ID = "engine-1"
	fake.Facts.Host.GPUs = spec.HostGPUs{NVIDIA: true}
	return fake
}

func gpuCommand(gpus string) Request {
	req := command("nvidia-smi")
	req.GPUs = gpus
	return req
}

func gpuStates(t *testing.T, r *Runner) []string {
	t.Helper()
	report, err := r.GPUs(t.Context())
	require.NoError(t, err)
	var states []string
	for _, g := range report.GPUs {
		states = append(states, g.State)
	}
	return states
}

func TestRunLeasesGPUs(t *testing.T) {
	standInSMI(t, twoT4)
	var r *Runner
	fake := gpuEngine(nil)
	fake.Program = func(*enginetest.Program) int {
		report, err := r.GPUs(context.Background())
		if err != nil || len(report.GPUs) != 2 || report.GPUs[0].State != gpu.StateHeld || report.GPUs[0].Holders[0].RunID != "r1" {
			return 3
		}
		return 0
	}
	r = newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), gpuCommand("1"))
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, []string{"GPU-0"}, res.Enforced.GPUs, "by the name that lasts")
	require.Equal(t, "nvidia", res.Enforced.GPUDriver)
	require.False(t, res.Enforced.GPUsShared)
	require.Equal(t, []string{"a warning of the engine"}, res.Warnings)
	plan := fake.Created[0]
	require.Equal(t, spec.GPURequest{Driver: "nvidia", IDs: []string{"GPU-0"}}, plan.Class.GPUs)
	require.Contains(t, plan.Class.Env, "CUDA_VISIBLE_DEVICES=0")
	record, err := r.Store().Get("r1")
	require.NoError(t, err)
	require.Equal(t, plan.Class.GPUs, record.Spec.Class.GPUs)
	require.Equal(t, []string{"free", "free"}, gpuStates(t, r))
}

// TestGPUsAreRefusedBeforeCreate: what is missing is told before anything is made.
func TestGPUsAreRefusedBeforeCreate(t *testing.T) {
	for name, test := range map[string]struct {
		smi    string
		change func(r *Request, f *enginetest.Fake)
		field  string
		rule   string
	}{
		"no engine for it":   {twoT4, func(_ *Request, f *enginetest.Fake) { f.Facts.Host.GPUs = spec.HostGPUs{} }, "gpus", "neither a runtime nvidia nor CDI"},
		"no CDI":             {twoT4, func(r *Request, _ *enginetest.Fake) { r.GPUDriver = "cdi" }, "gpu_driver", "API 1.44"},
		"more than there":    {twoT4, func(r *Request, _ *enginetest.Fake) { r.GPUs = "3" }, "gpus", "3 asked for, 2 there"},
		"not there":          {twoT4, func(r *Request, _ *enginetest.Fake) { r.GPUs = "device=7" }, "gpus", "GPU 7 does not exist; there are 0-1"},
		"no GPU":             {"No devices were found", func(*Request, *enginetest.Fake) {}, "gpus", "No devices were found"},
		"driver trouble":     {"Failed to initialize NVML: Unknown Error", func(*Request, *enginetest.Fake) {}, "gpus", "Failed to initialize NVML"},
		"a sick one":         {"0, GPU-0, Tesla T4, 15360, 3, 7, [N/A]", func(*Request, *enginetest.Fake) {}, "gpus", "7 uncorrectable memory errors"},
		"the engine is away": {twoT4, func(r *Request, f *enginetest.Fake) { f.Facts.Host.GPUs.NVIDIA = false }, "gpus", "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			standInSMI(t, test.smi)
			fake := gpuEngine(nil)
			r := newFakeRunner(t, fake)
			req := gpuCommand("1")
			test.change(&req, fake)
			_, err := r.Run(t.Context(), req)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, test.field, field.Field)
			require.Contains(t, field.Rule, test.rule)
			require.Empty(t, leftBehind(t, r, fake))
			require.Empty(t, fake.Created)
			_, planErr := r.Plan(t.Context(), req)
			require.EqualError(t, planErr, err.Error(), "a dry run says the same")
		})
	}
	t.Run("no nvidia-smi", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := newFakeRunner(t, gpuEngine(nil)).Run(t.Context(), gpuCommand("1"))
		require.ErrorContains(t, err, "nvidia-smi not found")
	})
}

// TestGPUsAreGivenBack on every way out.
func TestGPUsAreGivenBack(t *testing.T) {
	standInSMI(t, twoT4)
	trouble := errors.New("trouble")
	for name, change := range map[string]func(f *enginetest.Fake, r *Request){
		"ends":           func(*enginetest.Fake, *Request) {},
		"prepare fails":  func(f *enginetest.Fake, _ *Request) { f.Fail.Prepare = trouble },
		"no container":   func(f *enginetest.Fake, _ *Request) { f.Fail.Prepare = engine.ErrNotStarted },
		"start fails":    func(f *enginetest.Fake, _ *Request) { f.Fail.Start = trouble },
		"name is taken":  func(f *enginetest.Fake, _ *Request) { f.Fail.Prepare = ErrNameTaken },
		"ID is recorded": func(_ *enginetest.Fake, r *Request) { r.ID = "taken" },
		"final is kept":  func(_ *enginetest.Fake, r *Request) { r.Keep = true },
	} {
		t.Run(name, func(t *testing.T) {
			fake := gpuEngine(func(*enginetest.Program) int { return 0 })
			r := newFakeRunner(t, fake)
			_, err := r.Run(t.Context(), Request{ID: "taken", Image: "debian", Command: []string{"true"}})
			require.NoError(t, err)
			req := gpuCommand("2")
			change(fake, &req)
			_, err = r.Run(t.Context(), req)
			if name != "ends" && name != "final is kept" {
				require.Error(t, err)
			}
			require.Equal(t, []string{"free", "free"}, gpuStates(t, r))
		})
	}
}

// TestGPUsOfAContainerThatStays are not handed out before its program is gone.
func TestGPUsOfAContainerThatStays(t *testing.T) {
	standInSMI(t, twoT4)
	fake := gpuEngine(func(p *enginetest.Program) int {
		if p.Job.RunID == "r1" {
			return outlasts(p)
		}
		return 0
	})
	r := newFakeRunner(t, fake)
	fake.Fail.Remove, fake.WaitErrs = ErrEngineUnavailable, []error{errors.New("what it says makes no sense")}
	_, err := r.Run(t.Context(), gpuCommand("2"))
	require.ErrorContains(t, err, "makes no sense")
	require.Equal(t, []string{"quarantined", "quarantined"}, gpuStates(t, r))

	// Its owner, this process, lives; so nothing is done about it.
	fake.Do(func(f *enginetest.Fake) { f.Fail.Remove = nil })
	next := gpuCommand("1")
	next.ID = "r2"
	_, err = r.Run(t.Context(), next)
	var busy *gpu.BusyError
	require.ErrorAs(t, err, &busy)
	require.Contains(t, err.Error(), "container evalbox-r1 still runs: its owner, process ")
	require.NoError(t, fake.Remove(t.Context(), "evalbox-r1"))

	// A dead owner's container is removed, as a sweep does.
	dead := owner.This()
	dead.Start = "1"
	fake.Listed = []engine.Found{{ID: "c1", Name: "of the dead", Running: true, Labels: map[string]string{
		spec.LabelManaged: "true", spec.LabelRun: "r1", spec.LabelOwner: dead.String()}}}
	_, err = r.Run(t.Context(), next)
	require.NoError(t, err)
	require.Contains(t, fake.Removed, "of the dead")
	require.Equal(t, []string{"free", "free"}, gpuStates(t, r))
}

// TestGPUsOfAContainerThatCannotBeRemoved are free as soon as no process can use them.
func TestGPUsOfAContainerThatCannotBeRemoved(t *testing.T) {
	standInSMI(t, twoT4)
	for name, test := range map[string]struct {
		end   func(end *engine.End)
		state string
	}{
		"all processes have ended": {func(*engine.End) {}, "free"},
		"one has not":              {func(end *engine.End) { end.ProcessesLeft = 1 }, "quarantined"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := gpuEngine(func(p *enginetest.Program) int { p.End(test.end); return 0 })
			fake.Fail.Remove = errors.New("device busy")
			r := newFakeRunner(t, fake)
			_, err := r.Run(t.Context(), gpuCommand("1"))
			require.NoError(t, err)
			require.Equal(t, []string{test.state, "free"}, gpuStates(t, r))
		})
	}
}

// TestStillUses tells the containers of a dead run apart: only those that ended
// are left alone.
func TestStillUses(t *testing.T) {
	dead, alive := owner.This(), owner.This()
	dead.Start = "1"
	for name, test := range map[string]struct {
		container engine.Found
		owner     owner.Owner
		why       string
		removed   bool
	}{
		"runs":                       {engine.Found{Running: true}, dead, "", true},
		"its start may be under way": {engine.Found{}, dead, "", true},
		"the same, and its owner lives": {engine.Found{}, alive,
			"container evalbox-r1 may still start: its owner, process ", false},
		"has ended":         {engine.Found{Ended: true}, dead, "", false},
		"a part, with none": {engine.Found{Running: true, Labels: map[string]string{spec.LabelPart: "watcher"}}, dead, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := gpuEngine(nil)
			c := test.container
			c.ID, c.Name = "c1", "evalbox-r1"
			labels := map[string]string{spec.LabelManaged: "true", spec.LabelRun: "r1", spec.LabelOwner: test.owner.String()}
			maps.Copy(labels, c.Labels)
			c.Labels = labels
			fake.Listed = []engine.Found{c}
			why := newFakeRunner(t, fake).stillUses(t.Context(), engine.Info{ID: "engine-1"},
				gpu.Holder{RunID: "r1", Engine: "engine-1"}, time.Now())
			if test.why == "" {
				require.Empty(t, why)
			} else {
				require.Contains(t, why, test.why)
			}
			require.Equal(t, test.removed, slices.Contains(fake.Removed, c.Name))
		})
	}
}

func TestAnotherEnginesGPUs(t *testing.T) {
	r := newFakeRunner(t, gpuEngine(nil))
	info := engine.Info{ID: "engine-2"}
	dead := gpu.Holder{RunID: "r0", Engine: "engine-1", LimitSeconds: 3600}
	require.Contains(t, r.stillUses(t.Context(), info, dead, time.Now()), "run r0 of another engine")
	require.Empty(t, r.stillUses(t.Context(), info, dead, time.Now().Add(-2*time.Hour)))
}

// TestGPUsOfOneEngineReachedTwice has one engine at its socket and over the
// network, and other engines of this machine and of another.
func TestGPUsOfOneEngineReachedTwice(t *testing.T) {
	standInSMI(t, twoT4)
	dir := t.TempDir()
	runner := func(id string, local bool) (*Runner, *enginetest.Fake) {
		fake := gpuEngine(func(*enginetest.Program) int { return 0 })
		fake.Facts.ID, fake.Facts.Local = id, local
		fake.Facts.Host.GPUs = spec.HostGPUs{CDI: true, CDIDevices: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}}
		r := newFakeRunner(t, fake)
		require.NoError(t, WithGPUDir(dir)(r))
		return r, fake
	}
	req := gpuCommand("device=0")
	run := func(t *testing.T, r *Runner, id string) error {
		next := req
		next.ID = id
		_, err := r.Run(t.Context(), next)
		return err
	}
	for name, test := range map[string]struct {
		id    string
		local bool
		// next are a second way, and what it is told.
		nextID    string
		nextLocal bool
		why       string
	}{
		"by its socket, then over the network":    {"engine-1", true, "engine-1", false, "GPU 0 is held by run r1"},
		"over the network, then by its socket":    {"engine-1", false, "engine-1", true, "GPU 0 is held by run r1"},
		"two engines of this machine":             {"engine-1", true, "engine-2", true, "GPU 0 is held by run r1"},
		"this machine, and another":               {"engine-1", true, "engine-2", false, ""},
		"two engines of which nobody knows where": {"engine-1", false, "engine-2", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			next, _ := runner(test.nextID, test.nextLocal)
			first, fake := runner(test.id, test.local)
			var meanwhile error
			fake.Program = func(*enginetest.Program) int {
				meanwhile = run(t, next, "r2")
				return 0
			}
			require.NoError(t, run(t, first, "r1"))
			if test.why == "" {
				require.NoError(t, meanwhile)
			} else {
				var busy *gpu.BusyError
				require.ErrorAs(t, meanwhile, &busy)
				require.Contains(t, busy.Why, test.why)
			}
			require.NoError(t, run(t, next, "r3"))
		})
	}
}

// TestGPUsRenumberedWhileWaiting: a run gets the GPU that the last look found, not
// the one that had its index when the run was planned.
func TestGPUsRenumberedWhileWaiting(t *testing.T) {
	change := standInSMI(t, twoT4)
	// The first look finds memory in use, so that there is a second, which finds
	// the GPUs renumbered.
	change(`[ -e "$0.asked" ] || { touch "$0.asked"; echo '0, GPU-0, Tesla T4, 15360, 9000, 0, [N/A]'; exit; }
echo '0, GPU-1, Tesla T4, 15360, 3, 0, [N/A]'; echo '1, GPU-0, Tesla T4, 15360, 3, 0, [N/A]'`)
	fake := gpuEngine(func(*enginetest.Program) int {
		// GPU-0 falls off the bus; ours is well.
		change("echo '0, GPU-1, Tesla T4, 15360, 3, 0, [N/A]'")
		return 1
	})
	res, err := newFakeRunner(t, fake).Run(t.Context(), gpuCommand("device=0"))
	require.NoError(t, err)
	require.Equal(t, []string{"GPU-1"}, res.Enforced.GPUs)
	require.Equal(t, []string{"GPU-1"}, fake.Created[0].Class.GPUs.IDs)
	require.Equal(t, result.FaultProgram, res.Fault)
}

func TestRunWaitsForGPUs(t *testing.T) {
	standInSMI(t, twoT4)
	fake := gpuEngine(func(*enginetest.Program) int { return 0 })
	r := newFakeRunner(t, fake)
	info, err := fake.Info(t.Context())
	require.NoError(t, err)
	info.Local = true
	held, err := r.gpuManager(info).Acquire(t.Context(), gpu.Order{Want: gpu.Want{All: true}, Holder: gpu.Holder{RunID: "other"},
		Inventory: gpu.Inventory{Known: true, Devices: []gpu.Device{{ID: "0"}, {ID: "1"}}}})
	require.NoError(t, err)

	req := gpuCommand("1")
	_, err = r.Run(t.Context(), req)
	require.ErrorContains(t, err, "GPUs 0-1 are held by run other")

	ctx, cancel := context.WithCancel(t.Context())
	req.GPUWait = time.Hour
	hooks := Hooks{Waiting: func(string) { cancel() }}
	_, err = r.Run(ctx, req, hooks)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, outcome.ErrCanceled)
	require.Empty(t, leftBehind(t, r, fake))

	req.GPUWait = time.Minute
	hooks.Waiting = func(why string) {
		require.Contains(t, why, "GPUs 0-1 are held by run other")
		require.NoError(t, held.Release(context.Background()))
	}
	res, err := r.Run(t.Context(), req, hooks)
	require.NoError(t, err)
	require.Equal(t, []string{"GPU-0"}, res.Enforced.GPUs, "by the name that lasts")
}

// TestGPULostDuringARun takes the GPU away while the program runs. What the program prints about it does not
// count.
func TestGPULostDuringARun(t *testing.T) {
	for name, test := range map[string]struct {
		smi     string
		code    int
		fault   result.Fault
		warning string
	}{
		"a lost GPU":              {"echo 'Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error'; exit 255", 1, result.FaultEnvironment, "a GPU was lost during the run: nvidia-smi after the end: nvidia-smi says"},
		"no answer of nvidia-smi": {"exit 1", 1, result.FaultEnvironment, "a GPU was lost during the run: nvidia-smi after the end: nvidia-smi failed"},
		"healthy GPUs":            {"echo '" + twoT4 + "'", 1, result.FaultProgram, ""},
		"well all the same":       {"exit 1", 0, result.FaultNone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			change := standInSMI(t, twoT4)
			fake := gpuEngine(func(p *enginetest.Program) int {
				p.Print("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
				p.PrintErr("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
				change(test.smi)
				return test.code
			})
			r := newFakeRunner(t, fake)
			res, err := r.Run(t.Context(), gpuCommand("device=0"))
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status)
			require.Equal(t, test.code, res.ExitCode)
			require.Equal(t, test.fault, res.Fault)
			if test.warning == "" {
				require.Len(t, res.Warnings, 1, "that of the engine")
			} else {
				require.Contains(t, res.Warnings[0]+res.Warnings[1], test.warning)
			}
		})
	}
}

// TestNoGPUsNoLook: nobody asks nvidia-smi about a run without GPUs.
func TestNoGPUsNoLook(t *testing.T) {
	change := standInSMI(t, twoT4)
	change("touch \"$0.asked\"; echo '" + twoT4 + "'")
	fake := gpuEngine(func(*enginetest.Program) int { return 1 })
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, result.FaultProgram, res.Fault)
	require.Empty(t, res.Enforced.GPUs)
	require.Empty(t, res.Enforced.GPUDriver)
	require.NoDirExists(t, filepath.Join(r.Store().Dir(), "gpus"))
	dir, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	require.NoFileExists(t, filepath.Join(dir, "nvidia-smi.asked"))
}

// A refusal quotes what was written, not what was made of it.
func TestRefusedGPUsAreQuoted(t *testing.T) {
	asked := spec.GPURequest{Count: 9}
	err := gpuError(asked, wanted(asked).Check(gpu.Inventory{Known: true, Devices: []gpu.Device{{ID: "0"}}}))
	require.EqualError(t, err, `gpus "9": 9 asked for, 1 there`)
}

// TestGPUsThatTheEngineChooses: nobody asks nvidia-smi here, and nothing is leased. A loss is not noticed.
func TestGPUsThatTheEngineChooses(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fake := gpuEngine(func(p *enginetest.Program) int {
		p.PrintErr("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
		return 1
	})
	fake.Facts.Host.GPUs = spec.HostGPUs{Driver: spec.DriverLimits, Kind: "example.com/gpu"}
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), gpuCommand("2"))
	require.NoError(t, err)
	require.Equal(t, []string{"example.com/gpu", "example.com/gpu"}, res.Enforced.GPUs)
	require.Equal(t, "limits", res.Enforced.GPUDriver)
	require.Equal(t, result.FaultProgram, res.Fault, "what the program prints does not count")
	report, err := r.GPUs(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.GPUs)
	require.Equal(t, []string{"engine: chooses the GPUs of a run itself, by limits: example.com/gpu"}, report.LookedAt)
	require.NoDirExists(t, filepath.Join(r.Store().Dir(), "gpus"))
	_, err = r.Run(t.Context(), gpuCommand("all"))
	var refused *policy.FieldError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "ask for a number of them, such as --gpus 1", refused.Hint)
}
