package tree

import (
	"context"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// List reads the copy of an untrusted program, once no process of the program is left. The
// limits of sizes hold for files whose size differs from the base; all others are read
// anyway. The error means that root itself could not be read, or that ctx ended.
func List(ctx context.Context, root *os.Root, base Base, limits collect.Limits) (Now, error) {
	limits.Files += len(base)
	limits.Depth = max(limits.Depth, base.Depth()+1)
	l := &lister{root: root, base: base, limits: limits,
		now: Now{Entries: map[string]Entry{}, Read: map[string]bool{}, Left: map[string]result.SkippedOutput{}}}
	if err := collect.Survey(ctx, root, limits, l); err != nil {
		return l.now, err
	}
	err := collect.HashAll(ctx, root, l.files, l.Leave, func(f collect.File, sum string) {
		l.now.Entries[f.Name] = Entry{Path: f.Name, Kind: KindFile, Size: f.Info.Size(), SHA256: sum, Mode: f.Info.Mode().Perm()}
	})
	return l.now, err
}

type lister struct {
	root   *os.Root
	base   Base
	limits collect.Limits
	now    Now
	files  []collect.File
	total  int64
}

// Leave implements [collect.Visitor].
func (l *lister) Leave(name, kind string, size int64, reason string) {
	l.now.Left[name] = result.SkippedOutput{Kind: kind, SizeBytes: size, Reason: reason}
}

// Done implements [collect.Visitor].
func (l *lister) Done(name string, err error) {
	if err == nil {
		l.now.Read[name] = true
		return
	}
	delete(l.now.Entries, name)
	l.Leave(name, KindDir, 0, unreadable(err))
}

// Visit implements [collect.Visitor].
func (l *lister) Visit(name string, info fs.FileInfo) {
	was := l.base[name]
	switch mode := info.Mode(); {
	case mode.IsDir():
		l.now.Entries[name] = Entry{Path: name, Kind: KindDir, Mode: mode.Perm()}
	case mode&fs.ModeSymlink != 0:
		target, err := l.root.Readlink(name)
		if err != nil {
			l.Leave(name, KindSymlink, 0, unreadable(err))
			return
		}
		l.now.Entries[name] = Entry{Path: name, Kind: KindSymlink, Mode: 0o777, Target: target}
	case !mode.IsRegular():
		l.Leave(name, collect.KindOf(mode), 0, collect.NotRegular)
	case was.Kind == KindFile && was.Size == info.Size():
		l.files = append(l.files, collect.File{Name: name, Info: info})
	default:
		if reason := l.limits.Refuse(info.Size(), l.total); reason != "" {
			l.Leave(name, KindFile, info.Size(), reason)
			return
		}
		l.total += info.Size()
		l.files = append(l.files, collect.File{Name: name, Info: info})
	}
}

func unreadable(err error) string { return "cannot be read: " + fsx.Cause(err).Error() }
