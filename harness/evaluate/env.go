package evaluate

import (
	"maps"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
)

// BuildExecutionEnv returns the environment of a script (EX-004): a copy of parent,
// with output that is not held back (PYTHONUNBUFFERED=1) and hashes of strings that
// are the same in every run (PYTHONHASHSEED=0), and with CUDA_VISIBLE_DEVICES set to
// the given GPUs in the given order. A nil slice leaves that variable as parent has
// it; an empty one hides all GPUs. A negative index is refused.
//
// The runs of an [Evaluator] pass a nil parent: a program in a container never sees
// the environment of the harness, in which there may be secrets. They pass no GPUs
// either: which GPUs a container has is decided by [sandbox.Request], and inside the
// container those are numbered from 0.
func BuildExecutionEnv(parent map[string]string, gpus []int) (map[string]string, error) {
	env := map[string]string{}
	maps.Copy(env, parent)
	env["PYTHONUNBUFFERED"] = "1"
	env["PYTHONHASHSEED"] = "0"
	if gpus == nil {
		return env, nil
	}
	indices := make([]string, len(gpus))
	for i, gpu := range gpus {
		if gpu < 0 {
			return nil, &policy.FieldError{Field: "gpus", Value: strconv.Itoa(gpu), Rule: "is not the index of a GPU"}
		}
		indices[i] = strconv.Itoa(gpu)
	}
	env["CUDA_VISIBLE_DEVICES"] = strings.Join(indices, ",")
	return env, nil
}

// seeded adds what makes a run repeatable, and different from others: the seed as
// SEED, for the script, and as PYTHONHASHSEED, for Python. Without a seed nothing is
// added.
func seeded(env map[string]string, seed *uint32) {
	if seed == nil {
		return
	}
	text := strconv.FormatUint(uint64(*seed), 10)
	env["SEED"], env["PYTHONHASHSEED"] = text, text
}
