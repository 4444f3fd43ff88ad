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
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// New returns the command `image`.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Create, pull, lock and show the images that programs run in",
		Example: `  sandbox image list
  sandbox image ensure debian
  sandbox image verify`,
	}
	cmd.AddCommand(newEnsure(a), newBuild(a), newPull(a),
		newList(a), newLock(a), newVerify(a),
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

func newList(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images of the catalog",
		Example: "  sandbox image list",
		Args:    cobra.NoArgs,
		RunE:    with(a, func(ctx context.Context, t *tools, _ []string) error { return t.list(ctx) }),
	}
	a.SettingFlags(cmd, "json")
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

func (t *tools) list(ctx context.Context) error {
	lock, _, err := t.settings.Lock()
	if err != nil {
		return err
	}
	all, err := images.List(ctx, t.store(), t.catalog)
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
	if err := t.ShowTable(t.settings, list, []string{"NAME", "PRESENT", "LOCKED", "SIZE", "DESCRIPTION"}, rows); err != nil || !differ || t.settings.JSON {
		return err
	}
	fmt.Fprintln(t.Err, "the lock holds another image than the engine has; see what differs with: sandbox image verify")
	return nil
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
				fmt.Fprintf(t.Err, "image %s is there\n", image.Reference)
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
	cmd.Flags().StringVar(&opts.Network, "build-network", "", "`network` for the build of an image with Python requirements, such as host (default: the engine's default)")
	cmd.Flags().StringVar(&opts.PipIndex, "pip-index", "", "`URL` of the package index for these requirements (default: PyPI); it stays in the image's history")
}

func ignoreMovedTagFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "ignore-moved-tag", false, "pull the pinned digest although the tag beside it names another one")
}

func newBuild(a *cli.App) *cobra.Command {
	opts := build.Options{Force: true}
	cmd := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Create an image of the catalog, also if the engine has it",
		Long: `Create an image of the catalog, also if the engine has it; without a name, the default.
The image that it replaces is removed unless something uses it. The ID of the new
one goes to stdout, the progress to stderr. As with 'sandbox image ensure --force', a new
one that differs from the locked one of its recipe has to be accepted with
'sandbox image lock'.`,
		Example: `  sandbox image build debian
  sandbox image build python --pip-index https://pypi.example/simple`,
		Args: cobra.MaximumNArgs(1),
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.ensure(ctx, nameArgument(args), opts)
		}),
	}
	buildFlags(cmd, &opts)
	return cmd
}

// ensure creates the image of this name, or the default, and locks it.
func (t *tools) ensure(ctx context.Context, name string, opts build.Options) error {
	if t.settings.LockPath() != "" { // before minutes of work
		if _, err := t.settings.PlaceOfLock(); err != nil {
			return err
		}
	}
	opts.Dockerfile, opts.Requirements, opts.Pull.Progress = evalbox.DockerfileRunner, evalbox.Requirements, t.Err
	opts.Pull.TerminalFD, opts.Pull.Terminal = t.progressTerminal()
	image, made, err := build.Ensure(ctx, t.api, t.catalog, name, opts)
	if err != nil {
		return err
	}
	if !made {
		fmt.Fprintf(t.Err, "image %s is there (%s)\n", image.Name, image.Reference)
	}
	if err := t.settleLock(ctx, image.Name); err != nil {
		return err
	}
	return t.Print("%s\n", image.ID)
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
with 'sandbox image lock'.`,
		Example: "  sandbox image ensure debian",
		Args:    cobra.MaximumNArgs(1),
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.ensure(ctx, nameArgument(args), opts)
		}),
	}
	cmd.Flags().BoolVar(&opts.Force, "force", false, "create it again although it is there")
	buildFlags(cmd, &opts)
	return cmd
}
