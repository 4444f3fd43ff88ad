package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Grader scores the outputs of a script, so that the score is not the script's own word. It is
// a program of the caller, and runs in a second fresh container, without network and without
// GPUs. ./input/submission there is a copy of the outputs, made after the script's container
// was gone, and ./input/answers are the answers, which no script ever sees. Both are
// read-only. The grader prints its score as scripts do: "Final Validation Performance: 0.9625".
//
// A grader reads untrusted files. It should parse them as data (CSV, JSON), not load them as
// code (pickle), and print nothing that it read.
type Grader struct {
	// Script is the host path of a Python program, or of a directory with the program grade.py and
	// modules that it imports. [New] reads it; a directory must not change afterwards. Answers is the
	// host path of a directory.
	Script, Answers string
	// Image is the image of the grader's run; empty is that of the scripts' runs.
	Image string
	// Limits bound the grader's run; zero fields are the policy's defaults, and a zero time
	// limit is [DefaultGraderTimeout].
	Limits policy.Limits
	// MaxBytes bounds the copies of one grading; 0 is [DefaultGraderBytes].
	MaxBytes policy.Size
}

const (
	DefaultGraderTimeout             = 10 * time.Minute
	DefaultGraderBytes   policy.Size = 20 * policy.GiB

	// maxProgram bounds a script and a grader, in bytes, as a run does.
	maxProgram = 64 << 20
	// maxAnswers bounds the entries of the answers.
	maxAnswers = 100_000

	// GraderMain is the program of a grader that is a directory.
	GraderMain = "grade.py"
	// graderDir is where such a directory is in the grader's container.
	graderDir = spec.WorkDir + "/grader"

	gradedName  = "submission"
	answersName = "answers"
)

// Grading is how a grading went.
type Grading struct {
	// Run is the grader's run; nil when none took place.
	Run *RunFacts `json:"run"`
	// Score is the score that the grader printed; nil when the grading failed.
	Score *float64 `json:"score"`
	// ScoreCut is [result.Result.ScoreCut] of Score.
	ScoreCut bool `json:"score_cut,omitempty"`
	// Failure says why there is no score; empty when there is one.
	Failure string `json:"failure"`
	// Ended says that the grader's run is conclusive, so that its failure is about the outputs.
	Ended bool `json:"ended"`
	// Canceled says that the caller ended the grading.
	Canceled bool `json:"canceled"`
	// Traceback is the grader's, if it printed one.
	Traceback *string `json:"traceback"`
}

// Conclusive reports whether grading again has no point: there is a score, or the grader's run
// is conclusive without one; see [result.Result.Conclusive]. A grading that was canceled, or in
// which we failed, is not.
func (g Grading) Conclusive() bool { return g.Failure == "" || g.Ended && !g.Canceled }

// read returns the grader's program and, if it is a directory, the digest of that. It refuses a
// grader that could never run.
func (g Grader) read(ctx context.Context) (program []byte, digest string, err error) {
	main := g.Script
	if g.isDir() {
		var sum treehash.Digest
		if sum, err = treehash.Of(ctx, g.Script, treehash.Options{Leave: leftOut}); err != nil {
			return nil, "", notUsable("grader", g.Script, err)
		}
		main, digest = filepath.Join(g.Script, GraderMain), sum.Sum
	}
	program, err = fsx.Read(main, maxProgram)
	if err == nil && len(bytes.TrimSpace(program)) == 0 {
		err = errors.New("is empty")
	}
	info, answersErr := os.Stat(g.Answers)
	if answersErr == nil && !info.IsDir() {
		answersErr = errors.New("is not a directory")
	}
	return program, digest, errors.Join(notUsable("grader", main, err), notUsable("answers", g.Answers, answersErr))
}

func (g Grader) isDir() bool {
	info, err := os.Stat(g.Script)
	return err == nil && info.IsDir()
}

// leftOut are the parts of a grader's directory that Python makes itself, and links and special
// files.
func leftOut(name string, mode fs.FileMode) bool {
	return filepath.Base(name) == "__pycache__" || !mode.IsDir() && !mode.IsRegular()
}

// checkApart refuses answers that every script would see, and data that are in the answers.
func (g Grader) checkApart(input string) error {
	answers, err := filepath.EvalSymlinks(g.Answers)
	if err == nil {
		answers, err = filepath.Abs(answers)
	}
	if err != nil {
		return unusable("answers", g.Answers, "cannot be read", err)
	}
	if input, err = filepath.EvalSymlinks(input); err != nil {
		return unusable("input", input, "cannot be read", err)
	}
	if fsx.Within(input, answers) || fsx.Within(answers, input) {
		return unusable("answers", g.Answers, "shares a directory with the input, in which every script would see them", nil)
	}
	return nil
}

