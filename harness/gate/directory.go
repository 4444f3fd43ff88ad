package gate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
)

// A DirectoryError is a gate directory that cannot be used.
type DirectoryError struct {
	Path, Rule string
	// Err is the cause, if there is one.
	Err  error
	hint string
}

func (e *DirectoryError) Error() string {
	text := fmt.Sprintf("gate directory %q: %s", e.Path, e.Rule)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *DirectoryError) Unwrap() error { return e.Err }

// Hint says how to avoid the problem.
func (e *DirectoryError) Hint() string { return e.hint }

// ErrInUse means that another run has the gate directory.
var ErrInUse = errors.New("is in use by another run")

// directory is a gate directory that this run has locked.
type directory struct {
	root *os.Root
	lock io.Closer
}

// topNames are the entries of a gate directory.
var topNames = []string{
	evidence.WishLockFile, evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile, evidence.AttestationFile, evidence.Dir,
}

// openDirectory creates a gate directory, or opens an empty or an earlier one.
func openDirectory(path string, replace bool) (dir directory, err error) {
	if path == "" {
		return directory{}, &DirectoryError{Rule: "none is named"}
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return directory{}, &DirectoryError{Path: path, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		// It may lie in the workspace, which is not trusted: the evidence would go where the
		// link leads, and an earlier gate directory there would be emptied.
		return directory{}, &DirectoryError{Path: path, Rule: "is a link", hint: "remove it, or name the directory that it leads to"}
	}
	if dir.root, err = openExisting(path); err != nil {
		return directory{}, err
	}
	dir.lock, err = fsx.Lock(dir.root)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		err = &DirectoryError{Path: path, Rule: "cannot be used", Err: ErrInUse, hint: "wait for its end, or choose another directory"}
	case err != nil:
		err = &DirectoryError{Path: path, Rule: "cannot be locked", Err: fsx.Cause(err)}
	default:
		err = clearDirectory(dir.root, path, replace)
	}
	if err != nil {
		return directory{}, errors.Join(err, dir.close())
	}
	return dir, nil
}

// openExisting opens a gate directory.
func openExisting(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, &DirectoryError{Path: path, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	return root, nil
}

// clearDirectory empties an earlier gate directory. If the directory has a verdict, this needs replace. A
// run that was killed wrote no verdict. Any other directory that is not empty is refused.
func clearDirectory(root *os.Root, path string, replace bool) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return &DirectoryError{Path: path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if len(entries) == 0 {
		return nil
	}
	earlier, finished := false, false
	for _, entry := range entries {
		// A crash may leave a file that was not complete.
		name, _, _ := strings.Cut(entry.Name(), ".new-")
		if !slices.Contains(topNames, name) {
			return &DirectoryError{Path: path, Rule: fmt.Sprintf("holds %q, which is not of a gate", entry.Name()), hint: "choose a new directory"}
		}
		earlier = earlier || name == evidence.WishLockFile || name == evidence.RunManifestFile
		finished = finished || entry.Name() == evidence.VerdictFile
	}
	switch {
	case !earlier:
		return &DirectoryError{Path: path, Rule: "is not empty, and no earlier gate directory", hint: "choose a new directory"}
	case finished && !replace:
		return &DirectoryError{Path: path, Rule: "holds an earlier run", hint: "replace it with --replace, or choose a new directory"}
	}
	// The files that vouch for the others go first.
	for _, name := range []string{evidence.VerdictFile, evidence.GatesFile, evidence.AttestationFile, evidence.ManifestFile} {
		err = errors.Join(err, root.RemoveAll(name))
	}
	if err == nil {
		err = fsx.Empty(root)
	}
	if err != nil {
		return &DirectoryError{Path: path, Rule: "cannot be emptied", Err: fsx.Cause(err)}
	}
	return nil
}

// outside refuses a gate directory that is or holds the directory kept: its files would be
// taken for those of the gate, and be removed with them.
func outside(path, kept string) error {
	inner, err := filepath.EvalSymlinks(kept)
	if err != nil {
		return nil //nolint:nilerr // what is not there cannot be removed
	}
	outer, err := filepath.Abs(path)
	if err != nil {
		return &DirectoryError{Path: path, Rule: "cannot be used", Err: err}
	}
	if fsx.Within(inner, fsx.RealPath(outer)) {
		return &DirectoryError{Path: path, Rule: fmt.Sprintf("is or holds %q", kept), hint: "choose a directory of its own for the gate"}
	}
	return nil
}

// within returns path relative to dir, if it lies in dir.
func within(path, dir string) (rel string, ok bool) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	rel, err = filepath.Rel(dir, fsx.RealPath(abs))
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

func (d directory) close() error {
	var errs []error
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	if d.root != nil {
		errs = append(errs, d.root.Close())
	}
	return errors.Join(errs...)
}
