package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/rung"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

func newGateVerifyCommand(a *app) *cobra.Command {
	var key string
	var level int
	cmd := &cobra.Command{
		Use:   "verify DIR [--key PUBLIC.pem]",
		Short: "Check that a gate directory is what was recorded",
		Long: `Check a gate directory: every file has the hash of the manifest, nothing was added,
and the verdict and GATES.json are what follows from the evidence. With --key also
the signature, and that it is about these very files. Nothing is run or changed, and
no network is needed.

Whoever can change all files can make their hashes fit again; only --key shows that.

--rung checks the evidence of another tool instead, in the layout of eleven files:
641, 274177 or 65537.

The exit code is 0 if all of it holds and the verdict is PASS, 1 if something does
not hold or the verdict is BLOCKED, 3 if it is NEED_INFO, 125 when DIR or the key
cannot be read.`,
		Example: "  sandbox gate verify gate.out\n  sandbox gate verify gate.out --key gate.pub",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			switch {
			case given("key") && given("rung"):
				return usagef(cmd.CommandPath(), "gate verify: --key and --rung do not go together: the evidence of other tools is not signed")
			case given("key") && key == "":
				return usagef(cmd.CommandPath(), "gate verify: --key is empty")
			case given("rung") && !rung.Known(level):
				return usagef(cmd.CommandPath(), "gate verify: --rung %d: must be %d, %d or %d", level, rung.Local, rung.Stable, rung.Promotion)
			case given("rung"):
				return a.verifyRung(args[0], level)
			}
			return a.verifyGate(cmd.Context(), args[0], key)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&key, "key", "", "check the signature with the public key in this `file` (PEM)")
	flags.IntVar(&level, "rung", 0, "check the evidence of another tool against rung `N`")
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
		if o.Attestation, err = publicKey(key); err != nil {
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

// verifyRung checks a directory of another tool.
func (a *app) verifyRung(dir string, level int) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &hintedError{err, "give the folder that has plan.json and tests.json"}
	}
	report := rung.VerifyDir(root.FS(), level)
	if err := root.Close(); err != nil {
		return err
	}
	if report.Verdict != rung.Pass {
		a.code = exitProblem
	}
	if s.JSON {
		return a.printJSON(report)
	}
	var errs []error
	for _, check := range report.Failing {
		errs = append(errs, a.print("%s: %s\n", check.Name, check.Detail))
	}
	return errors.Join(append(errs, a.print("rung %s: %s\n", strconv.Itoa(level), report.Verdict))...)
}
