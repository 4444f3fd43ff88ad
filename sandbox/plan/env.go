package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// baseEnv returns the environment of every run, sorted. It has nothing of the controller's
// own environment.
func baseEnv(cpus float64, gpus spec.GPURequest) []string {
	const cache = spec.TmpDir + "/.cache"
	threads := strconv.Itoa(max(1, int(math.Ceil(cpus))))
	env := map[string]string{
		// EX-004: lines arrive at once, and sets and dicts of strings iterate in the same
		// order in every run.
		"PYTHONUNBUFFERED": "1",
		"PYTHONHASHSEED":   "0",
		"PYTHONUTF8":       "1",
		// The root file system is read-only. A stack trace is all that native code
		// leaves after SIGSEGV.
		"PYTHONDONTWRITEBYTECODE": "1",
		"PYTHONFAULTHANDLER":      "1",

		// getpass.getuser(), which PyTorch's compiler calls on import, fails for a uid
		// without an account unless these are set.
		"USER":    "sandbox",
		"LOGNAME": "sandbox",
		"HOME":    spec.TmpDir,
		"TMPDIR":  spec.TmpDir,

		// Some libraries that cannot write a cache beside their code warn; numba raises an
		// exception.
		"XDG_CACHE_HOME":          cache,
		"MPLCONFIGDIR":            cache + "/matplotlib",
		"NUMBA_CACHE_DIR":         cache + "/numba",
		"TRITON_CACHE_DIR":        cache + "/triton",
		"TORCHINDUCTOR_CACHE_DIR": cache + "/torchinductor",
		"TORCH_HOME":              cache + "/torch",
		"HF_HOME":                 cache + "/huggingface",
		"CUDA_CACHE_PATH":         cache + "/cuda",

		// Thread pools do not see a CPU quota. Without these, one thread per core of the
		// host would compete for the quota.
		"OMP_NUM_THREADS":      threads,
		"OPENBLAS_NUM_THREADS": threads,
		"MKL_NUM_THREADS":      threads,
		"NUMEXPR_MAX_THREADS":  threads,
		"NUMEXPR_NUM_THREADS":  threads,
		"LOKY_MAX_CPU_COUNT":   threads,
		"PYTHON_CPU_COUNT":     threads,
		// A thread of OpenMP that waits for the others soon lets go of its processor: where
		// runs share processors, the others cannot go on while it spins. GNU's spins for some
		// 20 µs, as long as a thread takes to wake up; its default is milliseconds.
		"OMP_WAIT_POLICY": "PASSIVE",
		"GOMP_SPINCOUNT":  "1000",
	}
	maps.Copy(env, gpus.Env())
	return spec.SortedEnv(env)
}

// checkClockEnv refuses the variables that the clock of a run sets.
func checkClockEnv(req spec.Request) (errs []error) {
	if req.FakeClock == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(clockEnv(req.FakeClock, 0, nil))) {
		if field := givenBy(req, name); field != "" && name != policy.DeadlineEnv { // which no run may be given
			errs = append(errs, &policy.FieldError{Field: field, Value: strconv.Quote(name), Rule: "is set by the clock of the run"})
		}
	}
	return errs
}

// givenBy is the field of a request that gives the program a variable; empty for none.
func givenBy(req spec.Request, name string) string {
	if _, given := req.Env[name]; given {
		return "env"
	}
	if slices.ContainsFunc(req.Secrets, func(s spec.Secret) bool { return s.Name == name }) {
		return "secret"
	}
	return ""
}

// clockEnv adds the variables of the clock's library to the program's environment. The
// program is then started in the same way as without a clock. Its deadline is by that clock,
// which init does not have.
func clockEnv(c *spec.FakeClock, timeout time.Duration, env map[string]string) map[string]string {
	if c == nil {
		return env
	}
	all := map[string]string{}
	maps.Copy(all, env)
	maps.Copy(all, map[string]string{
		"LD_PRELOAD": c.Library, "FAKETIME": c.At.UTC().Format("@2006-01-02 15:04:05"),
		"FAKETIME_DONT_RESET": "1", "NO_FAKE_STAT": "1",
		policy.DeadlineEnv: fmt.Sprintf("%.3f", float64(c.At.Add(timeout).UnixMilli())/1000),
	})
	return all
}
