package evaluate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
		return "", &sandbox.PathError{Field: "working folder", Path: abs, Rule: "cannot be made", Err: cause(err)}
	}
	input := filepath.Join(abs, inputName)
	switch err := os.Mkdir(input, 0o755); {
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Stat(input); err != nil || !info.IsDir() {
			return "", &sandbox.PathError{Field: "input", Path: input, Rule: "is not a folder", Err: cause(err)}
		}
	case err != nil:
		return "", &sandbox.PathError{Field: "input", Path: input, Rule: "cannot be made", Err: cause(err)}
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
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be made", Err: cause(err)}
	}
	info, err := os.Lstat(final)
	switch {
	case err != nil:
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be read", Err: cause(err)}
	case info.Mode()&fs.ModeSymlink != 0:
		return &sandbox.PathError{Field: "final", Path: final, Rule: "is a link; it must be a folder of its own"}
	case !info.IsDir():
		return &sandbox.PathError{Field: "final", Path: final, Rule: "is not a folder"}
	}
	return nil
}

// makeWorkspace makes the working folder of one job, whose data are elsewhere. One
// that holds a solution.py and no final/ is somebody else's: the script in it would be
// lost.
func makeWorkspace(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &sandbox.PathError{Field: "working folder", Path: dir, Rule: "cannot be made", Err: cause(err)}
	}
	_, script := os.Lstat(filepath.Join(dir, ScriptName))
	_, final := os.Lstat(filepath.Join(dir, finalName))
	if script == nil && errors.Is(final, fs.ErrNotExist) {
		return &sandbox.PathError{Field: "working folder", Path: dir, Rule: "holds a " + ScriptName + " that no evaluation left there"}
	}
	return makeFinal(filepath.Join(dir, finalName))
}
