package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/harness/invoke"
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
They must be regular files, of any size.

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
			if err := a.print("%s  %s\n", sum, terminal.Line(path)); err != nil {
				return err
			}
		}
	}
	if s.JSON {
		unreadable = append(unreadable, a.printJSON(all))
	}
	return errors.Join(unreadable...)
}
