package gate

import (
	"cmp"
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
	// moved is the place of the earlier run that moved aside, and removed the place of the oldest run, which
	// was removed for it; empty for none.
	moved, removed string
}

// kept are directories that other runs of a gate directory are or hold, and that are needed: still are read
// by their names, so they do not move, and whole are open already, so they may move.
type kept struct{ still, whole []string }

// topNames are the entries of a gate directory.
var topNames = []string{
	evidence.WishLockFile, evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile, evidence.AttestationFile, evidence.Dir, evidence.IgnoreFile,
}

// keptRuns is how many earlier runs stay beside a gate directory.
const keptRuns = 3

// earlierRuns are the places of the earlier runs of a gate directory, the latest first.
func earlierRuns(path string) (places []string) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // the place of "." is beside it
	}
	for i := range keptRuns {
		places = append(places, fmt.Sprintf("%s.%d", path, i+1))
	}
	return places
}

// openDirectory creates a gate directory, or opens an empty directory. An earlier run in it moves aside
// ([earlierRuns]); it is removed with replace, and if it was killed before its verdict. Nothing changes if
// that would move or remove a directory of keep.
func openDirectory(path string, replace bool, keep kept) (dir directory, err error) {
	if path == "" {
		return directory{}, &DirectoryError{Rule: "none is named"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return directory{}, &DirectoryError{Path: path, Rule: "cannot be used", Err: err}
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return directory{}, &DirectoryError{Path: path, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	parent, err := openExisting(filepath.Dir(abs))
	if err != nil {
		return directory{}, err
	}
	defer parent.Close()
	if dir, err = claim(parent, filepath.Base(abs), path); err != nil {
		return directory{}, err
	}
	state, err := examine(dir.root, path)
	switch {
	case err != nil:
	case state.foreign != "":
		err = &DirectoryError{Path: path, Rule: state.foreign, hint: "choose a new directory"}
	case state.finished && !replace:
		var moved, removed string
		if moved, removed, err = moveAside(parent, path, keep); err == nil {
			err = dir.close()
		}
		if err == nil {
			dir, err = openDirectory(path, replace, keep) // another run may have been faster
			dir.moved, dir.removed = cmp.Or(dir.moved, moved), cmp.Or(dir.removed, removed)
			return dir, err
		}
	default:
		if !state.bare {
			for _, needed := range slices.Concat(keep.still, keep.whole) {
				if err := outside(path, needed); err != nil {
					return directory{}, errors.Join(err, dir.close())
				}
			}
		}
		if err = clearRun(dir.root); err != nil {
			err = &DirectoryError{Path: path, Rule: "cannot be emptied", Err: fsx.Cause(err)}
		} else {
			err = evidence.WriteText(dir.root, evidence.IgnoreFile, []byte(evidence.IgnoreText))
		}
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

// claim opens and locks a directory in parent; path is its name for people. It must be no link: it
// may lie in the workspace, which is not trusted, and the evidence would go where the link
// leads, and an earlier gate directory there would be emptied.
func claim(parent *os.Root, name, path string) (dir directory, err error) {
	refused := func(rule, hint string, err error) (directory, error) {
		refusal := &DirectoryError{Path: path, Rule: rule, hint: hint}
		if err != nil {
			refusal.Err = fsx.Cause(err)
		}
		return directory{}, errors.Join(refusal, dir.close())
	}
	const wait = "wait for its end, or choose another directory"
	info, err := parent.Lstat(name)
	switch {
	case err != nil:
		return refused("cannot be opened", "", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return refused("is a link", "remove it, or name the directory that it leads to", nil)
	}
	if dir.root, err = parent.OpenRoot(name); err != nil {
		return refused("cannot be opened", "", err)
	}
	dir.lock, err = fsx.Lock(dir.root)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		return refused("cannot be used", wait, ErrInUse)
	case err != nil:
		return refused("cannot be locked", "", err)
	}
	// Another run may have moved it aside before it was locked.
	locked, err := dir.root.Stat(".")
	if err != nil {
		return refused("cannot be opened", "", err)
	}
	if now, err := parent.Lstat(name); err != nil || !os.SameFile(now, locked) {
		return refused("cannot be used", wait, ErrInUse)
	}
	return dir, nil
}

// runState is what a directory holds.
type runState struct {
	// foreign says why it is not a gate directory; empty for a gate directory and for an empty
	// directory. All others are never changed.
	foreign string
	// begun and finished say that there are a run manifest and a verdict. A run that was killed wrote
	// no verdict.
	begun, finished bool
	bare            bool // there is nothing but the ignore file
}

// isRun reports whether it is an earlier run. The lock of a wish alone may be one of somebody else.
func (s runState) isRun() bool { return s.foreign == "" && (s.begun || s.finished || s.bare) }

// examine looks at the entries of a directory.
func examine(root *os.Root, path string) (state runState, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return state, &DirectoryError{Path: path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	sealed := false
	state.bare = true
	for _, entry := range entries {
		// A crash may leave a file that was not complete.
		name, _, _ := strings.Cut(entry.Name(), ".new-")
		if !slices.Contains(topNames, name) || entry.Name() == evidence.IgnoreFile && !isOurIgnore(root) {
			state.foreign = fmt.Sprintf("holds %q, which is not of a gate", entry.Name())
			return state, nil
		}
		sealed = sealed || name == evidence.WishLockFile
		state.bare = state.bare && name == evidence.IgnoreFile
		state.begun = state.begun || name == evidence.RunManifestFile
		state.finished = state.finished || entry.Name() == evidence.VerdictFile
	}
	if !state.bare && !sealed && !state.begun {
		state.foreign = "is not empty, and no earlier gate directory"
	}
	return state, nil
}

// isOurIgnore reports whether the ignore file of a directory is the one of a gate.
func isOurIgnore(root *os.Root) bool {
	text, err := evidence.ReadText(root, evidence.IgnoreFile, int64(len(evidence.IgnoreText)))
	return err == nil && string(text) == evidence.IgnoreText
}

// clearRun removes everything in a gate directory. The files that vouch for the others go first, and
// the ones that mark it as a gate directory last: a crash leaves a directory that can be used.
func clearRun(root *os.Root) error {
	for _, name := range []string{evidence.VerdictFile, evidence.GatesFile, evidence.AttestationFile, evidence.ManifestFile} {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	if below, err := root.OpenRoot(evidence.Dir); err == nil {
		if err := errors.Join(fsx.Empty(below), below.Close()); err != nil {
			return err
		}
	}
	for _, name := range []string{evidence.Dir, evidence.WishLockFile} {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return fsx.Empty(root)
}

// moveAside moves a finished run to the first of its [earlierRuns], and the ones there further, up to the
// first place that is free or has nothing in it; the run in the last place is removed. It returns where the
// run is now, and the place of the run that was removed. Nothing moves if one of the places holds something
// else, a run that is in use, or what keep forbids.
func moveAside(parent *os.Root, path string, keep kept) (moved, removed string, err error) {
	refused := func(name, rule string, err error) (string, string, error) {
		e := &DirectoryError{
			Path: path, Rule: fmt.Sprintf("holds an earlier run that cannot move aside: %s %s", name, rule),
			hint: "replace it with --replace, or choose a new directory",
		}
		if err != nil {
			e.Err = fsx.Cause(err)
		}
		return "", "", e
	}
	shown := func(name string) string { return filepath.Join(filepath.Dir(filepath.Clean(path)), name) }
	places := earlierRuns(path)
	abs := strings.TrimSuffix(places[0], ".1")
	names := []string{filepath.Base(abs)} // each moves to the next one
	if here, err := os.Getwd(); err == nil && fsx.Within(fsx.RealPath(here), fsx.RealPath(abs)) {
		return refused(names[0], "is or holds the current directory", nil)
	}
	needed := func(place string, dirs []string) (string, bool) {
		i := slices.IndexFunc(dirs, func(dir string) bool { return outside(place, dir) != nil })
		if i < 0 {
			return "", false
		}
		return fmt.Sprintf("must stay: it is or holds %q", dirs[i]), true
	}
	if rule, yes := needed(abs, keep.still); yes {
		return refused(names[0], rule, nil)
	}
	var oldest directory // the run that has no place any more
	for i, place := range places {
		name := filepath.Base(place)
		names = append(names, name)
		if _, err := parent.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir, err := claim(parent, name, place)
		if err != nil {
			return "", "", err
		}
		defer dir.close() //nolint:errcheck // it only held a lock
		state, err := examine(dir.root, place)
		if err != nil {
			return "", "", err
		}
		if !state.isRun() {
			return refused(name, "is not an earlier run", nil)
		}
		dirs, goes := keep.still, i == keptRuns-1 || state.bare
		if goes {
			dirs, oldest = slices.Concat(keep.still, keep.whole), dir
		}
		if rule, yes := needed(place, dirs); yes {
			return refused(name, rule, nil)
		}
		if goes {
			if !state.bare {
				removed = shown(name)
			}
			break
		}
	}
	if name := names[len(names)-1]; oldest.root != nil {
		if err := removeRun(parent, name, oldest.root); err != nil {
			return refused(name, "cannot be removed", err)
		}
	}
	for i := len(names) - 1; i > 0; i-- {
		if err := parent.Rename(names[i-1], names[i]); err != nil {
			return refused(names[i-1], "cannot be moved", err)
		}
	}
	return shown(names[1]), removed, nil
}

// removeRun removes a gate directory that is empty afterwards.
func removeRun(parent *os.Root, name string, root *os.Root) error {
	if err := clearRun(root); err != nil {
		return err
	}
	return parent.Remove(name)
}

// isForeign reports whether there is something else than an earlier run at a path.
func isForeign(path string) bool {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	foreign := true
	if err == nil && info.IsDir() {
		_ = fsx.InRoot(path, func(root *os.Root) error { // what cannot be read is foreign
			state, err := examine(root, path)
			foreign = err != nil || !state.isRun()
			return nil
		})
	}
	return foreign
}

// outside refuses a gate directory that is or holds the directory kept: its files would be
// taken for those of the gate, and be removed with them.
func outside(path, kept string) error {
	inner, err := filepath.Abs(kept)
	if err == nil {
		inner, err = filepath.EvalSymlinks(inner)
	}
	if err != nil {
		return nil //nolint:nilerr // what is not there cannot be removed
	}
	outer, err := filepath.Abs(path)
	if err != nil {
		return &DirectoryError{Path: path, Rule: "cannot be used", Err: err}
	}
	if fsx.Within(inner, fsx.RealPath(outer)) {
		return &DirectoryError{Path: path, Rule: fmt.Sprintf("must stay: it is or holds %q", kept), hint: "choose a directory of its own for the gate"}
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
