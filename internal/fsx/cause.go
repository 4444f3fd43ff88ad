package fsx

import (
	"errors"
	"io/fs"
	"os"
)

// Cause is the reason of a file error without its path, for messages that name the path
// already.
func Cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
