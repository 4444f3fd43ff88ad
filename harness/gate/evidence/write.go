package evidence

import (
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/evalbox/evalbox/internal/fsx"
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
func WriteText(root *os.Root, name string, text []byte) error {
	if !fs.ValidPath(name) || name == "." {
		return &FileError{File: name, Rule: "is not a path below the gate directory"}
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	// A crash leaves a file beside it, which is then found as one that nobody listed.
	return fsx.WriteIn(root, name, text, 0o644, false)
}
