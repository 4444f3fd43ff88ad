// Package collect lists and hashes the files in a directory that an untrusted program wrote.
// It follows no links, opens regular files only, and bounds all that it reads. Entries that
// it leaves out are listed with the reasons.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
)

// Outputs lists the regular files below root, sorted by path, with their hashes, and the
// entries that are left out. modes has the permission bits that files had as the program left
// them. It must only be called once no process of the program is left. The error means that root
// itself could not be read, or that ctx ended; the lists then hold the entries up to then.
func Outputs(ctx context.Context, root *os.Root, limits Limits, modes map[fsx.ID]uint32) ([]result.Output, SkipList, error) {
	w := &walker{root: root, limits: limits}
	walkErr := w.walk(ctx)
	slices.SortFunc(w.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	outputs, hashErr := w.hashAll(ctx, modes)
	if w.partly {
		files, cut := countFiles(ctx, root)
		w.skipped.AtLeast(files - len(outputs))
		w.skipped.cut = w.skipped.cut || cut
	}
	return outputs, w.skipped, errors.Join(walkErr, hashErr)
}

type walker struct {
	root    *os.Root
	limits  Limits
	files   []File
	total   int64
	skipped SkipList
	// partly says that the walk has not seen everything.
	partly bool
}

func (w *walker) walk(ctx context.Context) error {
	if err := Survey(ctx, w.root, w.limits, w); err != nil {
		return fmt.Errorf("reading the output directory: %w", err)
	}
	return nil
}

// Leave implements [Visitor].
func (w *walker) Leave(name, kind string, size int64, reason string) {
	w.partly = w.partly || kind == "directory" || reason == w.limits.TooMany()
	w.skipped.Add(name, kind, size, reason)
}

// Visit implements [Visitor].
func (w *walker) Visit(name string, info fs.FileInfo) {
	major, minor := fsx.Device(info)
	switch {
	case IsWhiteout(name, info.Mode(), major, minor):
		w.skipped.Add(name, KindOf(info.Mode()), 0, Whiteout)
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

// KindOf returns the kind of an entry in the form of a result.
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

func (w *walker) hashAll(ctx context.Context, modes map[fsx.ID]uint32) ([]result.Output, error) {
	outputs := make([]result.Output, 0, len(w.files))
	err := HashAll(ctx, w.root, w.files, w.Leave, func(f File, sum string) {
		name, raw := EncodePath(f.Name)
		mode := unixMode(f.Info.Mode())
		id, _ := fsx.IDOf(f.Info)
		if before, changed := modes[id]; changed {
			mode = before
		}
		outputs = append(outputs, result.Output{
			Path: name, PathBase64: raw, SizeBytes: f.Info.Size(), SHA256: sum,
			Mode: fmt.Sprintf("%04o", mode),
		})
	})
	return outputs, err
}

// unixMode returns the permission bits with set-user-ID, set-group-ID and sticky.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
