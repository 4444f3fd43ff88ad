// Package hostpath resolves the host paths of a request, refuses those that no program may
// see, and makes the mount table of the run. It changes nothing on disk.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// MaxScript is the maximum size of a script, in bytes. Generated scripts have kilobytes.
const MaxScript = 64 << 20

// Protected names the files that no program may see and no run may empty, in addition to the
// system's own.
type Protected struct {
	// StateDir is the directory of records and locks.
	StateDir string
	// Output reports whether a path relative to the state directory is an output of an
	// earlier run, and so may be mounted; nil means that none is.
	Output func(rel string) bool
	// Filled reports whether a run has filled a directory as its ./final; nil means that none has.
	Filled func(dir string) bool
	// TempDir is the directory of temporary files of jobs. A run may only use the temporary files of its
	// own process. OwnTemp reports whether a path is or lies in one of these; nil means that none is.
	TempDir string
	OwnTemp func(real string) bool
}

// Resolve makes the host paths of a request absolute, resolves links, checks the paths, and
// makes the mount table of the run, with the files that its masks and canaries hide. It also
// returns the files to which the paths referred. The error joins a [*spec.PathError] for
// each host path that breaks a rule, or a [*policy.FieldError] for each other field.
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
		req.Script, err = p.resolveScript(req.Script)
		errs = append(errs, err)
	}
	if req.Input != "" && !spec.IsClaim(req.Input) {
		req.Input, err = p.resolveInput(req.Input)
		errs = append(errs, err)
	}
	if req.Final != "" {
		req.Final, err = p.resolveFinal(req.Final)
		errs = append(errs, err)
	}
	return req, policy.Join(errs...)
}

