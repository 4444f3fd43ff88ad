package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/evalbox/evalbox/sandbox/collect"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/result"
)

// List reads a copy that an untrusted program had, once no process of it is left.
// Files that still have the size that they had in the base are read whatever their
// size is; all others only within the limits. The error means that the folder itself
// could not be read or that ctx ended.
func List(ctx context.Context, root *os.Root, base Base, limits collect.Limits) (Now, error) {
	limits.Files += len(base)
	limits.Depth = max(limits.Depth, base.Depth()+1)
	l := &lister{root: root, base: base, limits: limits,
		now: Now{Entries: map[string]Entry{}, Read: map[string]bool{}, Left: map[string]result.SkippedOutput{}}}
	if err := l.walk(ctx); err != nil {
		return l.now, err
	}
	return l.now, l.hash(ctx)
}

type lister struct {
	root   *os.Root
	base   Base
	limits collect.Limits
	now    Now
	files  []listed
	seen   int
	total  int64
}

type listed struct {
	name string
	info fs.FileInfo
}

func (n Now) leave(name, kind string, size int64, reason string) {
	n.Left[name] = result.SkippedOutput{Kind: kind, SizeBytes: size, Reason: reason}
}

func (l *lister) walk(ctx context.Context) error {
	queue := []string{"."}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if l.seen > l.limits.Files {
			l.now.leave(at, KindFolder, 0, l.limits.TooMany())
			continue
		}
		below, err := l.folder(ctx, at)
		switch {
		case err == nil:
		case at == "." || ctx.Err() != nil:
			return err
		default:
			delete(l.now.Entries, at)
			l.now.leave(at, KindFolder, 0, "cannot be read: "+collect.Cause(err))
		}
		queue = append(queue, below...)
	}
	return nil
}

func (l *lister) folder(ctx context.Context, at string) (below []string, err error) {
	dir, err := l.root.OpenFile(at, os.O_RDONLY|collect.OpenFlags, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for {
		if err := ctx.Err(); err != nil {
			return below, err
		}
		entries, err := dir.ReadDir(256)
		for _, entry := range entries {
			full := path.Join(at, entry.Name())
			if l.seen++; l.seen > l.limits.Files {
				l.now.leave(full, "other", 0, l.limits.TooMany())
				return below, nil
			}
			if l.visit(full, entry.Name()) {
				below = append(below, full)
			}
		}
		if errors.Is(err, io.EOF) {
			l.now.Read[at] = true
			return below, nil
		}
		if err != nil {
			return below, err
		}
	}
}

// visit sorts one entry with Lstat alone, and says whether to go into it.
func (l *lister) visit(full, name string) (into bool) {
	if strings.ContainsRune(name, '/') {
		l.now.leave(full, "other", 0, "the name holds a slash")
		return false
	}
	info, err := l.root.Lstat(full)
	if err != nil {
		l.now.leave(full, "other", 0, "cannot be read: "+collect.Cause(err))
		return false
	}
	was := l.base[full]
	switch mode := info.Mode(); {
	case mode.IsDir() && depthOf(full)+1 > l.limits.Depth:
		l.now.leave(full, KindFolder, 0, l.limits.TooDeep())
	case mode.IsDir():
		l.now.Entries[full] = Entry{Path: full, Kind: KindFolder, Mode: mode.Perm()}
		return true
	case mode&fs.ModeSymlink != 0:
		target, err := l.root.Readlink(full)
		if err != nil {
			l.now.leave(full, KindSymlink, 0, "cannot be read: "+collect.Cause(err))
			return false
		}
		l.now.Entries[full] = Entry{Path: full, Kind: KindSymlink, Mode: 0o777, Target: target}
	case !mode.IsRegular():
		l.now.leave(full, collect.KindOf(mode), 0, collect.NotRegular)
	case was.Kind == KindFile && was.Size == info.Size():
		l.files = append(l.files, listed{full, info})
	default:
		if reason := l.limits.Refuse(info.Size(), l.total); reason != "" {
			l.now.leave(full, KindFile, info.Size(), reason)
			return false
		}
		l.total += info.Size()
		l.files = append(l.files, listed{full, info})
	}
	return false
}

// hash hashes the files in parallel.
func (l *lister) hash(ctx context.Context) error {
	sums, failures := make([]string, len(l.files)), make([]error, len(l.files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range l.files {
		group.Go(func() error {
			sums[i], failures[i] = collect.HashFile(ctx, l.root, f.name, f.info)
			return ctx.Err()
		})
	}
	err := group.Wait()
	for i, f := range l.files {
		if failures[i] != nil {
			l.now.leave(f.name, KindFile, f.info.Size(), "cannot be read: "+collect.Cause(failures[i]))
			continue
		}
		l.now.Entries[f.name] = Entry{Path: f.name, Kind: KindFile, Size: f.info.Size(), SHA256: sums[i], Mode: f.info.Mode().Perm()}
	}
	return err
}
