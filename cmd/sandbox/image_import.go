package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images/archive"
)

func newImageImportCommand(a *app) *cobra.Command {
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
			if args[0] == "-" && isTerminal(a.streams.In) {
				return usagef(cmd.CommandPath(), "image import: stdin is a terminal: name a file, or pipe an archive in")
			}
			return a.importImage(cmd.Context(), args[0])
		},
	}
}

func (a *app) importImage(ctx context.Context, file string) error {
	input := endsWith(ctx, a.streams.In)
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return &fileError{fileArchive, file, err}
		}
		defer opened.Close()
		input = opened
	}
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	path, err := a.placeOfLock(s)
	if err != nil {
		return err
	}
	source := file
	if file == "-" {
		source = "on stdin"
	}
	change, err := archive.Import(ctx, api, catalog, path, input, source)
	if err != nil {
		return err
	}
	if !change.Changed {
		return a.print("image %s is there: %s, as locked in %s\n", change.After.Name, change.After.ID, path)
	}
	return a.printLockChange(change, path)
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
