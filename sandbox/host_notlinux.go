//go:build !linux

package sandbox

import (
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

func freeBytes(string) (int64, bool) { return 0, false }

func reserve(*os.File, int64) error { return nil }

// sameFile cannot be determined here: the containers run in a virtual machine.
func sameFile(fs.FileInfo, wire.Stat, bool) bool { return false }

// mountNamespace is always the same here.
func mountNamespace() string { return "" }
