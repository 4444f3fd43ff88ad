package plan

import (
	"maps"
	"math"
	"strconv"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// baseEnv is the environment of every run, sorted. Nothing of the controller's
// own environment is in it.
func baseEnv(cpus float64, gpus spec.GPURequest) []string {
	const cache = spec.TmpDir + "/.cache"
	threads := strconv.Itoa(max(1, int(math.Ceil(cpus))))
	env := map[string]string{
		// EX-004: lines arrive while they are printed, and sets and dicts of
		// strings iterate in the same order in every run.
		"PYTHONUNBUFFERED": "1",
		"PYTHONHASHSEED":   "0",
		"PYTHONUTF8":       "1",
		// The root file system is read-only; a stack trace on SIGSEGV is the
		// only trace that native code leaves.
		"PYTHONDONTWRITEBYTECODE": "1",
		"PYTHONFAULTHANDLER":      "1",

		// getpass.getuser(), which PyTorch's compiler calls on import, fails
		// for a uid without an account unless these are set.
		"USER":    "sandbox",
		"LOGNAME": "sandbox",
		"HOME":    spec.TmpDir,
		"TMPDIR":  spec.TmpDir,

		// Libraries that cannot write a cache beside their code: some warn,
		// numba raises.
		"XDG_CACHE_HOME":          cache,
		"MPLCONFIGDIR":            cache + "/matplotlib",
		"NUMBA_CACHE_DIR":         cache + "/numba",
		"TRITON_CACHE_DIR":        cache + "/triton",
		"TORCHINDUCTOR_CACHE_DIR": cache + "/torchinductor",
		"TORCH_HOME":              cache + "/torch",
		"HF_HOME":                 cache + "/huggingface",
		"CUDA_CACHE_PATH":         cache + "/cuda",

		// A CPU quota is invisible to thread pools: without these a pool of
		// one thread per host core fights over the quota.
		"OMP_NUM_THREADS":      threads,
		"OPENBLAS_NUM_THREADS": threads,
		"MKL_NUM_THREADS":      threads,
		"NUMEXPR_MAX_THREADS":  threads,
		"NUMEXPR_NUM_THREADS":  threads,
		"LOKY_MAX_CPU_COUNT":   threads,
		"PYTHON_CPU_COUNT":     threads,
	}
	maps.Copy(env, gpus.Env())
	return spec.SortedEnv(env)
}

// clockEnv is an environment with the variables of the clock's library. It is set for the
// whole container, so that the program is started as without it, and a failed start is
// reported alike.
func clockEnv(c *spec.FakeClock, env map[string]string) map[string]string {
	if c == nil {
		return env
	}
	all := map[string]string{}
	maps.Copy(all, env)
	maps.Copy(all, map[string]string{
		"LD_PRELOAD": c.Library, "FAKETIME": c.At.UTC().Format("@2006-01-02 15:04:05"),
		"FAKETIME_DONT_RESET": "1", "NO_FAKE_STAT": "1",
	})
	return all
}
