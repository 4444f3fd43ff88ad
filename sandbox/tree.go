package sandbox

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// removeTree deletes a folder that a program may have filled. A folder that its
// owner may not read (mode 000) is opened up first; nothing is followed.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, openErr := os.OpenRoot(dir)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	openErr = openUp(root)
	return errors.Join(openErr, root.Close(), os.RemoveAll(dir))
}

// emptyTree deletes everything below root and keeps root (EX-002, resolution
// 31). Links are deleted, never followed.
func emptyTree(root *os.Root) error {
	err := emptyOnce(root)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := openUp(root); err != nil {
		return err
	}
	return emptyOnce(root)
}

func emptyOnce(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if err := root.RemoveAll(name); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		}
		// Names that were deleted may hide others from this reading.
		if _, err := dir.Seek(0, 0); err != nil {
			return err
		}
	}
}

// openUp gives the owner back every folder below root.
func openUp(root *os.Root) error {
	queue := []string{"."}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if err := root.Chmod(at, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		below, err := folders(root, at)
		if err != nil {
			return err
		}
		queue = append(queue, below...)
	}
	return nil
}

// folders lists the folders, not links to folders, in one folder.
func folders(root *os.Root, at string) ([]string, error) {
	dir, err := root.Open(at)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	var below []string
	for _, entry := range entries {
		if entry.IsDir() {
			below = append(below, path.Join(at, entry.Name()))
		}
	}
	return below, err
}

// chownTree gives root and everything below it to uid and gid, and follows
// nothing. Hard links are safe: ./final is a mount of its own, so a link in it
// cannot be to a file outside.
func chownTree(root *os.Root, uid, gid int) error {
	var errs []error
	queue := []string{"."}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		dir, err := root.Open(at)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for {
			entries, err := dir.ReadDir(256)
			for _, entry := range entries {
				full := path.Join(at, entry.Name())
				if err := root.Lchown(full, uid, gid); err != nil && len(errs) < 10 {
					errs = append(errs, err)
				}
				if entry.IsDir() {
					queue = append(queue, full)
				}
			}
			if err != nil {
				break
			}
		}
		errs = append(errs, dir.Close())
	}
	errs = append(errs, root.Lchown(".", uid, gid))
	return errors.Join(errs...)
}
