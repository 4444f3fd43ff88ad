package main

import (
	"context"
	"errors"

	"github.com/docker/docker/client"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox"
)

func newImageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Make, pull and list the images that programs run in",
		Example: `  sandbox image list
  sandbox image ensure debian`,
		Args: cobra.ArbitraryArgs,
		RunE: unknownOrHelp,
	}
	cmd.AddCommand(newImageEnsureCommand(a), newImageListCommand(a))
	cmd.AddCommand(newImageBuildCommand(a), newImagePullCommand(a))
	return cmd
}

func newImageEnsureCommand(a *app) *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "ensure [NAME]",
		Short: "Make an image of the catalog unless the engine has it",
		Long: `Make an image of the catalog unless the engine has it; without a name, the default.
The ID of the image goes to stdout, the progress to stderr.

A base in a registry is pulled by its digest; then the image is built on it. The
credentials are those of docker login.`,
		Example: "  sandbox image ensure debian",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ensureImage(cmd.Context(), args, flags)
		},
	}
	cmd.Flags().BoolVar(&flags.force, "force", false, "make it again although it is there")
	flags.register(cmd)
	return cmd
}

// imageTools are what both image commands work with. The caller closes the
// client. The engine is asked once first, so that one that is not there is told
// apart from an image that is not there.
func (a *app) imageTools(ctx context.Context) (settings, images.Catalog, *client.Client, error) {
	s, err := a.settings()
	if err != nil {
		return settings{}, images.Catalog{}, nil, err
	}
	catalog, err := s.catalog()
	if err != nil {
		return settings{}, images.Catalog{}, nil, err
	}
	api, err := engineClient()
	if err != nil {
		return settings{}, images.Catalog{}, nil, err
	}
	if _, err := sandbox.DockerEngine(api).Info(ctx); err != nil {
		return settings{}, images.Catalog{}, nil, errors.Join(err, api.Close())
	}
	return s, catalog, api, nil
}

func newImageListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images of the catalog",
		Example: "  sandbox image list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listImages(cmd.Context()) },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

// listedImage is one image as `image list --json` prints it.
type listedImage struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Default     bool   `json:"default"`
	Present     bool   `json:"present"`
	Makeable    bool   `json:"makeable"`
	Tag         string `json:"tag"`
	Base        string `json:"base"`
	ID          string `json:"id"`
	SizeBytes   int64  `json:"size_bytes"`
	Created     string `json:"created"`
}

func (a *app) listImages(ctx context.Context) error {
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	all, err := images.List(ctx, api, catalog)
	if err != nil {
		return err
	}
	list := []listedImage{}
	var rows [][]string
	for _, i := range all {
		list = append(list, listedImage{Name: i.Name, Description: i.Description, Default: i.Default, Present: i.Present,
			Makeable: i.Makeable, Tag: i.Tag, Base: i.Base, ID: i.ID, SizeBytes: i.SizeBytes, Created: i.Created})
		name, there, size := i.Name, "no", "-"
		if i.Default {
			name += " (default)"
		}
		if i.Present {
			there, size = "yes", formatSize(i.SizeBytes)
		}
		rows = append(rows, []string{name, there, size, i.Description})
	}
	if s.JSON {
		return a.printJSON(list)
	}
	return a.printTable([]string{"NAME", "PRESENT", "SIZE", "DESCRIPTION"}, rows)
}
