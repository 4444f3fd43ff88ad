package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Planner tells what a run would be without making it, the image's ID included.
// *sandbox.Runner is one.
type Planner interface {
	Plan(ctx context.Context, req sandbox.Request) (spec.Spec, error)
}

// Cache keeps evaluations, so that the same script on the same data is not run again.
// What counts as the same is said at [CacheKey]. Only runs that ended by themselves are
// kept, with whatever exit code: never one that was ended by its time, its memory or
// another limit, by a signal, by the caller, or by a failure of ours or of the grader.
//
// Nor is one kept when the data, the answers or the sample changed before it was over,
// even if they were changed back.
//
// A hit gives the evaluation and no files: final/ is empty then, unless the run that the
// evaluation names was the last to fill it.
type Cache struct {
	// Dir is the folder of the entries. It is made if it is missing. Several
	// processes may use one.
	Dir string
}

// CacheParts are what an evaluation depends on.
type CacheParts struct {
	// Spec is the plan: image ID, arguments, environment, limits.
	Spec spec.Spec
	// ProgramSHA256 and InputSHA256 are hashes of the script and of its data; see
	// [HashTree].
	ProgramSHA256, InputSHA256 string
	GPUKind                    string
	Seed                       *uint32
	// Repetition is [Job.Repetition].
	Repetition int
	// Judges is what the evaluation is made of besides the run: grader, answers
	// and sample, hashed.
	Judges map[string]string
}

// CacheKey is a SHA-256 over everything that an evaluation depends on: image ID,
// script, data, arguments, environment, limits, user, network, runtime, number and kind
// of GPUs, seed, repetition, grader with its answers, and sample. Where files lie on the host, what
// the run is called and which of several equal GPUs it has does not count.
func CacheKey(parts CacheParts) string {
	plan := parts.Spec
	plan.Class.Image = spec.Image{ID: plan.Class.Image.ID}
	gpus := plan.Class.GPUs
	plan.Class.GPUs = spec.GPURequest{All: gpus.All, Count: gpus.Count + len(gpus.IDs)}
	job := &plan.Job
	job.RunID, job.Name, job.Labels = "", "", nil
	job.Script, job.Input, job.Final, job.Keep = "", "", "", false
	parts.Spec = plan
	text, err := json.Marshal(parts) //nolint:musttag // hashed, never read again
	if err != nil {
		// Strings, numbers and booleans only.
		panic(fmt.Sprintf("evaluate: cache key cannot be encoded: %v", err))
	}
	return hashText("evalbox/cache/v2\x00" + string(text))
}

// cacheable says that a run would end the same way again, as far as anybody knows.
func cacheable(res *result.Result, e Evaluation) bool {
	return res.Status == result.StatusExited && !res.TimedOut && !res.OOMKilled && res.OutputComplete &&
		e.Conclusive() && (e.Grading == nil || e.Grading.Failure == "")
}

// cacheEntry is where an evaluation goes once its run is over.
type cacheEntry struct {
	// key is empty without a cache.
	key string
	// seen is what was hashed for it.
	seen map[string]snapshot
}

// lookUp fills in a cached evaluation and says that it is one.
func (e *Evaluator) lookUp(ctx context.Context, x execution, evaluation *Evaluation) (entry cacheEntry, hit bool, err error) {
	if e.opts.Cache == nil {
		return entry, false, nil
	}
	req, err := e.request(x)
	if err != nil {
		return entry, false, err
	}
	planner, ok := e.runner.(Planner)
	if !ok { // New has checked it
		return entry, false, errors.New("evaluate: this runner cannot plan, which a cache needs")
	}
	parts := CacheParts{
		ProgramSHA256: evaluation.ScriptSHA256, GPUKind: e.opts.GPUKind, Seed: evaluation.Seed, Repetition: evaluation.Repetition,
	}
	if parts.Spec, err = planner.Plan(ctx, req); err != nil {
		return entry, false, err
	}
	if entry.seen, err = e.look(ctx, x.input); err != nil {
		return entry, false, err
	}
	parts.InputSHA256, parts.Judges = entry.seen[inputName].sum, e.judges(entry.seen)
	entry.key = CacheKey(parts)
	cached, err := e.opts.Cache.load(entry.key)
	if err == nil && (cached.Run == nil || cached.ScriptSHA256 != evaluation.ScriptSHA256) {
		err = errors.New("is of another script")
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return entry, false, nil
	case err != nil:
		e.warnOfCache(ctx, evaluation, "cannot be used", e.opts.Cache.path(entry.key), err)
		return entry, false, nil
	}
	cached.Name, cached.CompetitionID, cached.Cached = evaluation.Name, evaluation.CompetitionID, true
	cached.OriginalSHA256, cached.SetupSHA256 = evaluation.OriginalSHA256, evaluation.SetupSHA256
	*evaluation = cached
	e.log.LogAttrs(ctx, slog.LevelInfo, "script not run: its result is known", slog.String("script", x.script), slog.String("key", entry.key))
	return entry, true, nil
}

