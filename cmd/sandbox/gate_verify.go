package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

func newGateVerifyCommand(a *app) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "verify DIR [--key PUBLIC.pem]",
		Short: "Check that a gate directory is what was recorded",
		Long: `Check a gate directory: every file has the hash of the manifest, nothing was added,
and the verdict and GATES.json are what follows from the evidence. With --key also
the signature, and that it is about these very files. Nothing is run or changed, and
no network is needed.

Whoever can change all files can make their hashes fit again; only --key shows that.

The exit code is 0 if all of it holds and the verdict is PASS, 1 if something does
not hold or the verdict is BLOCKED, 3 if it is NEED_INFO, 125 when DIR or the key
cannot be read.`,
		Example: "  sandbox gate verify gate.out\n  sandbox gate verify gate.out --key gate.pub",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("key") && key == "" {
				return usagef(cmd.CommandPath(), "gate verify: --key is empty")
			}
			return a.verifyGate(cmd.Context(), args[0], key)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&key, "key", "", "check the signature with the public key in this `file` (PEM)")
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) verifyGate(ctx context.Context, dir, key string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	var o gate.VerifyOptions
	if key != "" {
		if o.Attestation, err = gate.PublicKey(key); err != nil {
			return err
		}
	}
	report, err := gate.Verify(ctx, dir, o)
	if err != nil {
		return noGate(err)
	}
	a.code = exitProblem
	if report.OK {
		a.code = gateCode(report.Verdict)
	}
	if s.JSON {
		return a.printJSON(report)
	}
	for _, problem := range report.Problems {
		if err := a.print("problem: %s\n", render.Problem(problem)); err != nil {
			return err
		}
	}
	switch {
	case !report.OK:
		a.say("hint: " + evidence.ReasonTampered.Hint())
		return a.print("%s\n", text.Count(len(report.Problems), "problem"))
	case report.Attested:
		return a.print("verified, with its signature: %s\n", statusLine(report.Verdict))
	}
	if err := a.print("verified: %s\n", statusLine(report.Verdict)); err != nil {
		return err
	}
	if _, err := os.Lstat(dir + string(os.PathSeparator) + evidence.AttestationFile); err == nil {
		a.say("the signature was not checked: name the public key with --key")
	}
	return nil
}
