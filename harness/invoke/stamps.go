package invoke

import (
	"fmt"
	"io/fs"
	"os"
)

// maxBefore bounds how many files an output directory may hold before a run.
const maxBefore = 100_000

// stamps are the files of an output directory before a run.
type stamps struct {
	names map[string]bool
	files map[stamp][]fs.FileInfo
}

// stamp is what stays of a file, whatever its name is, as long as nobody writes to it.
type stamp struct{ size, modified int64 }

func stampOf(info fs.FileInfo) stamp { return stamp{info.Size(), info.ModTime().UnixNano()} }

// stampsOf looks at what is there before a run, so that it is not taken for the run's.
func stampsOf(root *os.Root, dir string) (stamps, error) {
	all := stamps{map[string]bool{}, map[stamp][]fs.FileInfo{}}
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if len(all.names) == maxBefore {
			return fmt.Errorf("holds more than %d files already", maxBefore)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		all.names[name] = true
		all.files[stampOf(info)] = append(all.files[stampOf(info)], info)
		return nil
	})
	if err != nil {
		return stamps{}, outputError(dir, err.Error())
	}
	return all, nil
}

// hold says that a file was there, by whatever name, and was not written since. A tool
// that sets the time of a file makes it one of its own, as one does that copies it.
func (s stamps) hold(info fs.FileInfo) bool {
	for _, was := range s.files[stampOf(info)] {
		if os.SameFile(was, info) {
			return true
		}
	}
	return false
}
