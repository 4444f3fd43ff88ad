package runs

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// NewCp returns the command `cp`.
func NewCp(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cp RUN:PATH DEST",
		Short: "Copy files that a run left in ./final",
		Long: `Copy a file or a directory that a run left in ./final. PATH is relative to ./final; without
a PATH it is all of it. DEST is a file or a directory as for 'cp -r', or - for a tar archive
on stdout. Only regular files and directories are copied, and no link is followed, neither
in ./final nor below DEST. A file that is not the one that the run left, by its hash, is
refused.

The files of a running program are copied as they are, from the directory of its run, if this
machine has them by then.

` + handleHelp,
		Example: "  sandbox cp last:model.pkl .\n  sandbox cp train: results\n  sandbox cp 1a2b: - | tar t",
		Args:    cobra.ExactArgs(2),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			handle, path, ok := strings.Cut(args[0], ":")
			if !ok {
				return cli.UsageHint("give RUN:PATH and DEST, as in: sandbox cp last:model.pkl .", "cp: %q names no path of a run", args[0])
			}
			return copyFinal(ctx, a, s, handle, path, args[1])
		}),
	}
	return cli.TakesHandles(cmd)
}

func copyFinal(ctx context.Context, a *cli.App, s settings.Settings, handle, path, dest string) error {
	path = filepath.Clean(path)
	if !filepath.IsLocal(path) {
		return cli.Usagef("sandbox cp", "cp: %q: must be a path in ./final, such as model.pkl", path)
	}
	store, each, err := find(s, handle)
	if err != nil {
		return err
	}
	if by := replacedBy(store, each); by != "" {
		return replacedError(store, each, by, path, dest)
	}
	dir := each.OutputDir()
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return notThere(each, dir, path, err)
	}
	defer root.Close()
	info, err := fsx.LstatBelow(root, path)
	if err != nil {
		return notThere(each, dir, path, err)
	}
	c := copyOut{ctx: ctx, from: root, run: each.ID, strict: each.Result != nil && each.Spec.Job.Final != "", sums: map[string]string{}, seen: map[string]bool{}, warn: a.Warn}
	if each.Result != nil {
		for _, out := range each.Result.Outputs {
			c.sums[nameOf(out)] = out.SHA256
		}
	}
	if dest == "-" {
		if a.OutTerminal {
			return cli.Usagef("sandbox cp", "cp: an archive is not for a terminal: write it to a file or a pipe")
		}
		out := &tarSink{tar.NewWriter(a.Out)}
		err := c.all(out, path, base(path), info)
		return cli.ReaderGone(errors.Join(err, out.w.Close()))
	}
	return c.toDir(path, info, dest)
}

// nameOf is the path of an output below ./final.
func nameOf(out result.Output) string {
	if name, err := base64.StdEncoding.DecodeString(out.PathBase64); err == nil && len(name) > 0 {
		return filepath.Clean(string(name))
	}
	return filepath.Clean(filepath.FromSlash(out.Path))
}

// base is the name under which a path is copied into a directory; "." for all of ./final.
func base(path string) string { return filepath.Base(path) }

// sink takes what is copied, under paths below its own root.
type sink interface {
	dir(name string) error
	file(name string, info fs.FileInfo, content io.Reader) error
}

// copyOut copies what is in a ./final.
type copyOut struct {
	ctx  context.Context //nolint:containedctx // of this one copy
	from *os.Root
	run  string
	// sums are the hashes of the outputs of a finished run, and seen are the outputs that are still there.
	// With strict set nothing else is copied: the directory is not evalbox's own, and may have files of
	// others.
	sums   map[string]string
	seen   map[string]bool
	strict bool
	warn   func(format string, args ...any)
	left   int
}

// maxFailures bounds the messages of one copy.
const maxFailures = 10

var errTooMany = errors.New("too much cannot be copied: the rest was not tried")

// toDir copies to a path of this machine.
func (c *copyOut) toDir(path string, info fs.FileInfo, dest string) error {
	at, name := dest, base(path)
	if to, err := os.Stat(dest); err != nil || !to.IsDir() {
		if info.IsDir() && errors.Is(err, fs.ErrNotExist) {
			if err := os.Mkdir(dest, 0o777); err != nil {
				return cli.OutputError(dest, err)
			}
			name = "."
		} else {
			at, name = filepath.Dir(dest), filepath.Base(dest)
		}
	}
	to, err := fsx.OpenRoot(at)
	if err != nil {
		return cli.OutputError(at, err)
	}
	defer to.Close()
	return c.all(&dirSink{to, at}, path, name, info)
}

// all copies a file or a directory. It goes on after what cannot be copied.
func (c *copyOut) all(to sink, path, name string, info fs.FileInfo) error {
	if !info.IsDir() {
		return c.one(to, path, name, info)
	}
	below, closeBelow, err := c.below(path)
	if err != nil {
		return err
	}
	defer closeBelow()
	if err := to.dir(name); err != nil {
		return err
	}
	var errs []error
	note := func(err error) error {
		if err != nil {
			errs = append(errs, err)
		}
		if len(errs) == maxFailures {
			return errTooMany
		}
		return nil
	}
	err = fsx.Walk(c.ctx, below, func(at string, info fs.FileInfo) (bool, error) {
		if info.IsDir() {
			err := to.dir(filepath.Join(name, at))
			return err == nil, note(err)
		}
		return false, note(c.one(to, filepath.Join(path, at), filepath.Join(name, at), info))
	})
	if c.left > maxFailures {
		c.warn("%d more are left out", c.left-maxFailures)
	}
	if err == nil {
		err = c.missing(path)
	}
	return errors.Join(append(errs, err)...)
}