// grade grades the outputs of a run in final. Failures are part of the grading.
func (h *Harness) grade(ctx context.Context, job Job, final string, ran *result.Result) *Grading {
	if h.opts.Grading != nil {
		h.opts.Grading(job.Name)
	}
	g := &Grading{}
	graded, err := h.runGrader(ctx, job, final, ran)
	if graded != nil {
		g.Run, g.Traceback = factsOf(graded), graded.ErrorTraceback
		if err == nil {
			g.Ended = graded.Conclusive()
			g.Score, err = scoreOf(graded)
			g.ScoreCut = g.Score != nil && graded.ScoreCut
		}
	}
	if err != nil {
		g.Failure = err.Error()
		if ctx.Err() != nil || g.Run != nil && g.Run.Status == result.StatusCanceled {
			g.Canceled, g.Failure = true, "the grading was canceled"
		}
		h.log.LogAttrs(ctx, slog.LevelWarn, "grading failed", slog.String("run_id", ran.ID), slog.String("error", err.Error()))
	}
	return g
}

// runGrader runs the grader on copies of the outputs and the answers.
func (h *Harness) runGrader(ctx context.Context, job Job, final string, ran *result.Result) (*result.Result, error) {
	grader := *h.opts.Grader
	// The outer directory keeps other users of the host out; the inner one, which is mounted,
	// must be readable for the user that the grader runs as.
	private, remove, err := h.box.Store().Temp("grading")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the grading: %w", err)
	}
	defer func() {
		if err := remove(); err != nil { // the score is valid nevertheless
			h.log.LogAttrs(ctx, slog.LevelWarn, "the directory of a grading is left behind", slog.String("path", private), slog.String("error", err.Error()))
		}
	}()
	input, program := filepath.Join(private, inputName), filepath.Join(private, "program")
	if err := stage(ctx, grader, input, final, ran.Outputs); err != nil {
		return nil, err
	}
	req := grader.request(h.opts.Request, input, job.Name)
	if h.graderSum == "" {
		// The program that was hashed runs, whatever its file contains now.
		req.Script = filepath.Join(program, filepath.Base(grader.Script))
		req.ScriptFrom, _ = filepath.Abs(grader.Script) // empty if the current directory is gone
		err = errors.Join(os.Mkdir(program, 0o700), os.WriteFile(req.Script, h.grader, 0o600))
	} else {
		req.Script, req.Command = "", []string{"python3", graderDir + "/" + GraderMain}
		req.Mounts = []sandbox.Mount{{Source: program, Target: graderDir}}
		err = stageModules(ctx, grader, program, h.graderSum)
	}
	if err != nil {
		return nil, fmt.Errorf("copying the grader: %w", err)
	}
	hooks := h.opts.Hooks
	hooks.Started, hooks.More, hooks.Peers = nil, noMore, nil // the copies are of one grading
	graded, err := h.box.Run(ctx, h.label(req, roleGrader), hooks, workIn(filepath.Dir(final), roleGrader))
	h.spent.note(graded, roleGrader)
	if err != nil {
		err = fmt.Errorf("running the grader: %w", err)
	}
	return graded, err
}

func noMore() int { return 0 }

// request is the grader's run: the pattern of the scripts' runs without everything that it
// opens for them. It is pure.
func (g Grader) request(pattern sandbox.Request, input, name string) sandbox.Request {
	req := sandbox.Request{
		Name: "grader", Script: g.Script, Input: input, Image: cmp.Or(g.Image, pattern.Image), User: pattern.User,
		Runtime: pattern.Runtime, Limits: g.Limits, Labels: map[string]string{},
		AllowUnlocked: pattern.AllowUnlocked, Transfer: pattern.Transfer,
	}
	if name != "" {
		req.Labels["graded"] = name
	}
	req.Limits.Timeout = cmp.Or(req.Limits.Timeout, DefaultGraderTimeout)
	return req
}

// scoreOf returns the score of a grader's run.
func scoreOf(res *result.Result) (*float64, error) {
	switch {
	case res.Status != result.StatusExited || res.IsError:
		why := res.Explanation
		if _, last := tracebackLines(res.ErrorTraceback); last != "" {
			why = last
		}
		return nil, fmt.Errorf("the grader failed (%s, exit code %d): %s", res.Status, res.ExitCode, why)
	case res.Score == nil:
		return nil, errors.New("the grader printed no score: it must print Final Validation Performance: NUMBER")
	}
	return res.Score, nil
}

// stage fills the new directory to with a copy of the outputs, each of which must still have
// the hash of the run's result, and with the answers.
func stage(ctx context.Context, grader Grader, to, final string, outputs []result.Output) error {
	s := staging{left: cmp.Or(grader.MaxBytes, DefaultGraderBytes)}
	err := errors.Join(os.Mkdir(to, 0o755), os.Mkdir(filepath.Join(to, gradedName), 0o755), os.Mkdir(filepath.Join(to, answersName), 0o755))
	if err != nil {
		return err
	}
	err = fsx.InRoot(to, func(root *os.Root) error {
		s.to = root
		if err := s.outputs(ctx, final, outputs); err != nil {
			return err
		}
		return s.answers(ctx, grader.Answers)
	})
	if err != nil {
		return err
	}
	return readable(to)
}

