package image

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/internal/render"
)

var (
	dockerfile   = cli.FileKind{Noun: "Dockerfile", Hint: "give the path of a Dockerfile"}
	requirements = cli.FileKind{Noun: "requirements", Hint: "give the path of a requirements.txt"}
)

// ownFlags are the flags that describe an image of the user's own.
type ownFlags struct {
	from, dir, pip, base string
	debian               []string
}

func newBuild(a *cli.App) *cobra.Command {
	var own ownFlags
	opts := build.Options{Force: true}
	cmd := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Build an image of your own, or an image of the catalog again",
		Long: `Build an image of your own and lock it, so that runs accept it as --image NAME. It is
built from one of:

  --from FILE       a Dockerfile, which the engine's builder carries out with a network
  --debian PKG,...  the catalog's image of Debian packages, with these packages
  --pip FILE        a requirements.txt; pip installs wheels only, and checks --hash
                    options, on --base NAME or else on Debian's Python

An image of that name that was built before is replaced, in the engine and in the lock.
Programs run with the same limits as in every image. A failed build leaves nothing.

Without these flags, an image of the catalog is built again; without a name, the
default. The image that it replaces is removed unless something uses it. As with
'sandbox image ensure --force', an image that differs from the locked one of its recipe
has to be accepted with 'sandbox image lock'.

The ID of the image goes to stdout, the progress to stderr.`,
		Example: `  sandbox image build tools --debian git,python3-yaml
  sandbox image build mine --from Dockerfile
  sandbox image build torch --pip requirements.txt
  sandbox image build python --pip-index https://pypi.example/simple`,
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, name := range []string{"from", "debian", "pip"} {
				if cmd.Flags().Changed(name) {
					given++
				}
			}
			return cli.Check(cmd,
				cli.Wrong(given > 1, "give one of --from, --debian and --pip"),
				cli.Wrong(given == 1 && len(args) == 0, "give the image a name, such as: sandbox image build mine --debian git"),
				cli.Wrong(own.dir != "" && own.from == "", "--build-dir is for --from"),
				cli.Wrong(own.base != "" && own.pip == "", "--base is for --pip"),
				func(cmd *cobra.Command) error {
					if given == 0 {
						return nil
					}
					if err := images.CheckName(args[0]); err != nil {
						return cli.Misuse(cmd, "%v", err)
					}
					return nil
				})
		},
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			if own.from == "" && own.pip == "" && own.debian == nil {
				if _, known := t.catalog.Lookup(nameArgument(args)); !known && len(args) > 0 {
					return cli.UsageHint("say what it is built from, with --from Dockerfile, --debian PACKAGES or --pip requirements.txt",
						"image build: %q is not an image of the catalog", args[0])
				}
				return t.ensure(ctx, nameArgument(args), opts)
			}
			return t.buildOwn(ctx, args[0], own, opts)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&own.from, "from", "", "build from this Dockerfile (`FILE`)")
	flags.StringVar(&own.dir, "build-dir", "", "`DIR` of the files that the Dockerfile copies (default: its own)")
	flags.StringSliceVar(&own.debian, "debian", nil, "add these Debian `packages` to the catalog's image")
	flags.StringVar(&own.pip, "pip", "", "install the packages of this requirements.txt (`FILE`)")
	flags.StringVar(&own.base, "base", "", "`image` to install them on (default: Debian's Python)")
	buildFlags(cmd, &opts)
	a.SettingFlags(cmd, "json")
	return cmd
}

// recipe reads the files that the flags name.
func (f ownFlags) recipe(name string) (build.Own, error) {
	own := build.Own{Name: name, Debian: f.debian, Base: f.base}
	asText := func(text []byte, source string) (string, error) {
		if strings.TrimSpace(string(text)) == "" {
			return "", fmt.Errorf("%s: is empty", source)
		}
		return string(text), nil
	}
	var err error
	switch {
	case f.from != "":
		if own.Dir = f.dir; own.Dir == "" {
			own.Dir = filepath.Dir(f.from)
		}
		own.Dockerfile, err = cli.ReadFile(dockerfile, f.from, asText)
	case f.pip != "":
		own.Requirements, err = cli.ReadFile(requirements, f.pip, asText)
	}
	return own, err
}

// buildOwn builds an image of the user's own and locks it.
func (t *tools) buildOwn(ctx context.Context, name string, flags ownFlags, opts build.Options) error {
	own, err := flags.recipe(name)
	if err != nil {
		return err
	}
	if err := t.prepare(&opts); err != nil {
		return err
	}
	image, err := build.Make(ctx, t.api, t.catalog, own, opts)
	if err != nil {
		return err
	}
	path := t.settings.LockPath()
	if path == "" {
		t.sayUnlockable()
		return t.showMade(image, true, false)
	}
	change, err := lock.Put(ctx, t.store(), t.catalog, path, name)
	if err != nil {
		return cli.WithHint(fmt.Errorf("image %s is built, but not locked: %w", name, err), "lock it with: sandbox image lock "+name)
	}
	for _, line := range render.LockChange(change, path) {
		fmt.Fprintln(t.Err, line)
	}
	t.Say("run a program in it with: sandbox run --image %s ...", name)
	return t.showMade(image, true, true)
}