// missing is an error for outputs in a directory that are not there any more.
func (c *copyOut) missing(dir string) error {
	var gone []string
	for name := range c.sums {
		if !c.seen[name] && (dir == "." || strings.HasPrefix(name, dir+"/")) {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return fmt.Errorf("run %s: not all of its outputs are there any more: %s deleted or moved after the run, such as %q",
		c.run, text.Count(len(gone), "file"), slices.Min(gone))
}

// below opens a directory in ./final without following a link.
func (c *copyOut) below(path string) (*os.Root, func(), error) {
	dir, _, closeDir, err := fsx.OpenParent(c.from, filepath.Join(path, "x"))
	if err != nil {
		return nil, nil, fmt.Errorf("run %s: %w", c.run, err)
	}
	return dir, closeDir, nil
}

// leave warns of something that is left out, and only counts what comes after the first ones.
func (c *copyOut) leave(format string, args ...any) {
	if c.left++; c.left <= maxFailures {
		c.warn(format, args...)
	}
}

// one copies a regular file, and leaves anything else out.
func (c *copyOut) one(to sink, path, name string, info fs.FileInfo) error {
	want, known := c.sums[path]
	c.seen[path] = true
	switch {
	case !info.Mode().IsRegular():
		c.leave("%q is left out: it is not a regular file (%s)", path, fsx.Kind(info.Mode()))
		return nil
	case c.strict && !known:
		c.leave("%q is left out: the run did not leave it", path)
		return nil
	}
	file, info, err := fsx.OpenBelow(c.from, path)
	if err != nil {
		return fmt.Errorf("run %s: %q: %w", c.run, path, fsx.Cause(err))
	}
	defer file.Close()
	if known {
		sum, err := fsx.Sum(c.ctx, sha256.New(), file, info)
		if err != nil {
			return fmt.Errorf("run %s: %q: %w", c.run, path, fsx.Cause(err))
		}
		if sum != want {
			return fmt.Errorf("run %s: %q has changed since the run ended", c.run, path)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("run %s: %q: %w", c.run, path, err)
		}
	}
	hash := sha256.New()
	content := io.TeeReader(io.LimitReader(fsx.WithContext(c.ctx, file), info.Size()), hash)
	if err := to.file(name, info, content); err != nil {
		return err
	}
	if known && hex.EncodeToString(hash.Sum(nil)) != want {
		return fmt.Errorf("run %s: %q changed while it was copied", c.run, path)
	}
	return nil
}

// dirSink writes below a directory. It replaces files, and follows no link.
type dirSink struct {
	root *os.Root
	path string
}

func (d *dirSink) dir(name string) error {
	if name == "." {
		return nil
	}
	parent, last, closeParent, err := fsx.OpenParent(d.root, name)
	if err != nil {
		return cli.OutputError(filepath.Join(d.path, name), err)
	}
	defer closeParent()
	err = parent.Mkdir(last, 0o777)
	if errors.Is(err, fs.ErrExist) {
		var info fs.FileInfo
		if info, err = parent.Lstat(last); err == nil && !info.IsDir() {
			err = &fsx.NotDirectoryError{Mode: info.Mode().Type()}
		}
	}
	if err != nil {
		return cli.OutputError(filepath.Join(d.path, name), err)
	}
	return nil
}

func (d *dirSink) file(name string, info fs.FileInfo, content io.Reader) error {
	parent, last, closeParent, err := fsx.OpenParent(d.root, name)
	if err != nil {
		return cli.OutputError(filepath.Join(d.path, name), err)
	}
	defer closeParent()
	// A name that exists is removed, and not written through: it may be a link, or a second name.
	if old, err := parent.Lstat(last); err == nil {
		if kind := old.Mode().Type(); kind == 0 || kind == fs.ModeSymlink {
			err = parent.Remove(last)
		} else {
			err = &fsx.NotRegularError{Mode: kind}
		}
		if err != nil {
			return cli.OutputError(filepath.Join(d.path, name), err)
		}
	}
	if _, err := fsx.Create(parent, last, content, permOf(info)); err != nil {
		return cli.OutputError(filepath.Join(d.path, name), err)
	}
	return nil
}

// permOf keeps whether a file can be executed, and nothing else of its mode.
func permOf(info fs.FileInfo) fs.FileMode {
	if info.Mode()&0o100 != 0 {
		return 0o777
	}
	return 0o666
}

// tarSink writes an archive.
type tarSink struct{ w *tar.Writer }

func (t *tarSink) dir(name string) error {
	if name == "." {
		return nil
	}
	return t.w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: filepath.ToSlash(name) + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
}

func (t *tarSink) file(name string, info fs.FileInfo, content io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Mode: int64(permOf(info) &^ 0o22), Size: info.Size(), ModTime: info.ModTime()}
	if err := t.w.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(t.w, content)
	if err == nil && n < info.Size() {
		err = fmt.Errorf("%q became shorter while it was copied", name)
	}
	return err
}
