package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/text"
)

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
	Locked      bool   `json:"locked"`
	// LockedID is the ID in the lock if that holds another image, else empty.
	LockedID  string `json:"locked_id"`
	Tag       string `json:"tag"`
	Base      string `json:"base"`
	ID        string `json:"id"`
	SizeBytes int64  `json:"size_bytes"`
	Created   string `json:"created"`
}

func (a *app) listImages(ctx context.Context) error {
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	lock, _, err := s.Lock()
	if err != nil {
		return err
	}
	all, err := images.List(ctx, store.Docker{APIClient: api}, catalog)
	if err != nil {
		return err
	}
	list := []listedImage{}
	var rows [][]string
	differ := false
	for _, i := range all {
		locked := i.Present && lock.Check(i.Resolved) == nil
		list = append(list, listedImage{Name: i.Name, Description: i.Description, Default: i.Default, Present: i.Present,
			Makeable: true, Locked: locked, LockedID: lock.OtherID(i.Resolved), Tag: i.Tag(), Base: i.Base.String(), ID: i.Image.ID, SizeBytes: i.Image.SizeBytes, Created: i.Image.Created})
		name, there, held, size := i.Name, "no", "no", "-"
		if i.Default {
			name += " (default)"
		}
		if i.Present {
			there, size = "yes", text.Size(i.Image.SizeBytes)
		}
		switch {
		case locked:
			held = "yes"
		case lock.OtherID(i.Resolved) != "":
			held, differ = "differs", true
		}
		rows = append(rows, []string{name, there, held, size, i.Description})
	}
	if s.JSON {
		return a.printJSON(list)
	}
	if err := a.printTable([]string{"NAME", "PRESENT", "LOCKED", "SIZE", "DESCRIPTION"}, rows); err != nil || !differ {
		return err
	}
	fmt.Fprintln(a.streams.Err, "the lock holds another image than the engine has; see what differs with: sandbox image verify")
	return nil
}
