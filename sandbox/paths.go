package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// resolvePaths makes the host paths of a request absolute, with links resolved,
// and checks them. It changes nothing on disk.
func resolvePaths(req Request, stateDir string) (Request, error) {
	var errs []error
	var err error
	if req.Script != "" {
		req.Script, err = resolveScript(req.Script)
		errs = append(errs, err)
	}
	if req.Input != "" {
		req.Input, err = resolveInput(req.Input, stateDir)
		errs = append(errs, err)
	}
	if req.Final != "" {
		req.Final, err = resolveFinal(req.Final, stateDir)
		errs = append(errs, err)
	}
	return req, errors.Join(errs...)
}

// resolve follows links once, so that a link that changes later changes nothing.
func resolve(field, path string) (string, fs.FileInfo, error) {
	if !utf8.ValidString(path) {
		return path, nil, &PathError{Field: field, Path: path, Rule: "is not UTF-8, which the engine's interface needs"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, nil, &PathError{Field: field, Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return abs, nil, pathProblem(field, path, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return abs, nil, pathProblem(field, path, err)
	}
	return real, info, nil
}

func pathProblem(field, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &PathError{Field: field, Path: path, Rule: spec.RuleMissing}
	}
	return &PathError{Field: field, Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
}

func resolveScript(path string) (string, error) {
	real, info, err := resolve("script", path)
	switch {
	case err != nil:
		return path, err
	case info.IsDir():
		return path, &PathError{Field: "script", Path: path, Rule: "is a folder, not a program"}
	case !info.Mode().IsRegular():
		return path, &PathError{Field: "script", Path: path, Rule: "is not a regular file"}
	case info.Size() > maxScript:
		return path, &PathError{Field: "script", Path: path, Rule: fmt.Sprintf("has %d bytes; at most %d", info.Size(), maxScript)}
	}
	return real, nil
}

func resolveInput(path, stateDir string) (string, error) {
	real, info, err := resolve("input", path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, &PathError{Field: "input", Path: path, Rule: "is not a folder"}
	}
	if err := checkMountable("input", path, real, stateDir); err != nil {
		return path, err
	}
	dir, err := os.Open(real)
	if err != nil {
		return path, &PathError{Field: "input", Path: path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	return real, dir.Close()
}

// resolveFinal accepts a folder that is missing, as long as its parent is there.
func resolveFinal(path, stateDir string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, &PathError{Field: "final", Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	if _, err := os.Lstat(abs); errors.Is(err, fs.ErrNotExist) {
		parent, info, err := resolve("final", filepath.Dir(abs))
		if err == nil && !info.IsDir() {
			err = &PathError{Field: "final", Path: path, Rule: "lies in something that is not a folder"}
		}
		if err != nil {
			return path, err
		}
		real := filepath.Join(parent, filepath.Base(abs))
		return real, checkFinal(path, real, stateDir)
	}
	real, info, err := resolve("final", path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, &PathError{Field: "final", Path: path, Rule: "is not a folder"}
	}
	if err := checkFinal(path, real, stateDir); err != nil {
		return path, err
	}
	return real, checkEmptiable(path, real)
}

// realPath follows the links in as much of a path as is there: the rules compare
// what paths stand for.
func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(realPath(parent), filepath.Base(path))
	}
	return path
}

// checkMountable refuses folders that no program may be shown.
func checkMountable(field, path, real, stateDir string) error {
	if real == filepath.Dir(real) {
		return &PathError{Field: field, Path: path, Rule: "is the root of a file system"}
	}
	if !utf8.ValidString(real) {
		return &PathError{Field: field, Path: path, Rule: "is not UTF-8, which the engine's interface needs"}
	}
	if showsTooMuch(real) {
		return &PathError{Field: field, Path: path, Rule: "is a folder of the system"}
	}
	if home, err := os.UserHomeDir(); err == nil && fsx.Within(realPath(home), real) {
		return &PathError{Field: field, Path: path, Rule: "is or holds your home folder"}
	}
	if fsx.Within(realPath(stateDir), real) {
		return &PathError{Field: field, Path: path, Rule: "is or holds the state folder " + stateDir}
	}
	if _, err := os.Stat(filepath.Join(real, "docker.sock")); err == nil {
		return &PathError{Field: field, Path: path, Rule: "holds docker.sock: whoever reaches that is root on this machine"}
	}
	return checkAlone(field, path, real)
}

// checkEngineFolder keeps the engine's own data from programs.
func checkEngineFolder(req Request, root string) error {
	if root == "" {
		return nil
	}
	for field, path := range map[string]string{"input": req.Input, "final": req.Final} {
		if path != "" && (fsx.Within(path, realPath(root)) || fsx.Within(realPath(root), path)) {
			return &PathError{Field: field, Path: path, Rule: "is, holds or lies in the engine's data folder " + root}
		}
	}
	return nil
}

// checkFinal also keeps the records of other runs from being emptied.
func checkFinal(path, real, stateDir string) error {
	if err := checkMountable("final", path, real, stateDir); err != nil {
		return err
	}
	if belongsToSystem(real) {
		return &PathError{Field: "final", Path: path, Rule: "is emptied before a run, and is a folder of the system"}
	}
	if fsx.Within(real, realPath(stateDir)) {
		return &PathError{Field: "final", Path: path, Rule: "lies in the state folder " + stateDir + ", which holds the records of other runs"}
	}
	return nil
}

// checkEmptiable refuses to empty folders that hold more than results.
func checkEmptiable(path, real string) error {
	if cwd, err := os.Getwd(); err == nil && fsx.Within(realPath(cwd), real) {
		return &PathError{Field: "final", Path: path, Rule: "is emptied before a run, and is or holds the current folder"}
	}
	if _, err := os.Lstat(filepath.Join(real, ".git")); err == nil {
		return &PathError{Field: "final", Path: path, Rule: "is emptied before a run, and holds a Git checkout"}
	}
	return nil
}
