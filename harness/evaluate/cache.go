package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Planner tells what a run would be without making it, the image's ID included.
// *sandbox.Runner is one.
type Planner interface {
	Plan(ctx context.Context, req sandbox.Request) (sandbox.Spec, error)
}

// Cache keeps evaluations, so that the same script on the same data is not run again.
// What counts as the same is said at [CacheKey]. Only runs that ended by themselves are
// kept, with whatever exit code: never one that was ended by its time, its memory or
// another limit, by a signal, by the caller, or by a failure of ours or of the grader.
//
// A hit gives the evaluation and no files: the outputs are where the run that it names
// has left them.
type Cache struct {
	// Dir is the folder of the entries. It is made if it is missing. Several
	// processes may use one.
	Dir string
	// GPUKind says what kind of GPUs runs have, and how many when
	// [Options.Prepare] chooses them; a result of other GPUs is another result.
	GPUKind string
}

// CacheParts are what an evaluation depends on.
type CacheParts struct {
	// Spec is the plan: image ID, arguments, environment, limits.
	Spec sandbox.Spec
	// ProgramSHA256 and InputSHA256 are hashes of the script and of its data; see
	// [HashTree].
	ProgramSHA256, InputSHA256 string
	GPUKind                    string
	Seed                       *uint32
	// Judges is what the evaluation is made of besides the run: grader, answers
	// and sample, hashed.
	Judges map[string]string
}

// CacheKey is a SHA-256 over everything that an evaluation depends on: image ID,
// script, data, arguments, environment, limits, user, network, runtime, number and kind
// of GPUs, seed, grader with its answers, and sample. Where files lie on the host, what
// the run is called and which of several equal GPUs it has does not count.
func CacheKey(parts CacheParts) string {
	spec := parts.Spec
	spec.Class.Image = sandbox.Image{ID: spec.Class.Image.ID}
	gpus := spec.Class.GPUs
	spec.Class.GPUs = sandbox.GPURequest{All: gpus.All, Count: gpus.Count + len(gpus.IDs)}
	job := &spec.Job
	job.RunID, job.Name, job.Labels = "", "", nil
	job.Script, job.Input, job.Final, job.Keep = "", "", "", false
	parts.Spec = spec
	text, err := json.Marshal(parts) //nolint:musttag // hashed, never read again
	if err != nil {
		// Strings, numbers and booleans only.
		panic(fmt.Sprintf("evaluate: cache key cannot be encoded: %v", err))
	}
	return hashText("evalbox/cache/v1\x00" + string(text))
}

// cacheable says that a run would end the same way again, as far as anybody knows.
func cacheable(res *result.Result, e Evaluation) bool {
	return res.Status == result.StatusExited && !res.TimedOut && !res.OOMKilled && res.OutputComplete &&
		e.Conclusive()
}

// lookUp fills in a cached evaluation and says that it is one. The key is empty
// without a cache.
func (e *Evaluator) lookUp(ctx context.Context, x execution, seed *uint32, evaluation *Evaluation) (key string, hit bool, err error) {
	if e.opts.Cache == nil {
		return "", false, nil
	}
	req, err := e.request(x)
	if err != nil {
		return "", false, err
	}
	parts := CacheParts{ProgramSHA256: evaluation.ScriptSHA256, GPUKind: e.opts.Cache.GPUKind, Seed: seed, Judges: map[string]string{}}
	planner, ok := e.runner.(Planner)
	if !ok { // New has checked it
		return "", false, errors.New("evaluate: this runner cannot plan, which a cache needs")
	}
	if parts.Spec, err = planner.Plan(ctx, req); err != nil {
		return "", false, err
	}
	if parts.InputSHA256, err = e.trees.of(ctx, x.input, TreeOptions{Memory: e.opts.Cache.memoryOf(x.input)}); err != nil {
		return "", false, err
	}
	if err := e.judges(ctx, parts.Judges); err != nil {
		return "", false, err
	}
	key = CacheKey(parts)
	cached, err := e.opts.Cache.load(key)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			e.log.LogAttrs(ctx, slog.LevelWarn, "cache entry cannot be used", slog.String("key", key), slog.String("error", err.Error()))
		}
		return key, false, nil
	}
	cached.Name, cached.CompetitionID, cached.Cached = evaluation.Name, evaluation.CompetitionID, true
	cached.OriginalSHA256, cached.SetupSHA256 = evaluation.OriginalSHA256, evaluation.SetupSHA256
	*evaluation = cached
	e.log.LogAttrs(ctx, slog.LevelInfo, "script not run: its result is known", slog.String("script", x.script), slog.String("key", key))
	return key, true, nil
}

// judges hashes what else an evaluation is made of.
func (e *Evaluator) judges(ctx context.Context, judges map[string]string) (err error) {
	if grader := e.opts.Grader; grader != nil {
		if judges["grader"], err = e.trees.ofFile(ctx, grader.Script); err != nil {
			return err
		}
		if judges["answers"], err = e.trees.of(ctx, grader.Answers, TreeOptions{}); err != nil {
			return err
		}
		judges["grader limits"] = fmt.Sprintf("%+v %d", grader.Limits, grader.MaxBytes)
	}
	if rule := e.opts.Submission; rule != nil {
		if judges["sample"], err = e.trees.ofFile(ctx, rule.Sample); err != nil {
			return err
		}
		judges["rule"] = fmt.Sprintf("%q %q %t", rule.Name, rule.IDColumn, rule.SameOrder)
	}
	return nil
}

// remember keeps an evaluation. A cache that cannot be written is told in the log: the
// evaluation is good all the same.
func (e *Evaluator) remember(ctx context.Context, key string, res *result.Result, evaluation Evaluation) {
	if key == "" || !cacheable(res, evaluation) {
		return
	}
	if err := e.opts.Cache.store(key, evaluation); err != nil {
		e.log.LogAttrs(ctx, slog.LevelWarn, "cache entry cannot be written", slog.String("key", key), slog.String("error", err.Error()))
	}
}

func (c *Cache) path(key string) string { return filepath.Join(c.Dir, key[:2], key+".json") }

// memoryOf is where the hashes of a folder are remembered.
func (c *Cache) memoryOf(dir string) string {
	return filepath.Join(c.Dir, "tree-"+hashText(dir)[:16]+".json")
}

func (c *Cache) load(key string) (Evaluation, error) {
	text, err := os.ReadFile(c.path(key))
	if err != nil {
		return Evaluation{}, err
	}
	return decodeEvaluation(text)
}

func (c *Cache) store(key string, evaluation Evaluation) error {
	text, err := json.Marshal(evaluation)
	if err != nil {
		return err
	}
	path := c.path(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replaceFile(filepath.Dir(path), filepath.Base(path), text)
}
