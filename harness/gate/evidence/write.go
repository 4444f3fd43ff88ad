package evidence

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// Write writes v in its canonical form ([Canonical]) to a file below root; folders on the
// way are made. The file appears whole or not at all, and what was there before, a link
// included, is replaced and never written through. It is not forced to the disk: that
// something was lost with the power shows when it is compared with the manifest.
func Write(root *os.Root, name string, v any) error {
	text, err := Canonical(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return WriteText(root, name, text)
}

// WriteText writes a file as [Write] does.
func WriteText(root *os.Root, name string, text []byte) (err error) {
	if !fs.ValidPath(name) || name == "." {
		return &FileError{File: name, Rule: "is not a path below the gate directory"}
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	// A crash leaves the file beside it, which is then found as one that nobody listed.
	aside := name + ".new-" + rand.Text()
	file, err := root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(aside))
		}
	}()
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return root.Rename(aside, name)
}
