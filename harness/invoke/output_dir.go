package invoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
)

func outputError(dir, rule string) error {
	return &policy.FieldError{Field: "output", Value: fmt.Sprintf("%.200q", dir), Rule: rule}
}

// openOutput opens the output directory, which must be there (MI-02).
func openOutput(dir string) (*os.Root, error) {
	root, err := fsx.OpenRoot(dir)
	var odd *fsx.NotDirectoryError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, outputError(dir, "does not exist: make the directory first")
	case errors.As(err, &odd):
		return nil, outputError(dir, "is not a directory")
	case err != nil:
		return nil, outputError(dir, "cannot be used: "+fsx.Cause(err).Error())
	}
	return root, nil
}

// checkOutput looks at the output directory before the tool is started (MI-02). An
// artifact that is there already could not be told from one that the tool writes, and
// so is refused. What lies behind a link is no artifact.
func checkOutput(root *os.Root, dir string, artifacts []string) error {
	for _, name := range artifacts {
		_, err := fsx.LstatBelow(root, filepath.FromSlash(name))
		var elsewhere *fsx.NotDirectoryError
		switch {
		case err == nil:
			return outputError(dir, "holds "+name+" from before: give a directory without it, or remove it")
		case !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &elsewhere):
			return outputError(dir, name+" cannot be looked at: "+fsx.Cause(err).Error())
		}
	}
	return nil
}
