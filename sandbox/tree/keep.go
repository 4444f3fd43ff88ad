package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// Keep moves the files of changes from the folder from to the folder to, both below
// root, and makes the folders that they lie in. Nobody may write in from any more.
func Keep(root *os.Root, from, to string, changes Changes) error {
	for _, list := range [][]Entry{changes.Created, changes.Changed} {
		for _, e := range list {
			target := path.Join(to, e.Path)
			err := root.MkdirAll(path.Dir(target), 0o700)
			if err == nil && e.Kind == KindDir {
				err = root.MkdirAll(target, 0o700)
			} else if err == nil {
				err = root.Rename(path.Join(from, e.Path), target)
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}
