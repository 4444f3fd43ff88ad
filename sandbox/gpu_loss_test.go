package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

func TestBlameGPUs(t *testing.T) {
	crashed := facts{end: engine.End{Reported: true, ExitCode: 1}}
	aborted := facts{end: engine.End{Reported: true, Signal: 6}}
	hung := facts{end: engine.End{Reported: true, Signal: 15, Cause: engine.ByDeadline}}
	isLost := result.GPUFault{Line: `"GPU is lost"`}
	noDevice := result.GPUFault{Line: `"no CUDA-capable device is detected"`, Doubtful: true}
	printed := gpuFacts{evidence: isLost}
	wellAfter := gpuFacts{evidence: isLost, probed: true}
	sick := gpuFacts{probed: true, lost: "GPU 0: nvidia-smi does not list it any more"}
	both := gpuFacts{evidence: isLost, probed: true, lost: "GPU 0: is lost"}
	for name, test := range map[string]struct {
		facts   facts
		gpus    gpuFacts
		status  result.Status
		fault   result.Fault
		warning string
	}{
		"a crash, and nothing else":   {crashed, gpuFacts{}, result.StatusExited, result.FaultProgram, ""},
		"a crash with healthy GPUs":   {crashed, gpuFacts{probed: true}, result.StatusExited, result.FaultProgram, ""},
		"its own words":               {crashed, printed, result.StatusExited, result.FaultEnvironment, `the program printed "GPU is lost", which is its own text; nvidia-smi was not asked`},
		"its own words, and healthy":  {crashed, wellAfter, result.StatusExited, result.FaultEnvironment, "found the GPUs of the run well afterwards"},
		"a look at the end":           {crashed, sick, result.StatusExited, result.FaultEnvironment, "a GPU was lost during the run: nvidia-smi after the end: GPU 0: nvidia-smi does not list"},
		"both":                        {crashed, both, result.StatusExited, result.FaultEnvironment, "nvidia-smi after the end: GPU 0: is lost"},
		"doubtful words, and healthy": {crashed, gpuFacts{evidence: noDevice, probed: true}, result.StatusExited, result.FaultProgram, ""},
		"doubtful words, and no look": {crashed, gpuFacts{evidence: noDevice}, result.StatusExited, result.FaultEnvironment, "which is its own text; nvidia-smi was not asked"},
		"doubtful words, and a look": {crashed, gpuFacts{evidence: noDevice, probed: true, lost: "GPU 0: is lost"}, result.StatusExited,
			result.FaultEnvironment, `printed "no CUDA-capable device is detected", which is its own text; nvidia-smi after the end: GPU 0: is lost`},
		"an abort":                       {aborted, printed, result.StatusSignaled, result.FaultEnvironment, "its own text"},
		"an end that is well":            {facts{end: engine.End{Reported: true}}, both, result.StatusExited, result.FaultNone, ""},
		"a hang, and its own words":      {hung, wellAfter, result.StatusTimedOut, result.FaultProgram, ""},
		"a hang, and a GPU that is gone": {hung, sick, result.StatusTimedOut, result.FaultEnvironment, "was lost"},
		"out of memory":                  {facts{end: engine.End{Reported: true, Signal: 9, OOMKilled: true}}, both, result.StatusOutOfMemory, result.FaultProgram, ""},
		"stopped by others":              {facts{end: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal, Foreign: []string{"15"}}}, both, result.StatusSignaled, result.FaultOperator, ""},
		"canceled":                       {facts{end: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal}, stop: stopCanceled}, both, result.StatusCanceled, result.FaultOperator, ""},
		"lost engine":                    {facts{lost: errNoExit}, both, result.StatusEngineLost, result.FaultEnvironment, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := blameGPUs(decide(test.facts), test.gpus)
			require.Equal(t, test.status, v.status)
			require.Equal(t, test.fault, v.fault)
			if test.warning == "" {
				require.Empty(t, v.warnings)
			} else {
				require.Contains(t, strings.Join(v.warnings, "\n"), test.warning)
			}
		})
	}
}

func TestLostGPU(t *testing.T) {
	devices := []gpu.Device{{ID: "0"}, {ID: "1", Problem: "is broken"}}
	zero, one, two := gpu.Device{ID: "0"}, gpu.Device{ID: "1"}, gpu.Device{ID: "2"}
	require.Empty(t, lostGPU([]gpu.Device{zero}, devices, nil))
	require.Equal(t, "GPU 1: is broken", lostGPU([]gpu.Device{zero, one}, devices, nil))
	require.Equal(t, "GPU 2: nvidia-smi does not list it any more", lostGPU([]gpu.Device{zero, two}, devices, nil))
	require.Equal(t, "it hangs", lostGPU([]gpu.Device{zero}, nil, errors.New("it hangs")))
	// A GPU that fell off the bus takes its index with it: those that stay are
	// looked for by their lasting names.
	a, b := gpu.Device{ID: "0", UUID: "GPU-a"}, gpu.Device{ID: "1", UUID: "GPU-b"}
	require.Equal(t, "GPU 0: nvidia-smi does not list it any more", lostGPU([]gpu.Device{a}, []gpu.Device{{ID: "0", UUID: "GPU-b"}}, nil))
	require.Empty(t, lostGPU([]gpu.Device{b}, []gpu.Device{{ID: "0", UUID: "GPU-b"}}, nil))
	// One that cannot be read has no name.
	require.Equal(t, "GPU 0: is lost", lostGPU([]gpu.Device{a}, []gpu.Device{{ID: "0", Problem: "is lost"}, b}, nil))
	require.Empty(t, lostGPU([]gpu.Device{b}, []gpu.Device{{ID: "1", Problem: "is lost"}, {ID: "2", UUID: "GPU-b"}}, nil))
}
