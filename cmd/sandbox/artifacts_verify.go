package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

func newArtifactsVerifyCommand(a *app) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef(cmd.CommandPath(), "artifacts verify: DIR is empty")
			}
			return a.verifyArtifacts(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().SortFlags = false
	f.register(cmd)
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) verifyArtifacts(ctx context.Context, dir string, f artifactFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	report, err := invoke.Verify(ctx, dir, opts)
	if err != nil {
		var unusable *invoke.ArtifactError
		if errors.As(err, &unusable) {
			return &hintedError{err, "give the output directory of a tool"}
		}
		return err
	}
	if !report.OK {
		a.code = exitProblem
	}
	if s.JSON {
		return a.printJSON(report)
	}
	var rows [][]string
	for _, artifact := range report.Artifacts {
		records := ""
		if artifact.Records != nil {
			records = strconv.FormatInt(*artifact.Records, 10)
		}
		rows = append(rows, []string{artifact.Path, string(artifact.Role), text.Size(artifact.SizeBytes), records, artifact.SHA256})
	}
	if err := a.printTable([]string{"PATH", "ROLE", "SIZE", "RECORDS", "SHA256"}, rows); err != nil {
		return err
	}
	for _, problem := range report.Problems {
		if err := a.print("problem: %s\n", problem); err != nil {
			return err
		}
	}
	return a.print("%s\n", render.Artifacts(report))
}
