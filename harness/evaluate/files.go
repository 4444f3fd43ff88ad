package evaluate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
)

// Names in a working directory (EX-001).
const (
	inputName = "input"
	finalName = "final"
	// ScriptName is the file that a script is written to.
	ScriptName = "solution.py"
	// scriptMark is the file with the hash of the solution.py that an evaluation wrote last, in
	// the form of sha256sum.
	scriptMark = "." + ScriptName + ".sha256"
)

// A FileError is a file or directory of the caller that cannot be used: a task, a list of
// scripts, a results file or a working directory.
type FileError struct {
	// What is the kind of file in words; empty for a list, whose errors begin with its path.
	What, Path string
	// Line is the wrong line, from 1, or 0.
	Line int
	Rule string
	// Err is the cause, if there is one.
	Err  error
	hint string
}

func (e *FileError) Error() string {
	at := e.Path
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.Path, e.Line)
	}
	if e.What != "" {
		at = e.What + " " + at
	}
	return at + ": " + e.Rule
}

func (e *FileError) Unwrap() error { return e.Err }

// Hint says how to continue.
func (e *FileError) Hint() string { return e.hint }

// unusable names a file that cannot be used. err may be nil.
func unusable(field, path, rule string, err error) error {
	return &sandbox.PathError{Field: field, Path: path, Rule: rule, Err: fsx.Cause(err)}
}

// notUsable is [unusable] for a file that exists or not; nil for nil.
func notUsable(field, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return unusable(field, path, "does not exist", nil)
	}
	return unusable(field, path, fsx.Cause(err).Error(), nil)
}

// maxShown bounds an untrusted text in a message, in bytes.
const maxShown = 80

// shown quotes the beginning of an untrusted text for a message.
func shown(untrusted string) string { return text.Quote(untrusted, maxShown) }

// workspaceError is a directory that cannot be worked in.
func workspaceError(dir, rule string, err error, hint string) error {
	return &FileError{What: "working directory", Path: shown(dir), Rule: rule, Err: err, hint: hint}
}

// SetupWorkingDirectory creates base, and input/ and final/ in it, where they are missing, and
// returns the absolute path of base (EX-001). Existing files stay. input may be a link to a
// directory; final may not, since runs write there.
func SetupWorkingDirectory(base string) (string, error) {
	dir, err := makeAll("working directory", base)
	if err == nil {
		err = makeDir("input", filepath.Join(dir, inputName), os.Stat)
	}
	if err == nil {
		err = makeFinal(dir)
	}
	return dir, err
}

// makeAll creates a directory and its parents, unless they exist, and returns its absolute path.
func makeAll(field, path string) (string, error) {
	dir, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", unusable(field, path, "cannot be made", err)
	}
	return dir, nil
}

// makeFinal creates final/ in a directory, unless it exists.
func makeFinal(base string) error { return makeDir("final", filepath.Join(base, finalName), os.Lstat) }

// makeDir creates a directory, unless stat finds one.
func makeDir(field, dir string, stat func(string) (fs.FileInfo, error)) error {
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return unusable(field, dir, "cannot be made", err)
	}
	info, err := stat(dir)
	switch {
	case err != nil:
		return unusable(field, dir, "is not a directory", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return unusable(field, dir, "is a link; it must be a directory of its own", nil)
	case !info.IsDir():
		return unusable(field, dir, "is not a directory", nil)
	}
	return nil
}

// makeWorkspace creates the working directory of one job, whose data are elsewhere. One without
// final/ whose solution.py no evaluation has written may be the caller's: its script would be
// lost.
func makeWorkspace(path string) (string, error) {
	dir, err := makeAll("working directory", path)
	if err != nil {
		return "", err
	}
	_, script := os.Lstat(filepath.Join(dir, ScriptName))
	_, final := os.Lstat(filepath.Join(dir, finalName))
	if script == nil && errors.Is(final, fs.ErrNotExist) && !isOurs(dir) {
		return "", workspaceError(dir, ScriptName+" is there without the final/ of an evaluation, so it may be yours", nil,
			"remove or move what is there, or choose another directory with --output")
	}
	return dir, makeFinal(dir)
}

// markLine is the content of the mark of a script.
func markLine(script string) string { return hashText(script) + "  " + ScriptName + "\n" }

// markScript notes that the script in a directory is ours.
func markScript(dir, script string) error {
	if err := fsx.WriteFile(filepath.Join(dir, scriptMark), []byte(markLine(script)), 0o644, false); err != nil {
		return unusable("working directory", dir, "cannot be written", err)
	}
	return nil
}

// isOurs reports whether an evaluation wrote the solution.py of a directory.
func isOurs(dir string) bool {
	mark, err := fsx.Read(filepath.Join(dir, scriptMark), 1<<10)
	if err != nil {
		return false
	}
	script, err := fsx.Read(filepath.Join(dir, ScriptName), maxProgram)
	return err == nil && string(mark) == markLine(string(script))
}

// CleanOutputDirectory deletes everything in final/ below base and keeps the directory (EX-002),
// which is created if it is missing. Links are deleted, never followed. It refuses a final that
// is a link or not a directory, and one that a run is using ([sandbox.ErrBusy]).
//
// It is for a working directory of the caller. A harness does not need it: its runs empty final/
// at the last moment and under its lock, and move files that no run left there aside.
func CleanOutputDirectory(base string) error {
	final := filepath.Join(base, finalName)
	if err := makeFinal(base); err != nil {
		return err
	}
	if err := emptyUnused(final); err != nil {
		return unusable("final", final, "cannot be emptied", err)
	}
	return nil
}

// emptyUnused empties a directory under the lock that a run has on its ./final.
func emptyUnused(final string) error {
	root, err := fsx.OpenRealDir(final)
	if err != nil {
		return err
	}
	defer root.Close()
	lock, err := fsx.Lock(root)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		return sandbox.ErrBusy
	case err != nil:
		return err
	}
	return errors.Join(fsx.Empty(root), lock.Close())
}

// CheckWorkingDirectory refuses a path that is not a working directory, in which the outputs of a
// script are.
func CheckWorkingDirectory(dir string) error {
	info, err := os.Stat(dir)
	var rule string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		rule = "does not exist"
	case err != nil:
		rule = "cannot be read: " + fsx.Cause(err).Error()
	case !info.IsDir():
		rule = "is not a directory"
	default:
		if _, err = os.Lstat(filepath.Join(dir, finalName)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		rule = "has no final/"
	}
	return workspaceError(dir, rule, err, "give the directory that holds final/")
}

// LockWorkspace keeps a directory of working directories for the caller until release is called.
// It is created if it is missing. A locked one is [sandbox.ErrBusy]. The working directories in
// it are not locked; each evaluation locks its own.
func LockWorkspace(dir string) (release func() error, err error) {
	if _, err := makeAll("workspace", dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir, "batch")
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}

// lockDir locks a directory for one evaluation or batch.
func lockDir(dir, user string) (io.Closer, error) {
	lock, err := fsx.LockPath(dir)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		return nil, workspaceError(dir, "is in use by another "+user, sandbox.ErrBusy, "wait for its end, or choose another directory with --output")
	case err != nil:
		return nil, unusable("working directory", dir, "cannot be locked", err)
	}
	return lock, nil
}
