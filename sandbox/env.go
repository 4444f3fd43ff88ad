package sandbox

import (
	"maps"
	"math"
	"slices"
	"strconv"
)

// baseEnv is the environment of every run, sorted. Nothing of the controller's
// own environment is in it.
func baseEnv(cpus float64, gpus GPURequest) []string {
	const cache = TmpDir + "/.cache"
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
		"HOME":    TmpDir,
		"TMPDIR":  TmpDir,

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
	maps.Copy(env, gpuEnv(gpus))
	return sortedEnv(env)
}

// sortedEnv renders an environment as sorted NAME=value pairs.
func sortedEnv(env map[string]string) []string {
	pairs := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, name+"="+env[name])
	}
	return pairs
}
