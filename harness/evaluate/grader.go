package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Grader scores what a script left behind, so that the score is not the script's own
// word. It is a program of the caller, and runs in a second fresh container, without
// network and without GPUs. There it finds a copy of what the script left in ./final,
// made after the script's container was gone, as ./input/submission, and the answers,
// which no script is ever shown, as ./input/answers. Both are read-only. It prints its
// score as scripts do: "Final Validation Performance: 0.9625".
//
// A grader reads a stranger's files. It should parse them as data (CSV, JSON), not
// load them as code (pickle), and print nothing that it read.
type Grader struct {
	// Script is the host path of a Python program, which is read when the evaluator is
	// made, and Answers that of a folder.
	Script, Answers string
	// Limits bound the grader's run; zero fields are the policy's defaults, and a
	// zero time limit is [DefaultGraderTimeout].
	Limits policy.Limits
	// MaxBytes bounds what is copied for one grading; 0 is [DefaultGraderBytes].
	MaxBytes policy.Size
	// TempDir is where the copies are made; empty is [os.TempDir].
	TempDir string
}

// Defaults of a [Grader].
const (
	DefaultGraderTimeout             = 10 * time.Minute
	DefaultGraderBytes   policy.Size = 20 * policy.GiB
)

// Grading tells how a grading went.
type Grading struct {
	// Run is the grader's run; nil when none took place.
	Run *RunFacts `json:"run"`
	// Score is the score that it printed; nil when the grading failed.
	Score *float64 `json:"score"`
	// Failure is why there is no score; empty when there is one.
	Failure string `json:"failure"`
	// Ended says that the grader ended by itself, so that its failure is about what the
	// script left: grading that again would give the same.
	Ended bool `json:"ended"`
	// Canceled says that the caller ended the grading.
	Canceled bool `json:"canceled"`
	// Traceback is the grader's, if it printed one.
	Traceback *string `json:"traceback"`
}

// Conclusive says that grading again has no point: there is a score, or the grader ended
// by itself without one. A grading that was canceled, that took too much time or memory,
// or in which something of ours failed, is not conclusive.
func (g Grading) Conclusive() bool { return g.Failure == "" || g.Ended && !g.Canceled }

// Names in the input folder of a grader.
const (
	gradedName  = "submission"
	answersName = "answers"
)

