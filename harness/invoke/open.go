package invoke

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/evalbox/evalbox/internal/fsx"
)

// openError gives a file that cannot be opened its class.
func openError(path string, err error) *ArtifactError {
	var odd *fsx.NotRegularError
	var behind *fsx.NotDirectoryError
	switch {
	case errors.As(err, &odd):
		return artifactError(path, 0, KindNotRegular, "%s", odd)
	case errors.As(err, &behind) && behind.Mode&fs.ModeSymlink != 0:
		return artifactError(path, 0, KindNotRegular, "lies behind a symbolic link")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), behind != nil:
		return artifactError(path, 0, KindMissing, "does not exist")
	}
	return artifactError(path, 0, KindUnreadable, "cannot be read: %s", fsx.Cause(err))
}

// folderError gives a directory that cannot be opened its class.
func folderError(path string, err error) *ArtifactError {
	var odd *fsx.NotDirectoryError
	if errors.As(err, &odd) {
		return artifactError(path, 0, KindNotDirectory, "%s", odd)
	}
	return openError(path, err)
}
