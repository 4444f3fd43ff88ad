package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

func newImageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Make, pull, lock and look at the images that programs run in",
		Example: `  sandbox image list
  sandbox image ensure debian
  sandbox image verify`,
		Args: cobra.ArbitraryArgs,
		RunE: unknownOrHelp,
	}
	cmd.AddCommand(newImageEnsureCommand(a), newImageBuildCommand(a), newImagePullCommand(a),
		newImageListCommand(a), newImageLockCommand(a), newImageVerifyCommand(a),
		newImageInspectCommand(a), newImageExportCommand(a), newImageImportCommand(a), newImagePruneCommand(a))
	return cmd
}

// imageTools are what the image commands work with. The caller closes the
// client. The engine is asked once first, so that one that is not there is told
// apart from an image that is not there.
func (a *app) imageTools(ctx context.Context) (settings, images.Catalog, *dockerhost.Client, error) {
	s, err := a.settings()
	if err != nil {
		return settings{}, images.Catalog{}, nil, err
	}
	catalog, err := s.catalog()
	if err != nil {
		return settings{}, images.Catalog{}, nil, err
	}
	api, err := s.engineClient()
	if err != nil {
		return settings{}, images.Catalog{}, nil, err
	}
	if _, err := docker.New(api).Info(ctx); err != nil {
		return settings{}, images.Catalog{}, nil, errors.Join(err, api.Close())
	}
	return s, catalog, api, nil
}

// nameArgument is the one name that a command may be given; empty is the default.
func nameArgument(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// progressTerminal says which terminal stderr is, if it is one.
func (a *app) progressTerminal() (fd uintptr, terminal bool) {
	file, ok := a.streams.Err.(*os.File)
	if !ok || !a.errTerminal {
		return 0, false
	}
	return file.Fd(), true
}
