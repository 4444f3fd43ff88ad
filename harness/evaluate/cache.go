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
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// keyParts are all things that a result depends on.
type keyParts struct {
	Spec spec.Spec
	// ProgramSHA256 and InputSHA256 are digests of the script and of its data.
	ProgramSHA256, InputSHA256 string
	GPUKind                    string
	Seed                       *uint32
	Repetition                 int
	// Judges are digests of what decides besides the run: grader, answers and sample.
	Judges map[string]string
}

// key is a SHA-256 over everything that a result depends on: image ID, script, data,
// arguments, environment, limits, user, network, runtime, number and kind of GPUs, seed,
// repetition, grader with its answers, and sample. Paths on the host, names, and which of
// several equal GPUs a run has do not count.
func (p keyParts) key() string {
	class, job := &p.Spec.Class, &p.Spec.Job
	class.Image = spec.Image{ID: class.Image.ID}
	class.GPUs = spec.GPURequest{All: class.GPUs.All, Count: class.GPUs.Count + len(class.GPUs.IDs)}
	job.RunID, job.Name, job.Labels = "", "", nil
	job.Script, job.ScriptFrom, job.Input, job.Final, job.Keep = "", "", "", "", false
	text, err := json.Marshal(p) //nolint:musttag // hashed, never read again
	if err != nil {
		panic(fmt.Sprintf("evaluate: cache key cannot be encoded: %v", err)) // strings, numbers and booleans only
	}
	// Results files of earlier versions have setups with this prefix, and go on.
	return hashText("evalbox/cache/v2\x00" + string(text))
}

func hashText(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// Setup is a SHA-256 over how scripts of a task are evaluated: the task, image ID,
// environment, limits, user, network, runtime, number and kind of GPUs, grader with its
// answers, sample, and more, which the caller adds. Script, seed and data, which may be
// large, do not count. It refuses everything that every single run would be refused for.
func (h *Harness) Setup(ctx context.Context, task TaskDescription, timeout time.Duration, more map[string]string) (string, error) {
	sum, _, err := h.setup(ctx, task, timeout, more)
	return sum, err
}

// setup also returns the limits of the runs, with the setup without them.
func (h *Harness) setup(ctx context.Context, task TaskDescription, timeout time.Duration, more map[string]string) (string, *Limits, error) {
	x := execution{timeout: timeout}
	var err error
	if x.aliases, err = task.allAliases(""); err != nil {
		return "", nil, err
	}
	parts, _, err := h.parts(ctx, x, Result{})
	if err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return "", nil, fmt.Errorf("evaluate: the task cannot be encoded: %w", err)
	}
	maps.Copy(parts.Judges, more)
	parts.Judges["task"] = string(text)
	sum := parts.key()
	limits := takeLimits(&parts.Spec)
	limits.SetupSHA256 = parts.key()
	return sum, limits, nil
}

// seen are the digests of the files that a result depends on, by their roles.
type seen = map[string]treehash.Digest

// parts returns the parts of the key of a run, and the digests of its files. Without a program
// they are those of all runs.
func (h *Harness) parts(ctx context.Context, x execution, res Result) (keyParts, seen, error) {
	parts := keyParts{ProgramSHA256: res.ScriptSHA256, GPUKind: h.opts.GPUKind, Seed: res.Seed, Repetition: res.Repetition, Judges: map[string]string{}}
	req, err := h.request(x)
	if err != nil {
		return parts, nil, err
	}
	if x.program == "" {
		req.Final, req.Command = "", []string{"python3"}
	}
	if parts.Spec, err = h.box.Plan(ctx, req); err != nil {
		return parts, nil, err
	}
	files, err := h.look(ctx, x.input)
	if err != nil {
		return parts, nil, err
	}
	if x.pattern != nil {
		parts.Judges["score pattern"] = x.pattern.String()
	}
	parts.InputSHA256 = files[inputName].Sum
	if grader := h.opts.Grader; grader != nil {
		if parts.Judges["grader"] = h.graderSum; h.graderSum == "" {
			parts.Judges["grader"] = hashText(string(h.grader))
		}
		parts.Judges["answers"] = files[answersName].Sum
		if grader.Image != "" {
			planned := grader.request(h.opts.Request, "", "")
			planned.Script, planned.Command = "", []string{"python3"}
			plan, err := h.box.Plan(ctx, planned)
			if err != nil {
				return parts, nil, fmt.Errorf("grader: %w", err)
			}
			parts.Judges["grader image"] = plan.Class.Image.ID
		}
		parts.Judges["grader limits"] = fmt.Sprintf("%+v %d", grader.Limits, grader.MaxBytes)
	}
	if rule := h.opts.Submission; rule != nil {
		parts.Judges["sample"] = files["sample"].Sum
		parts.Judges["rule"] = fmt.Sprintf("%q %q %t", rule.Name, rule.IDColumn, rule.SameOrder)
	}
	return parts, files, nil
}

// look returns the digests of all files that a result depends on and that may change while a
// harness lives. input may be empty. The grader was read when the harness was created.
func (h *Harness) look(ctx context.Context, input string) (seen, error) {
	files := seen{}
	var err error
	if input != "" {
		memory := ""
		if h.opts.Cache != "" {
			memory = filepath.Join(h.opts.Cache, "input-"+hashText(input)[:16]+".json")
		}
		if files[inputName], err = h.stock.tree(ctx, inputName, input, memory); err != nil {
			return nil, err
		}
	}
	if grader := h.opts.Grader; grader != nil {
		if files[answersName], err = h.stock.tree(ctx, answersName, grader.Answers, ""); err != nil {
			return nil, err
		}
	}
	if rule := h.opts.Submission; rule != nil {
		files["sample"], err = treehash.File(ctx, rule.Sample)
	}
	return files, err
}