// resolve follows links once, so that a link that changes later has no effect.
func (p Protected) resolve(field, path string) (string, fs.FileInfo, error) {
	if !utf8.ValidString(path) {
		return path, nil, &spec.PathError{Field: field, Path: path, Rule: "is not UTF-8, which the engine's interface needs"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, nil, &spec.PathError{Field: field, Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	if err := p.CheckLinks(field, path); err != nil {
		return abs, nil, err
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

func (p Protected) resolveScript(path string) (string, error) {
	real, info, err := p.resolve("script", path)
	switch {
	case err != nil:
		return path, err
	case info.IsDir():
		return path, &spec.PathError{Field: "script", Path: path, Rule: "is a directory, not a program"}
	case !info.Mode().IsRegular():
		return path, &spec.PathError{Field: "script", Path: path, Rule: "is not a regular file"}
	case info.Size() > MaxScript:
		return path, &spec.PathError{Field: "script", Path: path, Rule: fmt.Sprintf("has %d bytes; at most %d", info.Size(), MaxScript)}
	case p.isOthersTemp(real):
		return path, &spec.PathError{Field: "script", Path: path, Rule: "lies in " + p.TempDir + ", which holds the temporary files of other jobs"}
	}
	return real, nil
}

func (p Protected) resolveInput(path string) (string, error) {
	real, info, err := p.resolve("input", path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, &spec.PathError{Field: "input", Path: path, Rule: "is not a directory"}
	}
	if err := p.checkMountable("input", path, real); err != nil {
		return path, err
	}
	return real, checkReadable("input", path, real)
}

// checkReadable refuses a directory that this process cannot read.
func checkReadable(field, asked, real string) error {
	dir, err := os.Open(real)
	if err != nil {
		return &spec.PathError{Field: field, Path: asked, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	return dir.Close()
}

// resolveFinal accepts a directory that does not exist, if its parent does.
func (p Protected) resolveFinal(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, &spec.PathError{Field: "final", Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	if _, err := os.Lstat(abs); errors.Is(err, fs.ErrNotExist) {
		parent, info, err := p.resolve("final", filepath.Dir(abs))
		if err == nil && !info.IsDir() {
			err = &spec.PathError{Field: "final", Path: path, Rule: "lies in something that is not a directory"}
		}
		if err != nil {
			return path, err
		}
		real := filepath.Join(parent, filepath.Base(abs))
		return real, p.checkFinal(path, real)
	}
	real, info, err := p.resolve("final", path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, &spec.PathError{Field: "final", Path: path, Rule: "is not a directory"}
	}
	if err := p.checkFinal(path, real); err != nil {
		return path, err
	}
	return real, checkEmptiable(path, real)
}

// checkMountable refuses directories that no program may see.
func (p Protected) checkMountable(field, path, real string) error {
	if real == filepath.Dir(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is the root of a file system"}
	}
	if !utf8.ValidString(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is not UTF-8, which the engine's interface needs"}
	}
	if showsTooMuch(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is a directory of the system"}
	}
	if home, err := os.UserHomeDir(); err == nil && fsx.Within(fsx.RealPath(home), real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is or holds your home directory"}
	}
	if fsx.Within(fsx.RealPath(p.StateDir), real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is or holds the state directory " + p.StateDir}
	}
	if p.isOthersTemp(real) {
		return &spec.PathError{Field: field, Path: path, Rule: "is or lies in " + p.TempDir + ", which holds the temporary files of other jobs"}
	}
	return checkContent(field, path, real)
}

// checkContent refuses a directory that holds the engine's socket or other file systems.
func checkContent(field, asked, real string) error {
	if _, err := os.Stat(filepath.Join(real, "docker.sock")); err == nil {
		return &spec.PathError{Field: field, Path: asked, Rule: "holds docker.sock: access to it is root on this machine"}
	}
	below, err := fsx.MountsBelow(real)
	if err != nil {
		return &spec.PathError{Field: field, Path: asked, Rule: "its mount points cannot be listed", Err: fsx.Cause(err)}
	}
	if len(below) > 0 {
		return &spec.PathError{Field: field, Path: asked,
			Rule: fmt.Sprintf("has the mount point %s in it, which would not be there inside; give a directory without", below[0])}
	}
	return nil
}

// checkFinal refuses directories that no run may empty.
func (p Protected) checkFinal(path, real string) error {
	if err := p.checkMountable("final", path, real); err != nil {
		return err
	}
	if belongsToSystem(real) {
		return &spec.PathError{Field: "final", Path: path, Rule: "is emptied for the outputs of a run, and is a directory of the system"}
	}
	if fsx.Within(real, fsx.RealPath(p.StateDir)) && !p.isOwnTemp(real) {
		return &spec.PathError{Field: "final", Path: path, Rule: "lies in the state directory " + p.StateDir + ", which holds the records of other runs"}
	}
	return nil
}

func (p Protected) isOwnTemp(real string) bool { return p.OwnTemp != nil && p.OwnTemp(real) }

// isOthersTemp reports whether a path is or lies in the directory of temporary files, and is none of this
// process.
func (p Protected) isOthersTemp(real string) bool {
	return p.TempDir != "" && fsx.Within(real, fsx.RealPath(p.TempDir)) && !p.isOwnTemp(real)
}

// checkEmptiable refuses existing directories that hold more than results.
func checkEmptiable(path, real string) error {
	if cwd, err := os.Getwd(); err == nil && fsx.Within(fsx.RealPath(cwd), real) {
		return &spec.PathError{Field: "final", Path: path, Rule: "is emptied for the outputs of a run, and is or holds the current directory"}
	}
	if _, err := os.Lstat(filepath.Join(real, ".git")); err == nil {
		return &spec.PathError{Field: "final", Path: path, Rule: "is emptied for the outputs of a run, and holds a Git checkout"}
	}
	return nil
}

// The directories of the Filesystem Hierarchy Standard, and those of macOS.
var (
	// secretTrees must not be seen by a program, at any depth.
	secretTrees = []string{"/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/private/etc"}
	// systemTrees must not be emptied, at any depth.
	systemTrees = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/Library", "/System"}
	// sharedDirs must not be seen as a whole; the directories in them may.
	sharedDirs = []string{
		"/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var",
		"/Applications", "/Users", "/Volumes", "/private", "/private/tmp", "/private/var",
	}
)

// showsTooMuch reports whether a cleaned, absolute path is a directory of the
// system that a program must not see.
func showsTooMuch(real string) bool {
	slashed := filepath.ToSlash(real)
	return below(slashed, secretTrees) || slices.Contains(sharedDirs, slashed)
}

// belongsToSystem reports whether a cleaned, absolute path is a directory that
// must never be emptied.
func belongsToSystem(real string) bool {
	slashed := filepath.ToSlash(real)
	// /var/lib, /var/log and the like hold files of other programs.
	return showsTooMuch(real) || below(slashed, systemTrees) || path.Dir(slashed) == "/var"
}

// below reports whether a path is one of the trees or lies in one.
func below(slashed string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return fsx.Within(slashed, tree) })
}
