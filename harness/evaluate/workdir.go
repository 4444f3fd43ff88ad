package evaluate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/sandbox"
)

// SetupWorkingDirectory makes input/ and final/ below base where they are missing,
// and base itself, and returns the absolute path of base (EX-001). What is there is
// left alone, so calling it again changes nothing. input may be a link to a folder;
// final may not, since runs write there.
func SetupWorkingDirectory(base string) (string, error) {
	abs, err := filepath.Abs(base)
	if err != nil {
		return "", &sandbox.PathError{Field: "working folder", Path: base, Rule: "cannot be used", Err: err}
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return "", &sandbox.PathError{Field: "working folder", Path: abs, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	input := filepath.Join(abs, inputName)
	switch err := os.Mkdir(input, 0o755); {
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Stat(input); err != nil || !info.IsDir() {
			return "", &sandbox.PathError{Field: "input", Path: input, Rule: "is not a folder", Err: fsx.Cause(err)}
		}
	case err != nil:
		return "", &sandbox.PathError{Field: "input", Path: input, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	return abs, makeFinal(filepath.Join(abs, finalName))
}

// makeFinal makes the folder for outputs, unless it is there.
func makeFinal(final string) error {
	err := os.Mkdir(final, 0o755)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	info, err := os.Lstat(final)
	switch {
	case err != nil:
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be read", Err: fsx.Cause(err)}
	case info.Mode()&fs.ModeSymlink != 0:
		return &sandbox.PathError{Field: "final", Path: final, Rule: "is a link; it must be a folder of its own"}
	case !info.IsDir():
		return &sandbox.PathError{Field: "final", Path: final, Rule: "is not a folder"}
	}
	return nil
}

// scriptMark is the file that holds the hash of the solution.py that an evaluation wrote
// last, as sha256sum prints it.
const scriptMark = "." + ScriptName + ".sha256"

// markScript notes in a working folder of its own that the script there is ours.
func markScript(job Job, dir, sha256 string) error {
	if job.Workspace == "" {
		return nil
	}
	if err := fsx.WriteFile(filepath.Join(dir, scriptMark), []byte(sha256+"  "+ScriptName+"\n"), 0o644, false); err != nil {
		return &sandbox.PathError{Field: "working folder", Path: dir, Rule: "cannot be written", Err: fsx.Cause(err)}
	}
	return nil
}

// isOurs says that an evaluation wrote the solution.py of a folder.
func isOurs(dir string) bool {
	const most = 1 << 10
	mark, err := fsx.Read(filepath.Join(dir, scriptMark), most)
	if err != nil {
		return false
	}
	sum, err := hashFile(filepath.Join(dir, ScriptName))
	return err == nil && string(mark) == sum+"  "+ScriptName+"\n"
}

// lockWorkingFolder keeps a working folder for one evaluation.
func lockWorkingFolder(dir string) (io.Closer, error) {
	lock, err := fsx.LockPath(dir)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		return nil, &WorkspaceError{Path: dir, Rule: "is in use by another evaluation", Err: sandbox.ErrBusy}
	case err != nil:
		return nil, &sandbox.PathError{Field: "working folder", Path: dir, Rule: "cannot be locked", Err: fsx.Cause(err)}
	}
	return lock, nil
}

// CheckWorkingFolder refuses a folder that does not exist, or that cannot be a working
// folder: in which to look for what a script left.
func CheckWorkingFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &WorkspaceError{Path: dir, Rule: "does not exist", Err: err, hint: "give the folder that holds final/"}
	case err != nil:
		return &WorkspaceError{Path: dir, Rule: "cannot be read: " + fsx.Cause(err).Error(), Err: err}
	case !info.IsDir():
		return &WorkspaceError{Path: dir, Rule: "is not a folder", hint: "give the folder that holds final/"}
	}
	if _, err := os.Lstat(filepath.Join(dir, finalName)); errors.Is(err, fs.ErrNotExist) {
		return &WorkspaceError{Path: dir, Rule: "has no final/", Err: err, hint: "give the folder that holds final/"}
	}
	return nil
}

// makeWorkspace makes the working folder of one job, whose data are elsewhere. One
// that holds no final/ and a solution.py that no evaluation has written is somebody
// else's: the script in it would be lost.
func makeWorkspace(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &sandbox.PathError{Field: "working folder", Path: dir, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	_, script := os.Lstat(filepath.Join(dir, ScriptName))
	_, final := os.Lstat(filepath.Join(dir, finalName))
	if script == nil && errors.Is(final, fs.ErrNotExist) && !isOurs(dir) {
		return &WorkspaceError{Path: dir, Rule: ScriptName + " is there without the final/ of an evaluation, so it may be yours"}
	}
	return makeFinal(filepath.Join(dir, finalName))
}
