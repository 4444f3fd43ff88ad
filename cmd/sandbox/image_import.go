package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images"
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
		RunE:    func(cmd *cobra.Command, args []string) error { return a.importImage(cmd.Context(), args[0]) },
	}
}

func (a *app) importImage(ctx context.Context, file string) error {
	archive := a.streams.In
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return &fileError{fileArchive, file, err}
		}
		defer opened.Close()
		archive = opened
	}
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	path, err := a.lockToWrite(s)
	if err != nil {
		return err
	}
	source := file
	if file == "-" {
		source = "on stdin"
	}
	change, err := images.Import(ctx, api, catalog, path, archive, source)
	if err != nil {
		return err
	}
	if !change.Changed {
		return a.print("image %s is there: %s, as locked in %s\n", change.After.Name, change.After.ID, path)
	}
	return a.printLockChange(change, path)
}