// stageModules fills the new directory to with a copy of a grader that is a directory and that must
// still have the given digest.
func stageModules(ctx context.Context, grader Grader, to, digest string) error {
	s := staging{left: cmp.Or(grader.MaxBytes, DefaultGraderBytes)}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	err := fsx.InRoot(grader.Script, func(from *os.Root) error {
		return fsx.InRoot(to, func(root *os.Root) error {
			s.to = root
			return fs.WalkDir(from.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case name != "." && leftOut(name, entry.Type()):
					if entry.IsDir() {
						return fs.SkipDir
					}
					return nil
				case entry.IsDir():
					return root.MkdirAll(name, 0o755)
				}
				if _, err = s.copy(ctx, from, name, name); err != nil {
					return err
				}
				info, err := entry.Info()
				if err == nil && info.Mode()&0o111 != 0 { // it counts in the digest
					err = root.Chmod(name, 0o755)
				}
				return err
			})
		})
	})
	if err != nil {
		return unusable("grader", grader.Script, "cannot be staged", err)
	}
	sum, err := treehash.Of(ctx, to, treehash.Options{})
	if err == nil && sum.Sum != digest {
		err = unusable("grader", grader.Script, "has changed since the evaluation began", nil)
	}
	return errors.Join(err, readable(to))
}

// readable lets every user read the copies below a directory, whatever our umask is.
func readable(to string) error {
	return filepath.WalkDir(to, func(path string, entry fs.DirEntry, err error) error {
		mode := fs.FileMode(0o644)
		if err == nil && entry.IsDir() {
			mode = 0o755
		}
		return errors.Join(err, os.Chmod(path, mode)) //nolint:gosec // a new directory of our own, which nobody else can write
	})
}

// staging fills the input directory of a grader.
type staging struct {
	to   *os.Root
	left policy.Size
}

// outputs copies the outputs of a run. The grader reports what is missing.
func (s *staging) outputs(ctx context.Context, final string, outputs []result.Output) error {
	if len(outputs) == 0 {
		return nil
	}
	from, err := os.OpenRoot(final)
	if err != nil {
		return unusable("final", final, "cannot be opened", err)
	}
	defer from.Close()
	for _, output := range outputs {
		name := output.Path
		if output.PathBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(output.PathBase64)
			if err != nil {
				return fmt.Errorf("output %s: its name cannot be read: %w", shown(output.Path), err)
			}
			name = string(raw)
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("output %s: is not below ./final", shown(output.Path))
		}
		sum, err := s.copy(ctx, from, name, filepath.Join(gradedName, name))
		if err == nil && sum != output.SHA256 {
			err = errors.New("changed after the run")
		}
		if err != nil {
			return unusable("final", output.Path, "cannot be graded", err)
		}
	}
	return nil
}

// answers copies the answers. They are the caller's own, so links to files are followed.
func (s *staging) answers(ctx context.Context, dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return unusable("answers", dir, "cannot be read", err)
	}
	count := 0
	return filepath.WalkDir(real, func(path string, entry fs.DirEntry, err error) error {
		if count++; count > maxAnswers {
			return unusable("answers", dir, fmt.Sprintf("has more than %d entries", maxAnswers), nil)
		}
		if err == nil && entry.IsDir() {
			return nil
		}
		file := ""
		if err == nil {
			file, err = filepath.EvalSymlinks(path)
		}
		if err == nil {
			err = fsx.InRoot(filepath.Dir(file), func(from *os.Root) error {
				_, err := s.copy(ctx, from, filepath.Base(file), filepath.Join(answersName, strings.TrimPrefix(path, real)))
				return err
			})
		}
		if err != nil {
			return unusable("answers", path, "cannot be staged", err)
		}
		return nil
	})
}

// copy copies a regular file, within the rest of the bound, and returns its SHA-256.
func (s *staging) copy(ctx context.Context, from *os.Root, name, to string) (sum string, err error) {
	source, _, err := fsx.OpenIn(from, name)
	if err != nil {
		return "", err
	}
	defer source.Close()
	if err := s.to.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	hash := sha256.New()
	limited := fsx.WithContext(ctx, io.LimitReader(source, int64(s.left)+1))
	n, err := fsx.Create(s.to, to, io.TeeReader(limited, hash), 0o644)
	if err != nil {
		return "", err
	}
	if s.left -= policy.Size(n); s.left < 0 {
		return "", errors.New("there is more to copy for the grader than is permitted")
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