// stock remembers the digests of directories. It looks at every entry each time, and reads the
// files that may have changed. Jobs that run at the same time do not read the same files.
type stock struct {
	mu    sync.Mutex
	known map[string]*treehash.Memory
}

// tree returns the digest of a directory. file, if not empty, remembers the digests of its files
// for the next process.
func (s *stock) tree(ctx context.Context, field, dir, file string) (treehash.Digest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[dir] == nil {
		s.known[dir] = treehash.LoadMemory(file)
	}
	digest, err := treehash.Of(ctx, dir, treehash.Options{Memory: s.known[dir]})
	if err != nil {
		return digest, unusable(field, dir, "cannot be hashed", err)
	}
	if file != "" {
		s.known[dir].Save(file)
	}
	return digest, nil
}

// openCache opens a cache, which is a log of trials. A hit is the conclusive result with the same
// key. Only runs that ended by themselves are in it, with whatever exit code: none that was ended
// by a limit or asked to finish, by a signal, by the caller, or by our failure or by that of the grader; and none
// during which the data, the answers or the sample changed, even if they were changed back.
func openCache(dir string) (*trial.Log, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, unusable("cache", dir, "is not a directory", nil)
	}
	log, err := trial.OpenLog(dir)
	if err != nil {
		return nil, unusable("cache", dir, "cannot be used", err)
	}
	return log, nil
}

// lookUp returns the cached result of a run; nil for none. It also returns the key of the run and
// the digests of its files for [Harness.keep].
func (h *Harness) lookUp(ctx context.Context, x execution, res *Result) (known *Result, key string, files seen, err error) {
	if h.cache == nil {
		return nil, "", nil, nil
	}
	parts, files, err := h.parts(ctx, x, *res)
	if err != nil {
		return nil, "", nil, err
	}
	key = parts.key()
	cached, found, err := h.cache.Conclusive(key)
	hit := *res
	if err == nil && found {
		hit, err = decodeResult(cached.Detail)
		if err == nil && (hit.Run == nil || hit.ScriptSHA256 != res.ScriptSHA256) {
			err = errors.New("is of another script")
		}
	}
	if err != nil {
		h.warnOfCache(ctx, res, key, "cannot be used", err)
		return nil, key, files, nil
	}
	if !found {
		return nil, key, files, nil
	}
	h.log.LogAttrs(ctx, slog.LevelInfo, "script not run: its result is known", slog.String("script", x.script), slog.String("key", key))
	hit.Name, hit.CompetitionID, hit.Cached = res.Name, res.CompetitionID, true
	hit.MetricDirection, hit.BaselineValue = res.MetricDirection, res.BaselineValue
	hit.OriginalSHA256, hit.SetupSHA256, hit.Resource = res.OriginalSHA256, res.SetupSHA256, res.Resource
	return &hit, key, files, nil
}

// keep puts a result into the cache, if another run would end the same way. A result that
// cannot be written is a warning.
func (h *Harness) keep(ctx context.Context, key string, files seen, x execution, ran *result.Result, res *Result) {
	if key == "" || ran.Status != result.StatusExited || ran.Deadline != result.DeadlineNone || ran.OOMKilled || !ran.OutputComplete ||
		!res.Conclusive() || res.GradingFailed() {
		return
	}
	err := h.unchanged(ctx, files, x, ran.ID, res.ScriptSHA256)
	if err == nil {
		var ended trial.Result
		if ended, err = res.Trial(trial.Job{Kind: Kind, Name: res.Name, Key: key, Seed: res.seed64()}); err == nil {
			ended.Started = time.Now()
			if len(ended.Detail) > trial.MaxDetail {
				err = fmt.Errorf("the result is longer than %d bytes", trial.MaxDetail)
			} else {
				err = h.cache.Add(ended)
			}
		}
	}
	if err != nil {
		h.warnOfCache(ctx, res, key, "is not written", err)
	}
}

// unchanged reports whether the program that ran is the script, and whether nothing that the
// result depends on has changed since files was made.
func (h *Harness) unchanged(ctx context.Context, files seen, x execution, runID, scriptSHA256 string) error {
	record, err := h.box.Store().Load(runID)
	for _, path := range []string{x.program, record.ProgramPath()} {
		if text, readErr := fsx.Read(path, maxProgram); err != nil || readErr != nil || hashText(string(text)) != scriptSHA256 {
			return errors.New("that the program which ran is the script cannot be shown")
		}
	}
	now, err := h.look(ctx, x.input)
	if err == nil && !maps.Equal(now, files) {
		err = errors.New("the data, the answers or the sample changed during the run")
	}
	return err
}

func (h *Harness) warnOfCache(ctx context.Context, res *Result, key, problem string, err error) {
	h.log.LogAttrs(ctx, slog.LevelWarn, "cache entry "+problem, slog.String("key", key), slog.String("error", err.Error()))
	res.Warnings = append(res.Warnings, fmt.Sprintf("cache: entry %s %s: %v", key[:16], problem, fsx.Cause(err)))
}
