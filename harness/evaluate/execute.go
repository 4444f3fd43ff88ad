package evaluate

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// ExecuteScript runs a script in a fresh container (EX-007, EX-010, EX-041, EX-042)
// that finds input/ of workingDir, read-only, as ./input, and its empty final/ as
// ./final, and returns what it printed. A script that fails or times out is no
// error (EX-008, EX-009): after timeout it gets SIGTERM, 5 seconds later SIGKILL, and
// so does everything that it started (EX-037). env is added to the environment of
// every run and to that of the options; nothing of the caller's own environment is.
//
// Each stream is kept up to [MaxRawOutput], or up to the limits of the options where
// they name some. Of a longer one there are its head and its tail, with
// [result.TruncationWarning] after them (EX-038).
func (e *Evaluator) ExecuteScript(ctx context.Context, scriptPath, workingDir string, timeout time.Duration,
	env map[string]string,
) (result.ExecutionRawResult, error) {
	dir, err := filepath.Abs(workingDir)
	if err != nil {
		return result.ExecutionRawResult{}, &sandbox.PathError{Field: "working folder", Path: workingDir, Rule: "cannot be used", Err: err}
	}
	limits := e.opts.Request.Limits
	x := execution{
		script: scriptPath, dir: dir, input: filepath.Join(dir, inputName), timeout: timeout, env: env,
		captureStdout: cmp.Or(limits.CaptureStdout, MaxRawOutput), captureStderr: cmp.Or(limits.CaptureStderr, MaxRawOutput),
	}
	res, err := e.execute(ctx, x)
	if res == nil {
		return result.ExecutionRawResult{}, err
	}
	return result.ExecutionRawResult{
		Stdout: warned(res.Stdout, res.StdoutTruncated, x.captureStdout), Stderr: warned(res.Stderr, res.StderrTruncated, x.captureStderr),
		ExitCode: res.ExitCode, DurationSeconds: res.DurationSeconds, TimedOut: res.TimedOut,
	}, err
}

// MaxRawOutput is how much of each stream [Evaluator.ExecuteScript] returns (EX-038).
const MaxRawOutput = 100 * policy.MiB

// warned is the text of a stream, with a warning if it was cut.
func warned(text string, truncated bool, limit policy.Size) string {
	if !truncated {
		return text
	}
	return text + result.TruncationWarning(int64(limit))
}

// execution is one run to be made.
type execution struct {
	// program is what runs, if it is another file than the script that is told.
	script, program, dir, input string
	timeout                     time.Duration
	env                         map[string]string
	name                        string
	// How much of the streams is kept; 0 is what the options say.
	captureStdout, captureStderr policy.Size
}

// request completes the pattern of the options. It is pure.
func (e *Evaluator) request(x execution) (sandbox.Request, error) {
	if x.timeout <= 0 {
		return sandbox.Request{}, &policy.FieldError{Field: "timeout", Value: x.timeout.String(), Rule: "must be more than 0"}
	}
	req := e.opts.Request
	req.Script, req.Input, req.Final = cmp.Or(x.program, x.script), x.input, filepath.Join(x.dir, finalName)
	req.Limits.Timeout = x.timeout
	req.Limits.CaptureStdout = cmp.Or(x.captureStdout, req.Limits.CaptureStdout)
	req.Limits.CaptureStderr = cmp.Or(x.captureStderr, req.Limits.CaptureStderr)
	req.Env = map[string]string{}
	maps.Copy(req.Env, e.opts.Request.Env)
	maps.Copy(req.Env, x.env)
	if x.name != "" {
		req.Name = x.name
	}
	return req, nil
}

// execute runs a script and logs how it went (EX-039).
func (e *Evaluator) execute(ctx context.Context, x execution) (*result.Result, error) {
	req, err := e.request(x)
	if err != nil {
		return nil, err
	}
	if e.opts.Prepare != nil {
		release, err := e.opts.Prepare(ctx, &req)
		if err != nil {
			return nil, fmt.Errorf("preparing the run: %w", err)
		}
		if release != nil {
			defer release()
		}
	}
	e.log.LogAttrs(ctx, slog.LevelInfo, "script started",
		slog.String("script", x.script), slog.String("cwd", x.dir), slog.Duration("timeout", x.timeout))
	res, err := e.runner.Run(ctx, req, e.opts.IO, e.opts.Hooks)
	if res != nil {
		e.logEnd(ctx, x, res)
	}
	return res, err
}

func (e *Evaluator) logEnd(ctx context.Context, x execution, res *result.Result) {
	script := slog.String("script", x.script)
	score := slog.Any("score", nil)
	if res.Score != nil {
		score = slog.Float64("score", *res.Score)
	}
	e.log.LogAttrs(ctx, slog.LevelInfo, "script completed", script, slog.String("run_id", res.ID),
		slog.Int("exit_code", res.ExitCode), slog.Float64("duration_seconds", res.DurationSeconds), score)
	if res.TimedOut {
		e.log.LogAttrs(ctx, slog.LevelWarn, "script timed out", script, slog.Duration("timeout", x.timeout))
	}
	if res.IsError {
		first, last := tracebackLines(res.ErrorTraceback)
		e.log.LogAttrs(ctx, slog.LevelWarn, "script failed", script, slog.Int("exit_code", res.ExitCode),
			slog.String("traceback", first), slog.String("exception", last))
	}
}

// maxLogged bounds a line of a script's output in the log.
const maxLogged = 200

// tracebackLines are the first and the last line of a traceback: the marker, which
// is the same everywhere, and the exception.
func tracebackLines(traceback *string) (first, last string) {
	if traceback == nil {
		return "", ""
	}
	first, _, _ = strings.Cut(*traceback, "\n")
	last = (*traceback)[strings.LastIndexByte(*traceback, '\n')+1:]
	return logged(first), logged(last)
}

func logged(line string) string {
	return strings.ToValidUTF8(line[:min(len(line), maxLogged)], "")
}