// checkApart refuses answers that every script would see, and data that would be
// answers.
func (g Grader) checkApart(input string) error {
	answers, err := filepath.EvalSymlinks(g.Answers)
	if err != nil {
		return &sandbox.PathError{Field: "answers", Path: g.Answers, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if input, err = filepath.EvalSymlinks(input); err != nil {
		return &sandbox.PathError{Field: "input", Path: input, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if answers, err = filepath.Abs(answers); err != nil {
		return err
	}
	if fsx.Within(input, answers) || fsx.Within(answers, input) {
		return &sandbox.PathError{Field: "answers", Path: g.Answers, Rule: "shares a folder with the input, in which every script would see them"}
	}
	return nil
}

// maxGrader bounds a grader, as a run does.
const maxGrader = 64 << 20

// read returns the grader's program, and refuses a grader that could never run.
func (g Grader) read() ([]byte, error) {
	text, err := fsx.Read(g.Script, maxGrader)
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = errors.New("is empty")
	}
	var errs []error
	if err != nil {
		errs = append(errs, unusable("grader", g.Script, err))
	}
	switch info, err := os.Stat(g.Answers); {
	case err != nil:
		errs = append(errs, unusable("answers", g.Answers, err))
	case !info.IsDir():
		errs = append(errs, unusable("answers", g.Answers, errors.New("is not a folder")))
	}
	return text, errors.Join(errs...)
}

// unusable names a file of the options that cannot be used.
func unusable(field, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sandbox.PathError{Field: field, Path: path, Rule: "does not exist"}
	}
	return &sandbox.PathError{Field: field, Path: path, Rule: fsx.Cause(err).Error()}
}

// grade grades what a run left in final. Every failure stands in the answer.
func (e *Evaluator) grade(ctx context.Context, job Job, final string, res *result.Result) *Grading {
	if e.opts.Grading != nil {
		e.opts.Grading(job.Name)
	}
	g := &Grading{}
	if err := e.gradeInto(ctx, job, final, res, g); err != nil {
		g.Score, g.Failure = nil, err.Error()
		if ctx.Err() != nil || g.Run != nil && g.Run.Status == result.StatusCanceled {
			g.Canceled, g.Failure = true, "the grading was canceled"
		}
		e.log.LogAttrs(ctx, slog.LevelWarn, "grading failed", slog.String("run_id", res.ID), slog.String("error", err.Error()))
	}
	return g
}

func (e *Evaluator) gradeInto(ctx context.Context, job Job, final string, res *result.Result, g *Grading) error {
	grader := *e.opts.Grader
	// The folder above keeps other users of the host out; the one that is mounted
	// must be readable for whatever user the grader runs as.
	private, err := os.MkdirTemp(grader.TempDir, "evalbox-grading-*")
	if err != nil {
		return fmt.Errorf("making a folder for the grading: %w", err)
	}
	defer func() {
		if err := fsx.Remove(private); err != nil { // the score is what it is
			e.log.LogAttrs(ctx, slog.LevelWarn, "the folder of a grading is left behind", slog.String("path", private), slog.String("error", err.Error()))
		}
	}()
	input := filepath.Join(private, inputName)
	if err := stage(ctx, grader, input, final, res.Outputs); err != nil {
		return err
	}
	// What was hashed runs, and not what the file holds by now.
	program := filepath.Join(private, "program")
	grader.Script = filepath.Join(program, filepath.Base(grader.Script))
	if err = os.Mkdir(program, 0o700); err == nil {
		err = os.WriteFile(grader.Script, e.grader, 0o600)
	}
	if err != nil {
		return fmt.Errorf("copying the grader: %w", err)
	}
	hooks := e.opts.Hooks
	hooks.Started = nil
	graded, err := e.runner.Run(ctx, grader.request(e.opts.Request, input, job.Name), hooks)
	if graded != nil {
		g.Run, g.Traceback = factsOf(graded), graded.ErrorTraceback
	}
	if err != nil {
		return fmt.Errorf("running the grader: %w", err)
	}
	g.Ended = graded.Status == result.StatusExited || graded.Status == result.StatusSignaled
	if err := graderFailure(graded); err != nil {
		return err
	}
	g.Score = graded.Score
	return nil
}

// request is the grader's run: the pattern of the scripts' runs without whatever was
// opened for them. It is pure.
func (g Grader) request(pattern sandbox.Request, input, name string) sandbox.Request {
	req := sandbox.Request{
		Name: "grader", Script: g.Script, Input: input, Image: pattern.Image, User: pattern.User,
		Runtime: pattern.Runtime, Limits: g.Limits, Labels: map[string]string{},
		AllowUnlocked: pattern.AllowUnlocked, Transfer: pattern.Transfer,
	}
	if name != "" {
		req.Labels["graded"] = name
	}
	if req.Limits.Timeout == 0 {
		req.Limits.Timeout = DefaultGraderTimeout
	}
	return req
}

// graderFailure says why a grader's run gives no score, or nil.
func graderFailure(res *result.Result) error {
	switch {
	case res.Status != result.StatusExited || res.IsError:
		why := res.Explanation
		if _, last := tracebackLines(res.ErrorTraceback); last != "" {
			why = last
		}
		return fmt.Errorf("the grader failed (%s, exit code %d): %s", res.Status, res.ExitCode, why)
	case res.Score == nil:
		return errors.New("the grader printed no score: it must print Final Validation Performance: NUMBER")
	}
	return nil
}
