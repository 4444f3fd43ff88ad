package evaluate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// CacheParts are what a result depends on.
type CacheParts struct {
	// Spec is the plan: image ID, arguments, environment, limits.
	Spec spec.Spec
	// ProgramSHA256 and InputSHA256 are digests of the script and of its data.
	ProgramSHA256, InputSHA256 string
	GPUKind                    string
	Seed                       *uint32
	// Repetition is [Job.Repetition].
	Repetition int
	// Judges are digests of what decides besides the run: grader, answers and sample.
	Judges map[string]string
}

// CacheKey is a SHA-256 over everything that a result depends on: image ID, script, data,
// arguments, environment, limits, user, network, runtime, number and kind of GPUs, seed,
// repetition, grader with its answers, and sample. Paths on the host, names, and which of
// several equal GPUs a run has do not count.
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
	return hashText("evalbox/cache/v3\x00" + string(text))
}

func hashText(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// Setup is a SHA-256 over how scripts of a task are evaluated: the task, image ID,
// environment, limits, user, network, runtime, number and kind of GPUs, grader with its
// answers, sample, and more, which the caller adds. Script, seed and data, which may be
// large, do not count; [CacheKey] has those. It refuses what every single run would be
// refused for.
func (h *Harness) Setup(ctx context.Context, task TaskDescription, timeout time.Duration, more map[string]string) (string, error) {
	req, err := h.request(execution{timeout: timeout})
	if err != nil {
		return "", err
	}
	// Every program has the same image and limits.
	req.Script, req.Final, req.Command = "", "", []string{"python3"}
	parts := CacheParts{GPUKind: h.opts.GPUKind}
	if parts.Spec, err = h.box.Plan(ctx, req); err != nil {
		return "", err
	}
	seen, err := h.look(ctx, "")
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return "", fmt.Errorf("evaluate: the task cannot be encoded: %w", err)
	}
	parts.Judges = h.judges(seen)
	maps.Copy(parts.Judges, more)
	parts.Judges["task"] = string(text)
	return CacheKey(parts), nil
}

// parts returns the parts of the key of a run, and the digests of the files that they depend on.
func (h *Harness) parts(ctx context.Context, x execution, res Result) (CacheParts, map[string]treehash.Digest, error) {
	parts := CacheParts{ProgramSHA256: res.ScriptSHA256, GPUKind: h.opts.GPUKind, Seed: res.Seed, Repetition: res.Repetition}
	req, err := h.request(x)
	if err != nil {
		return parts, nil, err
	}
	if parts.Spec, err = h.box.Plan(ctx, req); err != nil {
		return parts, nil, err
	}
	seen, err := h.look(ctx, x.input)
	if err != nil {
		return parts, nil, err
	}
	parts.InputSHA256, parts.Judges = seen[inputName].Sum, h.judges(seen)
	return parts, seen, nil
}

