//go:build !linux

package sandbox

import (
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

func freeBytes(string) (int64, bool) { return 0, false }

func reserve(*os.File, int64) error { return nil }

func mountsBelow(string) ([]string, error) { return nil, nil }

// sameFile cannot be told here: the containers are in a virtual machine.
func sameFile(fs.FileInfo, wire.Stat, bool) bool { return false }

// mountNamespace is the only one.
func mountNamespace() string { return "" }
