package evaluate

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// ScriptName is the file that a solution is written to.
const ScriptName = "solution.py"

// WriteScript writes a solution into workingDir as name, or as [ScriptName] when
// name is empty, and returns the absolute path (EX-005). The file holds exactly the
// content; one that is there is replaced, at once and as a whole, and a link is not
// followed. A script that breaks a rule of [ValidateScript] is a [*ScriptError], and
// nothing is written.
func WriteScript(solution SolutionScript, workingDir, name string) (string, error) {
	if name == "" {
		name = ScriptName
	}
	if err := CheckScript(solution.Content); err != nil {
		return "", err
	}
	if name != filepath.Base(name) || !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`) {
		return "", &policy.FieldError{Field: "filename", Value: shown(name), Rule: "must be the name of a file, without a folder"}
	}
	abs, err := filepath.Abs(workingDir)
	if err != nil {
		return "", &sandbox.PathError{Field: "working folder", Path: workingDir, Rule: "cannot be used", Err: err}
	}
	if err := replaceFile(abs, name, []byte(solution.Content)); err != nil {
		return "", &sandbox.PathError{Field: "script", Path: filepath.Join(abs, name), Rule: "cannot be written", Err: cause(err)}
	}
	return filepath.Join(abs, name), nil
}

// replaceFile writes a file of a folder in one step.
func replaceFile(dir, name string, content []byte) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return &fs.PathError{Op: "write", Path: name, Err: errors.New("is a folder")}
	}
	temporary := "." + name + "-" + rand.Text()
	err = root.WriteFile(temporary, content, 0o644)
	if err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		_ = root.Remove(temporary) // the first error is the one to report
	}
	return err
}

// writeScript is WriteScript with its log record (EX-039).
func (e *Evaluator) writeScript(ctx context.Context, solution SolutionScript, dir string) (string, error) {
	path, err := WriteScript(solution, dir, ScriptName)
	if err != nil {
		return "", err
	}
	e.log.LogAttrs(ctx, slog.LevelDebug, "script written", slog.String("path", path), slog.Int("length", len(solution.Content)))
	return path, nil
}
