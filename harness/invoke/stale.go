package invoke

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/policy"
)

// maxBefore bounds how many files an output directory may hold before a run.
const maxBefore = 100_000

// stamps are the files of an output directory, by their slash paths.
type stamps map[string]fs.FileInfo

// stampsOf looks at what is there before a run, so that it is not taken for the run's.
func stampsOf(dir string) (stamps, error) {
	all := stamps{}
	// A walk does not follow the link that the directory itself may be.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, &policy.FieldError{Field: "output", Value: fmt.Sprintf("%.200q", dir), Rule: cause(err)}
	}
	err = filepath.WalkDir(real, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(real, path)
		if err != nil {
			return err
		}
		if len(all) == maxBefore {
			return fmt.Errorf("holds more than %d files already", maxBefore)
		}
		all[filepath.ToSlash(rel)] = info
		return nil
	})
	if err != nil {
		return nil, &policy.FieldError{Field: "output", Value: fmt.Sprintf("%.200q", dir), Rule: err.Error()}
	}
	return all, nil
}

// unchanged are the files that are the same as before: not written, not replaced. A
// tool that writes the same again and sets the old time counts as one that did not.
func (before stamps) unchanged(dir string) map[string]bool {
	same := map[string]bool{}
	for name, was := range before {
		now, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		if err == nil && os.SameFile(was, now) && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime()) {
			same[name] = true
		}
	}
	return same
}