// look returns the digests of all files that a result depends on and that may change while a
// harness lives. input may be empty. The grader was read when the harness was created.
func (h *Harness) look(ctx context.Context, input string) (map[string]treehash.Digest, error) {
	seen := map[string]treehash.Digest{}
	var err error
	if input != "" {
		file := ""
		if h.cache != nil {
			file = h.cache.memory(input)
		}
		if seen[inputName], err = h.stock.tree(ctx, inputName, input, file); err != nil {
			return nil, err
		}
	}
	if grader := h.opts.Grader; grader != nil {
		if seen[answersName], err = h.stock.tree(ctx, answersName, grader.Answers, ""); err != nil {
			return nil, err
		}
	}
	if rule := h.opts.Submission; rule != nil {
		if seen["sample"], err = treehash.File(ctx, rule.Sample, nil); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// judges are the parts of [CacheParts.Judges].
func (h *Harness) judges(seen map[string]treehash.Digest) map[string]string {
	judges := map[string]string{}
	if grader := h.opts.Grader; grader != nil {
		judges["grader"], judges["answers"] = hashText(string(h.grader)), seen[answersName].Sum
		judges["grader limits"] = fmt.Sprintf("%+v %d", grader.Limits, grader.MaxBytes)
	}
	if rule := h.opts.Submission; rule != nil {
		judges["sample"] = seen["sample"].Sum
		judges["rule"] = fmt.Sprintf("%q %q %t", rule.Name, rule.IDColumn, rule.SameOrder)
	}
	return judges
}

// stock remembers the digests of directories. It looks at every entry each time, and reads the
// files that may have changed.
type stock struct {
	mu    sync.Mutex
	trees map[string]*knownTree
}

type knownTree struct {
	mu     sync.Mutex // several jobs do not read the same directory at the same time
	memory *treehash.Memory
}

// tree returns the digest of a directory. file, if not empty, remembers the digests of its files
// for the next process.
func (s *stock) tree(ctx context.Context, field, dir, file string) (treehash.Digest, error) {
	s.mu.Lock()
	known := s.trees[dir]
	if known == nil {
		known = &knownTree{}
		s.trees[dir] = known
	}
	s.mu.Unlock()
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.memory == nil {
		known.memory = treehash.LoadMemory(file)
	}
	digest, err := treehash.Of(ctx, dir, treehash.Options{Memory: known.memory})
	if err != nil {
		return digest, unusable(field, dir, "cannot be hashed", err)
	}
	if file != "" {
		known.memory.Save(file)
	}
	return digest, nil
}

// A cache is a log of trials. A hit is the conclusive result with the same key. Only runs that
// ended by themselves are in it, with whatever exit code: none that was ended by a limit, by
// a signal, by the caller, or by our failure or by that of the grader; and none during which the
// data, the answers or the sample changed, even if they were changed back.
type cache struct {
	dir string
	log *trial.Log
}

func openCache(dir string) (*cache, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, unusable("cache", dir, "is not a folder", nil)
	}
	log, err := trial.OpenLog(dir)
	if err != nil {
		return nil, unusable("cache", dir, "cannot be used", err)
	}
	return &cache{dir, log}, nil
}

// memory is the file of the digests of a directory.
func (c *cache) memory(dir string) string {
	return filepath.Join(c.dir, "input-"+hashText(dir)[:16]+".json")
}

// cacheEntry is where a result goes once its run has ended.
type cacheEntry struct {
	key      string // empty without a cache
	seen     map[string]treehash.Digest
	warnings []string
}

// lookUp returns the cached result of a run; nil for none.
func (h *Harness) lookUp(ctx context.Context, x execution, res Result) (cacheEntry, *Result, error) {
	var entry cacheEntry
	if h.cache == nil {
		return entry, nil, nil
	}
	parts, seen, err := h.parts(ctx, x, res)
	if err != nil {
		return entry, nil, err
	}
	entry.key, entry.seen = CacheKey(parts), seen
	cached, found, err := h.cache.log.Conclusive(entry.key)
	var known Result
	if err == nil && found {
		known, err = decodeResult(cached.Detail)
		if err == nil && (known.Run == nil || known.ScriptSHA256 != res.ScriptSHA256) {
			err = errors.New("is of another script")
		}
	}
	switch {
	case err != nil:
		entry.warnings = []string{h.cacheWarning(ctx, entry.key, "cannot be used", err)}
		return entry, nil, nil
	case !found:
		return entry, nil, nil
	}
	known.Name, known.CompetitionID, known.Cached = res.Name, res.CompetitionID, true
	known.OriginalSHA256, known.SetupSHA256 = res.OriginalSHA256, res.SetupSHA256
	h.log.LogAttrs(ctx, slog.LevelInfo, "script not run: its result is known", slog.String("script", x.script), slog.String("key", entry.key))
	return entry, &known, nil
}

// keep puts a result into the cache, if another run would end the same way. A result that
// cannot be written is a warning.
func (h *Harness) keep(ctx context.Context, entry cacheEntry, x execution, ran *result.Result, res Result) Result {
	if entry.key == "" || ran.Status != result.StatusExited || ran.TimedOut || ran.OOMKilled || !ran.OutputComplete ||
		!res.Conclusive() || res.Grading != nil && res.Grading.Failure != "" {
		return res
	}
	err := h.unchanged(ctx, entry, x, ran.ID, res)
	if err == nil {
		err = h.cache.put(ctx, entry.key, res)
	}
	if err != nil {
		res.Warnings = append(res.Warnings, h.cacheWarning(ctx, entry.key, "is not written", err))
	}
	return res
}

// unchanged reports whether the program that ran is the script, and whether nothing that the
// result depends on changed since entry was made.
func (h *Harness) unchanged(ctx context.Context, entry cacheEntry, x execution, runID string, res Result) error {
	record, err := h.box.Store().Load(runID)
	for _, path := range []string{x.program, record.ProgramPath()} {
		if text, readErr := fsx.Read(path, maxProgram); err != nil || readErr != nil || hashText(string(text)) != res.ScriptSHA256 {
			return errors.New("that the program which ran is the script cannot be shown")
		}
	}
	now, err := h.look(ctx, x.input)
	if err == nil && !maps.Equal(now, entry.seen) {
		err = errors.New("the data, the answers or the sample changed during the run")
	}
	return err
}

// put adds a result to the log.
func (c *cache) put(ctx context.Context, key string, res Result) error {
	ended, err := res.Trial(trial.Job{Name: res.Name, Key: key, Seed: res.seed64()})
	if err != nil {
		return err
	}
	_, err = trial.Queue{Log: c.log}.Run(context.WithoutCancel(ctx), known{result: ended}, slices.Values([]trial.Job{ended.Job}))
	return err
}

// known is a harness whose only job has ended.
type known struct {
	trialHarness
	result trial.Result
}

func (k known) Run(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) {
	return k.result, nil
}

func (h *Harness) cacheWarning(ctx context.Context, key, what string, err error) string {
	h.log.LogAttrs(ctx, slog.LevelWarn, "cache entry "+what, slog.String("key", key), slog.String("error", err.Error()))
	return fmt.Sprintf("cache: entry %s %s: %v", key[:16], what, fsx.Cause(err))
}
