package image

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// New returns the command `image`.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build, pull, push, lock and show the images that programs run in",
		Example: `  sandbox image list
  sandbox image ensure debian
  sandbox image build tools --debian git,python3-yaml
  sandbox image verify`,
	}
	cmd.AddCommand(newEnsure(a), newBuild(a), newPull(a), newPush(a),
		newList(a), newRemove(a), newLock(a), newUnlock(a), newVerify(a),
		newInspect(a), newExport(a), newImport(a), newPrune(a))
	return cmd
}

// tools are what a command works with: the settings, the catalog, and a client of the engine.
type tools struct {
	*cli.App

	settings settings.Settings
	catalog  images.Catalog
	api      *dockerhost.Client
}

// with runs a command with its tools. It asks the engine once, so that a missing engine is
// not mistaken for a missing image.
func with(a *cli.App, do func(ctx context.Context, t *tools, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		t := &tools{App: a}
		if t.settings, err = a.Settings(); err != nil {
			return err
		}
		if t.catalog, err = t.settings.Catalog(); err != nil {
			return err
		}
		if t.api, err = t.settings.Client(); err != nil {
			return err
		}
		defer t.api.Close()
		if _, err := docker.New(t.api).Info(cmd.Context()); err != nil {
			return err
		}
		return do(cmd.Context(), t, args)
	}
}

func (t *tools) store() store.Docker { return store.Docker{APIClient: t.api} }

// nameArgument is the one name that a command may be given; empty is the default.
func nameArgument(args []string) string { return strings.Join(args, "") }

// progressTerminal says which terminal stderr is, if it is one.
func (t *tools) progressTerminal() (fd uintptr, terminal bool) {
	file, ok := t.Err.(*os.File)
	if !ok || !t.ErrTerminal {
		return 0, false
	}
	return file.Fd(), true
}

func newPull(a *cli.App) *cobra.Command {
	var opts pull.Options
	cmd := &cobra.Command{
		Use:   "pull NAME|REFERENCE@sha256:...",
		Short: "Pull an image by its digest",
		Long: `Pull an image by its digest: the base of an image of the catalog, or a reference
NAME[:TAG]@sha256:... of any registry. What the engine has is not pulled again.

A tag must still name the digest in the registry. The image must be for the
engine's platform. The credentials are those of docker login. The ID of the image
goes to stdout, the progress to stderr.`,
		Example: `  sandbox image pull python
  sandbox image pull registry.example/team/tools:1.2@sha256:0123...`,
		Args: cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.Wrong(opts.Platform != "" && !strings.Contains(opts.Platform, "/"),
				"--platform %q: must be os/architecture, such as linux/arm64", opts.Platform))
		},
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			opts.Progress = t.Err
			opts.TerminalFD, opts.Terminal = t.progressTerminal()
			image, pulled, err := pull.Named(ctx, t.api, t.catalog, args[0], opts)
			if err != nil {
				return err
			}
			if !pulled {
				fmt.Fprintf(t.Err, "the engine has %s\n", image.Reference)
			}
			return t.Print("%s\n", image.ID)
		}),
	}
	cmd.Flags().StringVar(&opts.Platform, "platform", "", "`platform` to pull, such as linux/arm64 (default: the engine's)")
	ignoreMovedTagFlag(cmd, &opts.IgnoreMovedTag)
	return cmd
}

// buildFlags gives a command the flags of a build.
func buildFlags(cmd *cobra.Command, opts *build.Options) {
	ignoreMovedTagFlag(cmd, &opts.Pull.IgnoreMovedTag)
	cmd.Flags().StringVar(&opts.Network, "build-network", "", "`network` for a build with Python requirements or from a Dockerfile, such as host (default: the engine's default)")
	cmd.Flags().StringVar(&opts.PipIndex, "pip-index", "", "`URL` of the package index for these requirements (default: PyPI); it stays in the image's history")
}

func ignoreMovedTagFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "ignore-moved-tag", false, "pull the pinned digest although the tag beside it names another one")
}

// ensure creates the image of this name, or the default, and locks it.
func (t *tools) ensure(ctx context.Context, name string, opts build.Options) error {
	if err := t.prepare(&opts); err != nil {
		return err
	}
	image, made, err := build.Ensure(ctx, t.api, t.catalog, name, opts)
	if err != nil {
		return err
	}
	if !made {
		fmt.Fprintf(t.Err, "the engine has image %s (%s)\n", image.Name, image.Reference)
	}
	locked, err := t.settleLock(ctx, image.Name)
	if err != nil {
		return err
	}
	return t.showMade(image, made, locked)
}

// prepare completes the options of a build. It fails, before minutes of work, if the image
// cannot be locked afterwards.
func (t *tools) prepare(opts *build.Options) error {
	if t.settings.LockPath() != "" {
		if _, err := t.settings.PlaceOfLock(); err != nil {
			return err
		}
	}
	opts.Dockerfile, opts.Requirements, opts.Pull.Progress = evalbox.DockerfileRunner, evalbox.Requirements, t.Err
	opts.Pull.TerminalFD, opts.Pull.Terminal = t.progressTerminal()
	return nil
}

// madeImage is the JSON of `image ensure` and `image build`.
type madeImage struct {
	Schema    string `json:"schema"`
	Name      string `json:"name"`
	Reference string `json:"reference"`
	ID        string `json:"id"`
	Content   string `json:"content"`
	Platform  string `json:"platform"`
	// Made says that the image was built just now.
	Made bool `json:"made"`
	// Locked says that the lock has it.
	Locked bool   `json:"locked"`
	Lock   string `json:"lock"`
}

// showMade prints the ID of an image that was built or found.
func (t *tools) showMade(r images.Resolved, made, locked bool) error {
	v := madeImage{Schema: "evalbox/image/v1", Name: r.Name, Reference: r.Reference, ID: r.ID, Content: r.Content,
		Platform: r.Platform, Made: made, Locked: locked, Lock: t.settings.LockPath()}
	return t.Show(t.settings, v, func() error { return t.Print("%s\n", r.ID) })
}

func newEnsure(a *cli.App) *cobra.Command {
	var opts build.Options
	cmd := &cobra.Command{
		Use:   "ensure [NAME]",
		Short: "Create an image of the catalog unless the engine has it",
		Long: `Create an image of the catalog unless the engine has it; without a name, the default.
The ID of the image goes to stdout, the progress to stderr.

A base in a registry is pulled by its digest; then the image is built on it. The
credentials are those of docker login.

An image that the lock has no entry for is locked, and so is one whose recipe in the
catalog has changed. An entry of the same recipe stands: if the image is another one,
as after --force, the exit code is 1 and runs refuse the image until it is accepted
with 'sandbox image lock'. Once there is a lock, runs refuse every image that it does
not have: lock your own with 'sandbox image lock NAME', or build it with
'sandbox image build', which locks it.`,
		Example: "  sandbox image ensure debian",
		Args:    cobra.MaximumNArgs(1),
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.ensure(ctx, nameArgument(args), opts)
		}),
	}
	cmd.Flags().BoolVar(&opts.Force, "force", false, "create it again although the engine has it")
	buildFlags(cmd, &opts)
	a.SettingFlags(cmd, "json")
	return cmd
}
