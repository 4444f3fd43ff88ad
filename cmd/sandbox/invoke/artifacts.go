package invoke

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// NewArtifacts returns the command `artifacts`.
func NewArtifacts(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "artifacts",
		Short: "Check and hash what a tool left",
		Long: `Check and hash the artifacts of a tool, as 'sandbox invoke' does after a run. Nothing
is run, and no file is changed.`,
	}
	cmd.AddCommand(newVerify(a), newHash(a))
	return cmd
}

func newVerify(a *cli.App) *cobra.Command {
	var f artifactFlags
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check the artifacts in an output directory",
		Long: `Check the artifacts in an output directory: manifest.json and trace_pack.jsonl, which
must be there, adapter_metadata.json if it is, what --profile declares, and what the
manifest lists, with its hashes where it gives some. All of them must be regular
files; links are not followed. Files of any size are read piece by piece.

The exit code is 1 when something is wrong, and 125 when DIR cannot be read.`,
		Example: "  sandbox artifacts verify out\n  sandbox artifacts verify out --json | jq .problems",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return cli.Check(cmd, cli.Wrong(args[0] == "", "DIR is empty"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return verify(ctx, a, s, args[0], f)
		}),
	}
	f.register(cmd)
	a.SettingFlags(cmd, "json")
	return cmd
}

func verify(ctx context.Context, a *cli.App, s settings.Settings, dir string, f artifactFlags) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	report, err := invoke.Verify(ctx, dir, opts)
	if err != nil {
		var unusable *invoke.ArtifactError
		if errors.As(err, &unusable) {
			return cli.WithHint(err, "give the output directory of a tool")
		}
		return err
	}
	if !report.OK {
		a.Code = cli.ExitProblem
	}
	return a.Show(s, report, func() error {
		var rows [][]string
		for _, artifact := range report.Artifacts {
			records := ""
			if artifact.Records != nil {
				records = strconv.FormatInt(*artifact.Records, 10)
			}
			rows = append(rows, []string{artifact.Path, string(artifact.Role), text.Size(artifact.SizeBytes), records, artifact.SHA256})
		}
		if err := a.PrintTable([]string{"PATH", "ROLE", "SIZE", "RECORDS", "SHA256"}, rows); err != nil {
			return err
		}
		var lines []string
		for _, problem := range report.Problems {
			lines = append(lines, "problem: "+problem.Error())
		}
		return a.PrintAll(append(lines, render.Artifacts(report)))
	})
}

// hashed is one file as `artifacts hash --json` prints it.
type hashed struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

func newHash(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hash PATH...",
		Short: "Print the SHA-256 of files",
		Long: `Print the SHA-256 of the bytes of files, as sha256sum does: nothing of them is parsed.
They must be regular files, or links to such, of any size.

The exit code is 125 when one cannot be read; the others are printed.`,
		Example: "  sandbox artifacts hash out/manifest.json out/trace_pack.jsonl",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, paths []string) error {
			return printHashes(ctx, a, s, paths)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

func printHashes(ctx context.Context, a *cli.App, s settings.Settings, paths []string) error {
	all := []hashed{}
	var unreadable []error
	for _, path := range paths {
		sum, err := invoke.HashArtifact(ctx, path)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		all = append(all, hashed{path, sum})
		if !s.JSON {
			if err := printSum(a, sum, path); err != nil {
				return err
			}
		}
	}
	if s.JSON {
		unreadable = append(unreadable, a.PrintJSON(all))
	}
	return errors.Join(unreadable...)
}

// printSum prints a line of sha256sum. A name with a backslash or the end of a line is
// written with a backslash before each, and before the line, so that a name cannot pass
// for two. A program gets the bytes of the name, a terminal nothing that it would obey.
func printSum(a *cli.App, sum, path string) error {
	mark, name := "", strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(path)
	if name != path {
		mark = `\`
	}
	if a.OutTerminal {
		name = terminal.Line(name)
	}
	_, err := fmt.Fprintf(a.Out, "%s%s  %s\n", mark, sum, name)
	return cli.ReaderGone(err)
}
