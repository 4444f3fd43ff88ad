package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/archive"
	"github.com/evalbox/evalbox/images/prune"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/policy"
)

var archiveFile = cli.FileKind{Noun: "archive", Hint: "give the path of a file, or -"}

func newExport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export NAME FILE|-",
		Short: "Write a locked image to a file, for 'sandbox image import'",
		Long: `Write a locked image, together with its lock entry, as one tar archive to a file or,
for -, to stdout. 'docker load' understands it too. An image that is not the locked
one is refused.`,
		Example: "  sandbox image export debian debian.tar\n  sandbox image export debian - | ssh HOST sandbox image import -",
		Args:    cobra.ExactArgs(2),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return cli.Check(cmd, cli.Wrong(args[1] == "-" && a.OutTerminal, "stdout is a terminal: name a file, or pipe it on"))
		},
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			name, file := args[0], args[1]
			path, err := t.settings.LockToWrite()
			if err != nil {
				return err
			}
			lock, _, err := t.settings.Lock()
			if err != nil {
				return err
			}
			lock.Source = path
			write := func(w io.Writer) error { return archive.Export(ctx, t.api, t.catalog, lock, name, w) }
			if file == "-" {
				return cli.ReaderGone(write(t.Out))
			}
			if err := writeWhole(file, write); err != nil {
				return err
			}
			fmt.Fprintf(t.Err, "image %s is in %s\n", name, file)
			return nil
		}),
	}
}

// writeWhole creates a file with the output of write, and none if write fails: half an
// archive must not pass for a whole one.
func writeWhole(file string, write func(io.Writer) error) (err error) {
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return archiveFile.Error(file, errors.New("is there and is not a regular file"))
	}
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-*")
	if err != nil {
		return archiveFile.Error(file, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part.Name()) // the first error is the one to report
		}
	}()
	buffered := bufio.NewWriterSize(part, 1<<20)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	err = errors.Join(err, part.Close())
	if err == nil {
		err = os.Rename(part.Name(), file)
	}
	if pathErr := new(os.PathError); errors.As(err, &pathErr) {
		return archiveFile.Error(file, pathErr)
	}
	return err
}

func newImport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE|-",
		Short: "Load an image that 'sandbox image export' wrote, and lock it",
		Long: `Load an image that 'sandbox image export' wrote, from a file or, for -, from stdin.

The image must be what the lock entry in the archive says: layers, configuration and
packages. If the lock has an entry of that name, it must be that image; without one,
the image is locked as it is. What is refused is removed again, unless the engine had
it before.`,
		Example: "  sandbox image import debian.tar",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && a.InTerminal {
				return cli.Misuse(cmd, "stdin is a terminal: name a file, or pipe an archive in")
			}
			input, source := endsWith(cmd.Context(), a.In), "on stdin"
			if args[0] != "-" {
				opened, err := os.Open(args[0])
				if err != nil {
					return archiveFile.Error(args[0], err)
				}
				defer opened.Close()
				input, source = opened, args[0]
			}
			return with(a, func(ctx context.Context, t *tools, _ []string) error { return t.load(ctx, input, source) })(cmd, args)
		},
	}
}

func (t *tools) load(ctx context.Context, input io.Reader, source string) error {
	path, err := t.settings.PlaceOfLock()
	if err != nil {
		return err
	}
	change, err := archive.Import(ctx, t.api, t.catalog, path, input, source)
	if err != nil {
		return err
	}
	if !change.Changed {
		return t.Print("image %s is there: %s, as locked in %s\n", change.After.Name, change.After.ID, path)
	}
	return t.PrintAll(render.LockChange(change, path))
}

// endsWith reads from r until ctx ends: a read of a pipe that is silent does not.
func endsWith(ctx context.Context, r io.Reader) io.Reader {
	reads, writes := io.Pipe()
	context.AfterFunc(ctx, func() { _ = writes.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(writes, r)
		_ = writes.CloseWithError(err) // nil gives EOF; never fails
	}()
	return reads
}

// newPrune shows the removed images also after an error.
func newPrune(a *cli.App) *cobra.Command {
	keep, opts := 20*policy.GiB, prune.Options{UnusedFor: time.Hour}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove images of evalbox that nothing needs",
		Long: `Remove images of evalbox, the longest unused first, until the rest fits into --keep-bytes.
Never removed are images that the lock or the user's own lock holds, that a container
uses, that another image stands on, that were used or made a short while ago, and those
that have a name, or a digest of a registry, which is not of evalbox.

Sizes are the engine's: layers that images share are counted for each. When an image
was used is known for the runs of this user.`,
		Example: "  sandbox image prune --dry-run\n  sandbox image prune --keep-bytes 5GB",
		Args:    cobra.NoArgs,
		RunE: with(a, func(ctx context.Context, t *tools, _ []string) error {
			locks, err := t.settings.AllLocks()
			if err != nil {
				return err
			}
			if opts.UsageDir, err = images.DefaultUsageDir(); err != nil {
				return cli.WithHint(err, "set HOME: when images were used is remembered in the user's cache directory")
			}
			opts.KeepBytes, opts.Now = int64(keep), time.Now()
			report, err := prune.Images(ctx, t.api, locks, opts)
			switch {
			case !t.settings.JSON:
				return errors.Join(err, t.PrintAll(render.Pruned(report, opts.DryRun)))
			case report.Removed == nil:
				return err // nothing is known
			}
			return errors.Join(err, t.PrintJSON(struct {
				Schema string `json:"schema"`
				prune.Report
			}{"evalbox/image-prune/v1", report}))
		}),
	}
	flags := cmd.Flags()
	flags.Var(cli.Size(&keep), "keep-bytes", "what the images may hold together, such as 5GB")
	flags.Var(cli.Duration(&opts.UnusedFor), "unused-for", "keep what was used or made more recently")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "only say what would be removed")
	a.SettingFlags(cmd, "json")
	return cmd
}
