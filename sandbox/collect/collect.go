// Package collect takes stock of a folder that an untrusted program wrote. It
// follows nothing out of the folder, opens regular files only, and everything it
// reads is bounded; what it leaves out is listed with the reason.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/result"
)

// Limits bound a collection. A zero limit is zero, not "no limit".
type Limits struct {
	// Files bounds the entries of any kind that are listed, Depth the levels
	// of folders below the root.
	Files, Depth int
	// FileBytes and TotalBytes bound the size of one file and of all.
	FileBytes, TotalBytes int64
}

// Outputs lists the regular files below root, sorted by path, with their hashes,
// and what was left out. It must only be called once no process of the program
// is left. The error means that the folder itself could not be read or that ctx
// ended; the lists then hold what was found before.
func Outputs(ctx context.Context, root *os.Root, limits Limits) ([]result.Output, []result.SkippedOutput, error) {
	w := &walker{root: root, limits: limits}
	walkErr := w.walk(ctx)
	slices.SortFunc(w.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	outputs, hashErr := w.hashAll(ctx)
	return outputs, w.skipped.Sorted(), errors.Join(walkErr, hashErr)
}

type walker struct {
	root    *os.Root
	limits  Limits
	files   []File
	total   int64
	skipped SkipList
}

func (w *walker) walk(ctx context.Context) error {
	if err := Survey(ctx, w.root, w.limits, w); err != nil {
		return fmt.Errorf("reading the output folder: %w", err)
	}
	return nil
}

// Leave implements [Visitor].
func (w *walker) Leave(name, kind string, size int64, reason string) {
	w.skipped.Add(name, kind, size, reason)
}

// Visit implements [Visitor].
func (w *walker) Visit(name string, info fs.FileInfo) {
	switch {
	case info.IsDir():
	case !info.Mode().IsRegular():
		w.skipped.Add(name, KindOf(info.Mode()), 0, NotRegular)
	default:
		if reason := w.limits.Refuse(info.Size(), w.total); reason != "" {
			w.skipped.Add(name, "file", info.Size(), reason)
			return
		}
		w.total += info.Size()
		w.files = append(w.files, File{name, info})
	}
}

// Done implements [Visitor].
func (w *walker) Done(name string, err error) {
	if err != nil {
		w.skipped.Add(name, "directory", 0, unreadable(err))
	}
}

// KindOf names what an entry is.
func KindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode.IsRegular():
		return "file"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "other"
}

func (w *walker) hashAll(ctx context.Context) ([]result.Output, error) {
	outputs := make([]result.Output, 0, len(w.files))
	err := HashAll(ctx, w.root, w.files, w.Leave, func(f File, sum string) {
		name, raw := EncodePath(f.Name)
		outputs = append(outputs, result.Output{
			Path: name, PathBase64: raw, SizeBytes: f.Info.Size(), SHA256: sum,
			Mode: fmt.Sprintf("%04o", unixMode(f.Info.Mode())),
		})
	})
	return outputs, err
}

// unixMode is the permission bits with set-user-ID, set-group-ID and sticky.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
