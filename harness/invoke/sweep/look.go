package sweep

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Check refuses what [Run] would refuse before its first run, as far as that can be seen
// without changing anything. Another process may use the folder.
func Check(plan Plan, opts Options) error {
	definition, err := opts.check(plan)
	if err != nil {
		return err
	}
	_, _, err = look(opts.Dir, definition, opts.Resume)
	return err
}

// look finds out whether a folder is there, and refuses one that may not be used. It
// changes nothing.
func look(dir string, definition []byte, resume bool) (path string, there bool, err error) {
	path, err = filepath.Abs(dir)
	if err != nil {
		return "", false, &FolderError{Path: dir, Rule: "has no absolute name", Err: err}
	}
	_, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, false, nil
	case err != nil:
		return "", false, &FolderError{Path: path, Rule: "cannot be looked at", Err: err}
	case !resume:
		return "", false, existing(path)
	}
	// Not even opened unless it is a folder: that would wait for the other end of a pipe.
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("is not a directory")
	}
	if err != nil {
		return "", false, noSweep(path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return "", false, &FolderError{Path: path, Rule: "cannot be opened", Err: err}
	}
	_, err = recognize(path, root, definition)
	return path, true, errors.Join(err, root.Close())
}

func existing(path string) error {
	return &FolderError{Path: path, Rule: "exists already", Err: fs.ErrExist,
		hint: "go on with the sweep that is there with --resume, or choose another folder with --output"}
}

func noSweep(path string, err error) error {
	return &FolderError{Path: path, Rule: "is not that of a sweep, which has " + DefinitionName, Err: err}
}

// maxDefinition bounds the file that says what a sweep is, which has every value and seed.
const maxDefinition = 64 << 20

// recognize says whether a folder is that of the sweep of a definition. One whose making
// was cut short, before there were runs, is not yet; any other is refused.
func recognize(path string, root *os.Root, definition []byte) (begun bool, err error) {
	text, err := fsx.ReadIn(root, DefinitionName, maxDefinition)
	if errors.Is(err, fs.ErrNotExist) {
		if isEmpty, err := empty(root); err == nil && isEmpty {
			return false, nil
		}
	}
	switch {
	case err != nil:
		return false, noSweep(path, err)
	case bytes.Equal(text, definition):
		return true, nil
	}
	if _, err := root.Lstat(RunsName); errors.Is(err, fs.ErrNotExist) && bytes.HasPrefix(definition, text) {
		return false, nil
	}
	return false, &FolderError{Path: path, Rule: "is of another sweep: " + differences(text, definition),
		hint: "give the same command again, or choose another folder with --output"}
}

func empty(root *os.Root) (bool, error) {
	dir, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer dir.Close()
	_, err = dir.ReadDir(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
