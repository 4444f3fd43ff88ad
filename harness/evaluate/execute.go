package evaluate

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// MaxRawOutput bounds each stream that [Harness.ExecuteScript] returns (EX-038).
const MaxRawOutput = 100 * policy.MiB

// ExecuteScript runs a script in a fresh container (EX-007, EX-010, EX-041, EX-042). The
// container has input/ of workingDir, read-only, as ./input, and an empty ./final. What is in it at the end
// moves to final/ of workingDir, which is emptied before the start.
// A script that fails or times out is not an error (EX-008, EX-009): after timeout it gets
// SIGTERM, 5 seconds later SIGKILL, and so does everything that it started (EX-037). env is
// added to the environment of the options; nothing of the caller's environment is.
//
// A script that does not exist is an error: EX-007 leaves it to Python, whose exit code 2
// could not be distinguished from that of a script, and nothing may start without a program.
//
// Each stream is kept up to [MaxRawOutput], or up to the limits of the options. A longer one
// is its head, its tail and [result.TruncationWarning] (EX-038).
func (h *Harness) ExecuteScript(ctx context.Context, scriptPath, workingDir string, timeout time.Duration,
	env map[string]string,
) (result.ExecutionRawResult, error) {
	dir, err := filepath.Abs(workingDir)
	if err != nil {
		return result.ExecutionRawResult{}, unusable("working directory", workingDir, "cannot be used", err)
	}
	limits := h.opts.Request.Limits
	x := execution{
		script: scriptPath, program: scriptPath, dir: dir, input: filepath.Join(dir, inputName), timeout: timeout, env: env,
		captureStdout: cmp.Or(limits.CaptureStdout, MaxRawOutput), captureStderr: cmp.Or(limits.CaptureStderr, MaxRawOutput),
	}
	res, err := h.execute(ctx, x)
	if res == nil {
		return result.ExecutionRawResult{}, err
	}
	raw := result.ExecutionRawResult{
		Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode, DurationSeconds: res.DurationSeconds, TimedOut: res.TimedOut,
	}
	if res.StdoutTruncated {
		raw.Stdout += result.TruncationWarning(int64(x.captureStdout))
	}
	if res.StderrTruncated {
		raw.Stderr += result.TruncationWarning(int64(x.captureStderr))
	}
	return raw, err
}

// execution is one run of a script.
type execution struct {
	// program is the file that runs, script its name in messages, and source its name in the record;
	// empty if that is the file itself.
	script, program, source, dir, input string
	timeout                             time.Duration
	// work is the job that it is done for; zero for none.
	work sandbox.Work
	env  map[string]string
	name string
	// aliases are added to those of the options. pattern, if not nil, finds the score.
	aliases []spec.Alias
	pattern *regexp.Regexp
	// captureStdout and captureStderr bound the streams; 0 is the limit of the options.
	captureStdout, captureStderr policy.Size
}

// request completes the pattern of the options. It is pure.
func (h *Harness) request(x execution) (sandbox.Request, error) {
	if x.timeout <= 0 {
		return sandbox.Request{}, &policy.FieldError{Field: "timeout", Value: x.timeout.String(), Rule: "must be more than 0"}
	}
	req := h.opts.Request
	req.Script, req.ScriptFrom, req.Input, req.Final = x.program, x.source, x.input, filepath.Join(x.dir, finalName)
	req.Limits.Timeout = x.timeout
	req.Limits.CaptureStdout = cmp.Or(x.captureStdout, req.Limits.CaptureStdout)
	req.Limits.CaptureStderr = cmp.Or(x.captureStderr, req.Limits.CaptureStderr)
	req.Env = map[string]string{}
	maps.Copy(req.Env, h.opts.Request.Env)
	maps.Copy(req.Env, x.env)
	req.Name = cmp.Or(x.name, req.Name)
	req.Aliases = slices.Concat(req.Aliases, apartFrom(x.aliases, req.Aliases)) // the aliases of the options win
	return req, nil
}

// execute runs a script and logs how it went (EX-039).
func (h *Harness) execute(ctx context.Context, x execution) (*result.Result, error) {
	req, err := h.request(x)
	if err != nil {
		return nil, err
	}
	h.log.LogAttrs(ctx, slog.LevelInfo, "script started",
		slog.String("script", x.script), slog.String("cwd", x.dir), slog.Duration("timeout", x.timeout))
	streams := h.opts.IO
	scores := &scoreScanner{pattern: x.pattern}
	if x.pattern != nil {
		streams.WatchStdout = scores
	}
	res, err := h.box.Run(ctx, h.label(req, roleProgram), streams, h.opts.Hooks, x.work, sandbox.EmptyFinal(true))
	h.spent.note(res, roleProgram)
	if res == nil {
		return nil, err
	}
	if x.pattern != nil {
		res = withScore(res, scores)
	}
	script, code, score := slog.String("script", x.script), slog.Int("exit_code", res.ExitCode), slog.Any("score", nil)
	if res.Score != nil {
		score = slog.Float64("score", *res.Score)
	}
	h.log.LogAttrs(ctx, slog.LevelInfo, "script completed", script, slog.String("run_id", res.ID), code, slog.Float64("duration_seconds", res.DurationSeconds), score)
	if res.TimedOut {
		h.log.LogAttrs(ctx, slog.LevelWarn, "script timed out", script, slog.Duration("timeout", x.timeout))
	}
	if res.IsError {
		first, last := tracebackLines(res.ErrorTraceback)
		h.log.LogAttrs(ctx, slog.LevelWarn, "script failed", script, code, slog.String("traceback", first), slog.String("exception", last))
	}
	return res, err
}

// workIn is the work of the job that has locked a directory. Its script and its grader run one after the
// other.
func workIn(dir, version string) sandbox.Work {
	return sandbox.Work{Key: "evaluate " + dir, Version: version}
}

// withScore returns a result with the score of a pattern.
func withScore(res *result.Result, scores *scoreScanner) *result.Result {
	other := *res
	var warning string
	other.Score, warning = scores.score()
	other.ScoreUnfinished = other.Score != nil && res.Status != result.StatusExited
	other.ScoreCut = other.Score != nil && warning != ""
	other.Warnings = slices.Clone(res.Warnings)
	if warning != "" {
		other.Warnings = append(other.Warnings, warning)
	}
	return &other
}

// tracebackLines returns the first line of a traceback, which is the marker, and the last one,
// which is the exception.
func tracebackLines(traceback *string) (first, last string) {
	if traceback == nil {
		return "", ""
	}
	const most = 200 // bytes of a line in the log
	short := func(line string) string { return strings.ToValidUTF8(line[:min(len(line), most)], "") }
	first, _, _ = strings.Cut(*traceback, "\n")
	return short(first), short((*traceback)[strings.LastIndexByte(*traceback, '\n')+1:])
}
