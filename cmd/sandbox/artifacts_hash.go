package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/terminal"
)

// hashed is one file as `artifacts hash --json` prints it.
type hashed struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

func newArtifactsHashCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hash PATH...",
		Short: "Print the SHA-256 of files",
		Long: `Print the SHA-256 of the bytes of files, as sha256sum does: nothing of them is parsed.
They must be regular files, or links to such, of any size.

The exit code is 125 when one cannot be read; the others are printed.`,
		Example: "  sandbox artifacts hash out/manifest.json out/trace_pack.jsonl",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.hashArtifacts(cmd.Context(), args) },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) hashArtifacts(ctx context.Context, paths []string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
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
			if err := a.printSum(sum, path); err != nil {
				return err
			}
		}
	}
	if s.JSON {
		unreadable = append(unreadable, a.printJSON(all))
	}
	return errors.Join(unreadable...)
}

// printSum prints a line of sha256sum. A name with a backslash or the end of a line is
// written with a backslash before each, and before the line, so that a name cannot pass
// for two. A program gets the bytes of the name, a terminal nothing that it would obey.
func (a *app) printSum(sum, path string) error {
	mark, name := "", strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(path)
	if name != path {
		mark = `\`
	}
	if a.outTerminal {
		name = terminal.Line(name)
	}
	_, err := fmt.Fprintf(a.streams.Out, "%s%s  %s\n", mark, sum, name)
	return readerGone(err)
}
