// Package tree gives a program working copies of directories of the host. It copies a
// directory, compares the copy afterwards, keeps the changes, and applies them to the
// directory that was copied. The caller's directory is trusted, but may change meanwhile.
// Nothing in the copy is trusted.
package tree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// A Sink receives a copy. A directory comes before the entries in it.
type Sink interface {
	Dir(name string, mode fs.FileMode) error
	// File writes a file. The content has exactly size bytes.
	File(name string, mode fs.FileMode, size int64, modified time.Time, content io.Reader) error
	// Link makes a symbolic link, or returns why this sink refuses it.
	Link(name, target string, modified time.Time) (refused string, err error)
	// Close ends the copy.
	Close() error
}

// Options describe a copy.
type Options struct {
	// Exclude and Secret are not copied. A file in Secret is not copied under any of its
	// other names either.
	Exclude, Secret Paths
	// Points are the mount points that the copy gets, in place of excluded paths: empty
	// directories (true) and empty files.
	Points map[string]bool
	Limits Limits
}

// Copy copies root into a sink: directories, regular files with their modes, and links as
// links. Entries of other kinds are listed as left out. A file that cannot be read is an
// error, and so is an exceeded limit (a [*LimitError]).
func Copy(ctx context.Context, root *os.Root, to Sink, opts Options) (Base, []result.SkippedOutput, error) {
	c := &copier{root: root, to: to, opts: opts, base: Base{}}
	for _, name := range opts.Secret {
		if err := c.secrets.Add(ctx, root, name); err != nil {
			return nil, nil, err
		}
	}
	if err := fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) { return c.entry(ctx, name, info) }); err != nil {
		return nil, nil, err
	}
	if err := c.points(); err != nil {
		return nil, nil, err
	}
	return c.base, c.left.Sorted(), to.Close()
}

type copier struct {
	root    *os.Root
	to      Sink
	opts    Options
	secrets Secrets
	base    Base
	left    collect.SkipList
	bytes   int64
}

func (c *copier) entry(ctx context.Context, name string, info fs.FileInfo) (into bool, err error) {
	if c.opts.Exclude.Has(name) || c.opts.Secret.Has(name) {
		return false, nil
	}
	mode := info.Mode()
	if c.secrets.has(info) {
		c.left.Add(name, KindFile, info.Size(), "is another name of a file that is denied")
		return false, nil
	}
	if mode.IsRegular() {
		c.bytes += info.Size()
	}
	if err := c.opts.Limits.check(len(c.base)+1, depthOf(name), c.bytes); err != nil {
		return false, err
	}
	entry := Entry{Path: name, Mode: mode.Perm()}
	switch {
	case mode.IsDir():
		entry.Kind = KindDir
		err = c.to.Dir(name, mode.Perm())
	case mode.IsRegular():
		entry.Kind, entry.Size = KindFile, info.Size()
		entry.SHA256, err = c.file(ctx, name, info)
	case mode&fs.ModeSymlink != 0:
		entry.Kind, entry.Mode = KindSymlink, 0o777
		if entry.Target, err = c.root.Readlink(name); err != nil {
			return false, err
		}
		var refused string
		if refused, err = c.to.Link(name, entry.Target, info.ModTime()); refused != "" {
			c.left.Add(name, KindSymlink, 0, refused)
			return false, err
		}
	default:
		c.left.Add(name, collect.KindOf(mode), 0, collect.NotRegular)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.base[name] = entry
	return true, nil
}

// file copies one file and hashes what it copies.
func (c *copier) file(ctx context.Context, name string, listed fs.FileInfo) (string, error) {
	file, info, err := fsx.OpenListed(c.root, name, listed)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	content := &exactly{from: io.TeeReader(fsx.WithContext(ctx, file), sum), left: listed.Size(), name: name}
	if err := c.to.File(name, info.Mode().Perm(), listed.Size(), listed.ModTime(), content); err != nil {
		return "", err
	}
	var one [1]byte
	if more, _ := file.Read(one[:]); more > 0 || content.left != 0 {
		return "", &fs.PathError{Op: "read", Path: name, Err: fsx.ErrChanged}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// points makes the mount points, with the directories above them.
func (c *copier) points() error {
	for _, name := range slices.Sorted(maps.Keys(c.opts.Points)) {
		for _, above := range parents(name) {
			if err := c.point(above, true); err != nil {
				return err
			}
		}
		if err := c.point(name, c.opts.Points[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) point(name string, dir bool) error {
	want := Entry{Path: name, Kind: KindFile, SHA256: emptySum, Mode: 0o444, Ours: true}
	if dir {
		want.Kind, want.SHA256, want.Mode = KindDir, "", 0o755
	}
	if there, ok := c.base[name]; ok {
		if there.Kind != want.Kind {
			return &fs.PathError{Op: "mount", Path: name, Err: fmt.Errorf("it is a %s, where a %s is needed", there.Kind, want.Kind)}
		}
		return nil
	}
	c.base[name] = want
	if dir {
		return c.to.Dir(name, want.Mode)
	}
	return c.to.File(name, want.Mode, 0, time.Unix(0, 0), bytes.NewReader(nil))
}

// emptySum is the SHA-256 of an empty file.
const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// parents returns the directories above a path, the highest first.
func parents(name string) []string {
	var above []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		above = append([]string{dir}, above...)
	}
	return above
}

// exactly reads the size that a file had when it was listed. Less is an error.
type exactly struct {
	from io.Reader
	left int64
	name string
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.from.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		err = &fs.PathError{Op: "read", Path: e.name, Err: fsx.ErrChanged}
	}
	return n, err
}

// Size counts the entries and bytes that a copy of root would hold, without the excluded
// paths. The error is a [*LimitError] if they exceed the limits.
func Size(ctx context.Context, root *os.Root, exclude Paths, limits Limits) (entries int, bytes int64, err error) {
	err = fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) {
		if exclude.Has(name) {
			return false, nil
		}
		entries++
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return true, limits.check(entries, depthOf(name), bytes)
	})
	return entries, bytes, err
}
