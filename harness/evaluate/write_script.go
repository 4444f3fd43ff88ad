package evaluate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
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
	path := filepath.Join(abs, name)
	if info, lookErr := os.Lstat(path); lookErr == nil && info.IsDir() {
		err = errors.New("is a folder")
	} else {
		err = fsx.WriteFile(path, []byte(solution.Content), 0o644, false)
	}
	if err != nil {
		return "", &sandbox.PathError{Field: "script", Path: path, Rule: "cannot be written", Err: fsx.Cause(err)}
	}
	return path, nil
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
