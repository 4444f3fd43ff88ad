package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/evalbox/evalbox/sandbox"
)

// Setup is a SHA-256 over how scripts of a task are evaluated: the task, image ID,
// environment, limits, user, network, runtime, number and kind of GPUs, grader with its
// answers, sample, and whatever the caller adds. Not the script, its seed and the data,
// which may be large: [CacheKey] has those. It needs a Runner that is a [Planner], and
// refuses what every single run would be refused for.
func (e *Evaluator) Setup(ctx context.Context, task TaskDescription, timeout time.Duration, more map[string]string) (string, error) {
	planner, ok := e.runner.(Planner)
	if !ok {
		return "", errors.New("evaluate: a setup needs a runner that can plan")
	}
	req, err := e.request(execution{timeout: timeout})
	if err != nil {
		return "", err
	}
	// Any program has the same image and limits.
	req.Script, req.Final, req.Command = "", "", []string{"python3"}
	parts := CacheParts{GPUKind: e.opts.GPUKind}
	if parts.Spec, err = planner.Plan(ctx, req); err != nil {
		return "", err
	}
	seen, err := e.look(ctx, "")
	if err != nil {
		return "", err
	}
	parts.Judges = e.judges(seen)
	text, err := json.Marshal(task)
	if err != nil {
		return "", fmt.Errorf("evaluate: the task cannot be encoded: %w", err)
	}
	maps.Copy(parts.Judges, more)
	parts.Judges["task"] = string(text)
	return CacheKey(parts), nil
}

var _ Planner = (*sandbox.Runner)(nil)
