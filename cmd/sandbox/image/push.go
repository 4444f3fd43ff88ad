package image

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/push"
	"github.com/evalbox/evalbox/internal/settings"
)

func newPush(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push NAME|FILE.tar REGISTRY/REPOSITORY[:TAG]",
		Short: "Push an image to a registry, for engines that pull it from there",
		Long: `Push an image to a registry, such as that of a cluster: an image of the engine, or the one
image of a tar archive (docker save, sandbox image export or an OCI layout). Without a
tag, it is pushed as latest.

The reference by digest goes to stdout, the progress to stderr. Name the image by this
reference where it must not change.

An image that is not the locked one is refused, as in a run. A file is not compared with
the lock. The credentials are those of docker login. This command connects to the
registry, not the engine; only a registry on the loopback may lack HTTPS.`,
		Example: `  sandbox image push debian registry.example/team/debian:12
  sandbox image push evalbox-init.tar registry.example/team/evalbox-init
  sandbox image push debian 127.0.0.1:5000/debian --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := push.ParseTarget(args[1])
			if err != nil {
				return err
			}
			if strings.HasSuffix(args[0], ".tar") { // no engine is needed
				return a.With(func(ctx context.Context, s settings.Settings, _ []string) error {
					return (&tools{App: a, settings: s}).pushFile(ctx, args[0], to)
				})(cmd, args)
			}
			return with(a, func(ctx context.Context, t *tools, _ []string) error { return t.pushImage(ctx, args[0], to) })(cmd, args)
		},
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// pushedImage is the JSON of `image push`.
type pushedImage struct {
	Schema string `json:"schema"`
	// Name is the name of the image, or the path of the archive.
	Name string `json:"name"`
	// Tag is what it was pushed to, Reference the same image by its digest.
	Tag       string `json:"tag"`
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	// ID is the ID in the engine; it is empty for an archive.
	ID        string `json:"id"`
	Platform  string `json:"platform"`
	SizeBytes int64  `json:"size_bytes"`
}

// pushImage pushes an image of the engine, unless the lock holds another one.
func (t *tools) pushImage(ctx context.Context, name string, to reference.NamedTagged) error {
	held, there, err := t.settings.Lock()
	if err != nil {
		return err
	}
	r, found, err := images.Find(ctx, t.store(), t.catalog, name)
	if err != nil {
		return err
	}
	if there {
		if err := held.Check(r); err != nil {
			return cli.WithHint(err, "see what differs with: sandbox image verify; accept it with: sandbox image lock "+r.Name)
		}
	}
	pushed, err := push.Image(ctx, t.api, found, to, push.Options{Progress: t.Err})
	if err != nil {
		return err
	}
	return t.showPushed(r.Name, found.ID, pushed)
}

// pushFile pushes the image of an archive.
func (t *tools) pushFile(ctx context.Context, path string, to reference.NamedTagged) error {
	pushed, err := push.File(ctx, path, to, push.Options{Progress: t.Err})
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return archiveFile.Error(path, at)
	}
	if err != nil {
		return err
	}
	return t.showPushed(path, "", pushed)
}

func (t *tools) showPushed(name, id string, p push.Pushed) error {
	v := pushedImage{Schema: "evalbox/image-push/v1", Name: name, Tag: p.Tag, Reference: p.Reference, Digest: p.Digest,
		ID: id, Platform: p.Platform, SizeBytes: p.SizeBytes}
	return t.Show(t.settings, v, func() error { return t.Print("%s\n", p.Reference) })
}
