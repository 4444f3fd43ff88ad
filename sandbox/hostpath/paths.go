// Package hostpath resolves the host paths of a request, refuses those that no program may
// see, and makes the mount table of the run. It changes nothing on disk.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// MaxScript bounds a program file, in bytes. Generated scripts have kilobytes.
const MaxScript = 64 << 20

// Protected is what no program may see or empty, in addition to the system's own files.
type Protected struct {
	// StateDir is the directory of records and locks.
	StateDir string
	// Output reports whether a path in the state directory, relative to it, is an output
	// of an earlier run and nothing else of its record; nil is none.
	Output func(rel string) bool
}

// Resolve makes the host paths of a request absolute, with links resolved, checks them,
// and makes the mount table of the run, with what its masks and canaries hide. It also
// returns the paths as they were when they were checked. The error joins what is wrong,
// as a [*spec.PathError] for a path of the host, or a [*policy.FieldError].
func Resolve(ctx context.Context, req spec.Request, p Protected) (spec.Layout, Verified, error) {
	req, err := p.resolvePaths(req)
	if err != nil {
		return spec.Layout{}, nil, err
	}
	layout, err := p.resolveMounts(ctx, req)
	if err != nil {
		return spec.Layout{}, nil, err
	}
	verified, err := verify(layout)
	return layout, verified, err
}

// resolvePaths resolves script, input and final.
func (p Protected) resolvePaths(req spec.Request) (spec.Request, error) {
	var errs []error
	var err error
	if req.Script != "" {
		req.Script, err = resolveScript(req.Script)
		errs = append(errs, err)
	}
	if req.Input != "" {
		req.Input, err = p.resolveInput(req.Input)
		errs = append(errs, err)
	}
	if req.Final != "" {
		req.Final, err = p.resolveFinal(req.Final)
		errs = append(errs, err)
	}
	return req, errors.Join(errs...)
}

// resolve follows links once, so that a link that changes later changes nothing.
func resolve(field, path string) (string, fs.FileInfo, error) {
	if !utf8.ValidString(path) {
		return path, nil, &spec.PathError{Field: field, Path: path, Rule: "is not UTF-8, which the engine's interface needs"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, nil, &spec.PathError{Field: field, Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
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
		return &spec.PathError{Field: field, Path: path, Rule: spec.RuleMissing}
	}
	return &spec.PathError{Field: field, Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
}

func resolveScript(path string) (string, error) {
	real, info, err := resolve("script", path)
	switch {
	case err != nil:
		return path, err
	case info.IsDir():
		return path, &spec.PathError{Field: "script", Path: path, Rule: "is a folder, not a program"}
	case !info.Mode().IsRegular():
		return path, &spec.PathError{Field: "script", Path: path, Rule: "is not a regular file"}
	case info.Size() > MaxScript:
		return path, &spec.PathError{Field: "script", Path: path, Rule: fmt.Sprintf("has %d bytes; at most %d", info.Size(), MaxScript)}
	}
	return real, nil
}

func (p Protected) resolveInput(path string) (string, error) {
	real, info, err := resolve("input", path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, &spec.PathError{Field: "input", Path: path, Rule: "is not a folder"}
	}
	if err := p.checkMountable("input", path, real); err != nil {
		return path, err
	}
	dir, err := os.Open(real)
	if err != nil {
		return path, &spec.PathError{Field: "input", Path: path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	return real, dir.Close()
}

// resolveFinal accepts a folder that is missing, as long as its parent is there.
func (p Protected) resolveFinal(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, &spec.PathError{Field: "final", Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	if _, err := os.Lstat(abs); errors.Is(err, fs.ErrNotExist) {
		parent, info, err := resolve("final", filepath.Dir(abs))
		if err == nil && !info.IsDir() {
			err = &spec.PathError{Field: "final", Path: path, Rule: "lies in something that is not a folder"}
		}
		if err != nil {
			return path, err
		}
		real := filepath.Join(parent, filepath.Base(abs))
		return real, p.checkFinal(path, real)
	}
	real, info, err := resolve("final", path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, &spec.PathError{Field: "final", Path: path, Rule: "is not a folder"}
	}
	if err := p.checkFinal(path, real); err != nil {
		return path, err
	}
	return real, checkEmptiable(path, real)
}

// checkMountable refuses folders that no program may be shown.
func (p Protected) checkMountable(field, path, real string) error {
	if real == filepath.Dir(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is the root of a file system"}
	}
	if !utf8.ValidString(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is not UTF-8, which the engine's interface needs"}
	}
	if showsTooMuch(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is a folder of the system"}
	}
	if home, err := os.UserHomeDir(); err == nil && fsx.Within(fsx.RealPath(home), real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is or holds your home folder"}
	}
	if fsx.Within(fsx.RealPath(p.StateDir), real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is or holds the state folder " + p.StateDir}
	}
	if _, err := os.Stat(filepath.Join(real, "docker.sock")); err == nil {
		return &spec.PathError{Field: field, Path: path, Rule: "holds docker.sock: whoever reaches that is root on this machine"}
	}
	return checkAlone(field, path, real)
}

// checkFinal also keeps the records of other runs from being emptied.
func (p Protected) checkFinal(path, real string) error {
	if err := p.checkMountable("final", path, real); err != nil {
		return err
	}
	if belongsToSystem(real) {
		return &spec.PathError{Field: "final", Path: path, Rule: "is emptied before a run, and is a folder of the system"}
	}
	if fsx.Within(real, fsx.RealPath(p.StateDir)) {
		return &spec.PathError{Field: "final", Path: path, Rule: "lies in the state folder " + p.StateDir + ", which holds the records of other runs"}
	}
	return nil
}

// checkEmptiable refuses to empty folders that hold more than results.
func checkEmptiable(path, real string) error {
	if cwd, err := os.Getwd(); err == nil && fsx.Within(fsx.RealPath(cwd), real) {
		return &spec.PathError{Field: "final", Path: path, Rule: "is emptied before a run, and is or holds the current folder"}
	}
	if _, err := os.Lstat(filepath.Join(real, ".git")); err == nil {
		return &spec.PathError{Field: "final", Path: path, Rule: "is emptied before a run, and holds a Git checkout"}
	}
	return nil
}
