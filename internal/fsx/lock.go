package fsx

import "errors"

// ErrLocked means that somebody else holds the lock of a folder.
var ErrLocked = errors.New("is locked by another process")