// look takes stock of whatever an evaluation depends on that may change while an
// evaluator lives; input may be empty. The grader was read when the evaluator was made.
func (e *Evaluator) look(ctx context.Context, input string) (map[string]snapshot, error) {
	seen := map[string]snapshot{}
	var err error
	if input != "" {
		if seen[inputName], err = e.trees.of(ctx, input, TreeOptions{Memory: e.opts.Cache.memoryOf(input)}); err != nil {
			return nil, err
		}
	}
	if grader := e.opts.Grader; grader != nil {
		if seen[answersName], err = e.trees.of(ctx, grader.Answers, TreeOptions{}); err != nil {
			return nil, err
		}
	}
	if rule := e.opts.Submission; rule != nil {
		if seen["sample"], err = e.trees.ofFile(ctx, rule.Sample); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// judges is what an evaluation is made of besides the run.
func (e *Evaluator) judges(seen map[string]snapshot) map[string]string {
	judges := map[string]string{}
	if grader := e.opts.Grader; grader != nil {
		judges["grader"], judges["answers"] = hashText(string(e.grader)), seen[answersName].sum
		judges["grader limits"] = fmt.Sprintf("%+v %d", grader.Limits, grader.MaxBytes)
	}
	if rule := e.opts.Submission; rule != nil {
		judges["sample"] = seen["sample"].sum
		judges["rule"] = fmt.Sprintf("%q %q %t", rule.Name, rule.IDColumn, rule.SameOrder)
	}
	return judges
}

// remember keeps an evaluation, if it is of what was hashed: neither the script nor
// anything else may have changed until the run was over. That it cannot be kept is a
// warning: the evaluation is good all the same.
func (e *Evaluator) remember(ctx context.Context, entry cacheEntry, x execution, res *result.Result, evaluation *Evaluation) {
	if entry.key == "" || !cacheable(res, *evaluation) {
		return
	}
	path := e.opts.Cache.path(entry.key)
	if !e.ranAs(x.program, res.ID, evaluation.ScriptSHA256) {
		e.warnOfCache(ctx, evaluation, "is not written", path, errors.New("that the program which ran is the script cannot be shown"))
		return
	}
	now, err := e.look(ctx, x.input)
	if err == nil && !maps.Equal(now, entry.seen) {
		err = errors.New("the data, the answers or the sample changed during the run")
	}
	if err == nil {
		err = e.opts.Cache.store(entry.key, *evaluation)
	}
	if err != nil {
		e.warnOfCache(ctx, evaluation, "is not written", path, err)
	}
}

func (e *Evaluator) warnOfCache(ctx context.Context, evaluation *Evaluation, what, path string, err error) {
	e.log.LogAttrs(ctx, slog.LevelWarn, "cache entry "+what, slog.String("path", path), slog.String("error", err.Error()))
	evaluation.Warnings = append(evaluation.Warnings, fmt.Sprintf("cache: entry %s %s: %v", filepath.Base(path), what, fsx.Cause(err)))
}

// makeDir makes the folder of the cache, or says why there is none.
func (c *Cache) makeDir() error {
	err := os.MkdirAll(c.Dir, 0o700)
	if info, statErr := os.Stat(c.Dir); statErr == nil && !info.IsDir() {
		return &sandbox.PathError{Field: "cache", Path: c.Dir, Rule: "is not a folder"}
	}
	if err != nil {
		return &sandbox.PathError{Field: "cache", Path: c.Dir, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	return nil
}

func (c *Cache) path(key string) string { return filepath.Join(c.Dir, key[:2], key+".json") }

// memoryOf is where the hashes of a folder are remembered.
func (c *Cache) memoryOf(dir string) string {
	return filepath.Join(c.Dir, "tree-"+hashText(dir)[:16]+".json")
}

// maxEntry bounds an entry that is read.
const maxEntry = 256 << 20

func (c *Cache) load(key string) (Evaluation, error) {
	text, err := fsx.Read(c.path(key), maxEntry)
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
	return fsx.WriteFile(path, text, 0o644, false)
}
