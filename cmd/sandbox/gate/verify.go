package gate

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
)

func newVerify(a *cli.App) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "verify DIR [--key PUBLIC.pem]",
		Short: "Check that a gate directory is what was recorded",
		Long: `Check a gate directory: every file has the hash of the manifest, nothing was added,
and the verdict and GATES.json follow from the evidence. --key also checks the
signature, and that it is about these files. Nothing runs or changes, and no network
is needed.

An attacker who can change all files can also change their hashes; only --key shows
that.

The exit code is 0 if all of it holds and the verdict is PASS, 1 if something does
not hold or the verdict is BLOCKED, 3 if it is NEED_INFO, 125 when DIR or the key
cannot be read.`,
		Example: "  sandbox gate verify gate.out\n  sandbox gate verify gate.out --key gate.pub",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error { return cli.Check(cmd, cli.NotEmpty("", "key")) },
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return verify(ctx, a, s, args[0], key)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&key, "key", "", "check the signature with the public key in this `file` (PEM)")
	a.SettingFlags(cmd, "json")
	return cmd
}

func verify(ctx context.Context, a *cli.App, s settings.Settings, dir, key string) (err error) {
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
	a.Code = cli.ExitProblem
	if report.OK {
		a.Code = cli.ExitCode(ended(report.Verdict.Status), nil)
	}
	return a.Show(s, report, func() error {
		var lines []string
		for _, problem := range report.Problems {
			lines = append(lines, "problem: "+render.Problem(problem))
		}
		switch {
		case !report.OK:
			a.Say("hint: %s", evidence.ReasonTampered.Hint())
			return a.PrintAll(append(lines, text.Count(len(report.Problems), "problem")))
		case report.Attested:
			return a.Print("verified, with its signature: %s\n", statusLine(report.Verdict))
		}
		if _, err := os.Lstat(filepath.Join(dir, evidence.AttestationFile)); err == nil {
			defer a.Say("the signature was not checked: name the public key with --key")
		}
		return a.Print("verified: %s\n", statusLine(report.Verdict))
	})
}
