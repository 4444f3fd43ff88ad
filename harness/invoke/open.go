package invoke

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/evalbox/evalbox/internal/hostfile"
)

// openIn opens an artifact below a folder for reading: a regular file, and no link.
func openIn(root *os.Root, name string) (*os.File, *ArtifactError) {
	file, _, err := hostfile.OpenIn(root, name)
	if err != nil {
		return nil, openError(name, err)
	}
	return file, nil
}

// openError gives a file that cannot be opened its class.
func openError(path string, err error) *ArtifactError {
	var odd *hostfile.NotRegularError
	switch {
	case errors.As(err, &odd):
		return artifactError(path, 0, KindNotRegular, "%s", odd)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return artifactError(path, 0, KindMissing, "does not exist")
	}
	return artifactError(path, 0, KindUnreadable, "cannot be read: %s", cause(err))
}
