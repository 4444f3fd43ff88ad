package outcome

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

func TestBlameGPUs(t *testing.T) {
	crashed := Evidence{End: engine.End{Reported: true, ExitCode: 1}}
	aborted := Evidence{End: engine.End{Reported: true, Signal: 6}}
	hung := Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.ByDeadline}}
	isLost := result.GPUFault{Line: `"GPU is lost"`}
	noDevice := result.GPUFault{Line: `"no CUDA-capable device is detected"`, Doubtful: true}
	printed := GPUEvidence{Output: isLost}
	wellAfter := GPUEvidence{Output: isLost, Probed: true}
	sick := GPUEvidence{Probed: true, Lost: "GPU 0: nvidia-smi does not list it any more"}
	both := GPUEvidence{Output: isLost, Probed: true, Lost: "GPU 0: is lost"}
	for name, test := range map[string]struct {
		facts   Evidence
		gpus    GPUEvidence
		status  result.Status
		fault   result.Fault
		warning string
	}{
		"a crash, and nothing else":   {crashed, GPUEvidence{}, result.StatusExited, result.FaultProgram, ""},
		"a crash with healthy GPUs":   {crashed, GPUEvidence{Probed: true}, result.StatusExited, result.FaultProgram, ""},
		"its own words":               {crashed, printed, result.StatusExited, result.FaultEnvironment, `the program printed "GPU is lost", which is its own text; nvidia-smi was not asked`},
		"its own words, and healthy":  {crashed, wellAfter, result.StatusExited, result.FaultEnvironment, "found the GPUs of the run well afterwards"},
		"a look at the end":           {crashed, sick, result.StatusExited, result.FaultEnvironment, "a GPU was lost during the run: nvidia-smi after the end: GPU 0: nvidia-smi does not list"},
		"both":                        {crashed, both, result.StatusExited, result.FaultEnvironment, "nvidia-smi after the end: GPU 0: is lost"},
		"doubtful words, and healthy": {crashed, GPUEvidence{Output: noDevice, Probed: true}, result.StatusExited, result.FaultProgram, ""},
		"doubtful words, and no look": {crashed, GPUEvidence{Output: noDevice}, result.StatusExited, result.FaultEnvironment, "which is its own text; nvidia-smi was not asked"},
		"doubtful words, and a look": {crashed, GPUEvidence{Output: noDevice, Probed: true, Lost: "GPU 0: is lost"}, result.StatusExited,
			result.FaultEnvironment, `printed "no CUDA-capable device is detected", which is its own text; nvidia-smi after the end: GPU 0: is lost`},
		"an abort":                       {aborted, printed, result.StatusSignaled, result.FaultEnvironment, "its own text"},
		"an end that is well":            {Evidence{End: engine.End{Reported: true}}, both, result.StatusExited, result.FaultNone, ""},
		"a hang, and its own words":      {hung, wellAfter, result.StatusTimedOut, result.FaultProgram, ""},
		"a hang, and a GPU that is gone": {hung, sick, result.StatusTimedOut, result.FaultEnvironment, "was lost"},
		"out of memory":                  {Evidence{End: engine.End{Reported: true, Signal: 9, OOMKilled: true}}, both, result.StatusOutOfMemory, result.FaultProgram, ""},
		"stopped by others":              {Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal, Foreign: []string{"15"}}}, both, result.StatusSignaled, result.FaultOperator, ""},
		"canceled":                       {Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal}, Stop: StopCanceled}, both, result.StatusCanceled, result.FaultOperator, ""},
		"lost engine":                    {Evidence{Lost: ErrNoExit}, both, result.StatusEngineLost, result.FaultEnvironment, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := BlameGPUs(Decide(test.facts), test.gpus)
			require.Equal(t, test.status, v.Status)
			require.Equal(t, test.fault, v.Fault)
			if test.warning == "" {
				require.Empty(t, v.Warnings)
			} else {
				require.Contains(t, strings.Join(v.Warnings, "\n"), test.warning)
			}
		})
	}
}
