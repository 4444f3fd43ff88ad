package gate

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the wish to begin with
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
)

// New returns the command `gate`.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Run tests and keep the evidence that they passed",
		Long: `Run the tests of a workspace in fresh containers, keep the evidence, and judge it.
PASS needs a sealed wish with at least one command, the expected exit code of every
command, a test that really ran in every report of tests, no attempt that the boundary
forbids, and complete evidence. Strict mode demands a report. Anything else is BLOCKED,
or NEED_INFO if a program or the image is missing.

'sandbox replay' runs the same again and compares.`,
		Example: `  sandbox gate run -- pytest -q
  sandbox gate new > wish.yaml
  sandbox gate seal wish.yaml
  sandbox gate run wish.lock.json --output gate.out
  sandbox gate verify gate.out`,
	}
	cmd.AddCommand(newNew(a), newSeal(a), newRun(a), newJudge(a), newVerify(a), newSign(a),
		newNormalize(a), a.SchemaCommand(&cobra.Command{
			Use:     "schema [--lock]",
			Short:   "Print the JSON Schema of wishes or of their locks",
			Long:    "Print the JSON Schema (draft 2020-12) of wishes, or with --lock that of sealed ones.",
			Example: "  sandbox gate schema > wish.schema.json\n  sandbox gate schema --lock",
		}, spec.SchemaJSON, "lock", "that of sealed wishes", spec.LockSchemaJSON))
	return cmd
}

func newJudge(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "judge DIR",
		Short: "Judge a gate directory again",
		Long: `Make the verdict of a gate directory anew from its evidence, on any machine. Nothing
is run or changed; what is missing or was changed blocks.

The exit code is that of the verdict: 0 PASS, 1 BLOCKED, 3 NEED_INFO; 125 when DIR
cannot be read.`,
		Example: "  sandbox gate judge gate.out\n  sandbox gate judge gate.out --json | jq .findings",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			v, err := gate.Judge(ctx, args[0])
			if err != nil {
				return noGate(err)
			}
			a.Code = cli.ExitCode(ended(v.Status), nil)
			return a.Show(s, v, func() error {
				return a.PrintAll(append(render.Findings(v, a.RepeatFlags), statusLine(v)))
			})
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// statusLine is a verdict in one line.
func statusLine(v evidence.Verdict) string {
	line := string(v.Status)
	if v.Status != evidence.Pass {
		line += ": " + string(v.StopReason)
	}
	if n := len(v.Warnings); n > 0 {
		line += ", with " + text.Count(n, "warning")
	}
	return line
}

// noGate gives an error about a gate directory a hint.
func noGate(err error) error {
	var directory *gate.DirectoryError
	if errors.As(err, &directory) && directory.Hint() == "" {
		return cli.WithHint(err, "name the directory of a gate, such as "+defaultOut)
	}
	return err
}

func newNormalize(a *cli.App) *cobra.Command {
	var roots []string
	var showSuspects, hash bool
	cmd := &cobra.Command{
		Use:   "normalize FILE",
		Short: "Show a log as a gate records it",
		Long: `Show a log as a gate records it: without what changes from run to run, such as times,
durations, process IDs, addresses and host names. FILE is - for stdin. The lines stay
in their order.

--suspects shows instead what still looks as if it changes; the exit code is then 1
if there is any. --hash shows the hash of the behaviour.`,
		Example: "  pytest -q | sandbox gate normalize -\n  sandbox gate normalize out.log --suspects",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.Check(cmd, cli.Apart("suspects", "hash")); err != nil {
				return err
			}
			normalizer, err := normalize.New(nil, normalize.Context{Roots: roots})
			if err != nil {
				return err
			}
			text, err := a.ReadStream(args[0])
			if err != nil {
				return err
			}
			text = normalizer.Text(text)
			switch {
			case hash:
				sum, err := normalize.BehaviorHash(bytes.NewReader(text), int64(len(text)))
				if err != nil {
					return err
				}
				return a.Print("%s\n", sum)
			case !showSuspects:
				return a.Print("%s", text)
			}
			suspects, all := normalize.Detect(text, nil)
			if all > 0 {
				a.Code = cli.ExitProblem
			}
			var lines []string
			for _, s := range suspects {
				lines = append(lines, fmt.Sprintf("%d: %s: %s", s.Line, s.Detector, s.Text))
			}
			if more := all - len(suspects); more > 0 {
				lines = append(lines, fmt.Sprintf("and %d more", more))
			}
			return a.PrintAll(lines)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&roots, "root", nil, "absolute `path` of the workspace: paths below it become relative")
	flags.BoolVar(&showSuspects, "suspects", false, "show what still looks as if it changes from run to run")
	flags.BoolVar(&hash, "hash", false, "show the hash of the behaviour")
	return cmd
}

//go:embed wish.yaml
var wish string

func newNew(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "new",
		Short: "Print a wish to begin with",
		Long: `Print a wish to begin with. It is valid, and its comments explain every key and its
default.`,
		Example: "  sandbox gate new > wish.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.Print("%s", wish) },
	}
}

// defaultLock is the file name of a sealed wish.
const defaultLock = evidence.WishLockFile

func newSeal(a *cli.App) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "seal WISH.yaml [-o wish.lock.json]",
		Short: "Seal a wish, so that it can be run",
		Long: `Seal a wish: check it, look up what its names stand for now (the ID of the image, the
hashes of its toolchain), and write all of it with a hash into a lock. A gate runs
the sealed commands and nothing else: a changed lock must be sealed again.

The hash finds changes, not forgers. Nothing is run.`,
		Example: "  sandbox gate seal wish.yaml\n  sandbox gate seal ci/wish.yaml -o ci/wish.lock.json",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.NotEmpty(": give a file, or leave it out", "output"))
		},
		RunE: a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner, args []string) error {
			h, err := gate.New(runner, gate.Options{Request: s.Request(), Policy: s.Policy()})
			if err != nil {
				return err
			}
			lock, warnings, err := h.SealFile(ctx, args[0])
			for _, warning := range warnings {
				a.Warn("%s", warning)
			}
			if err != nil {
				return err
			}
			encoded, err := lock.JSON()
			if err != nil {
				return err
			}
			into := cmp.Or(output, filepath.Join(filepath.Dir(args[0]), defaultLock))
			if err := writeReport(into, encoded); err != nil {
				return err
			}
			return a.Print("sealed %s: %s, %s on %s, in %s\n", lock.Wish.Name, lock.SHA256, text.Count(len(lock.Wish.GateCommands), "command"), lock.Toolchain.ImageID, into)
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` for the lock (default: "+defaultLock+" beside the wish)")
	a.SettingFlags(cmd, "image", "allow_unlocked")
	return cmd
}

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
		switch {
		case !report.OK:
			return printProblems(a, dir, report)
		case report.Attested:
			return a.Print("verified, with its signature: %s\n", statusLine(report.Verdict))
		}
		if _, err := os.Lstat(filepath.Join(dir, evidence.AttestationFile)); err == nil {
			defer a.Say("the signature was not checked: name the public key with --key")
		}
		return a.Print("verified: %s\n", statusLine(report.Verdict))
	})
}

// printProblems prints why a directory does not hold, with a hint for each kind of problem.
func printProblems(a *cli.App, dir string, report gate.VerifyReport) error {
	var lines []string
	for _, problem := range report.Problems {
		lines = append(lines, "problem: "+render.Problem(problem))
	}
	if report.Unsigned {
		a.Say("hint: sign it with: sandbox gate sign %s --key KEY", text.ShellWord(dir))
	}
	if !report.Unsigned || len(lines) > 1 {
		a.Say("hint: %s", evidence.ReasonTampered.Hint())
	}
	return a.PrintAll(append(lines, text.Count(len(lines), "problem")))
}

func newSign(a *cli.App) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "sign DIR --key PRIVATE.pem",
		Short: "Sign a gate directory",
		Long: `Sign a gate directory, as --sign of 'gate run' does, for example on a machine that has the
key. The directory is verified first: one that does not hold is not signed. An earlier
signature is replaced.

The exit code is 0 if it was signed, whatever its verdict is, and 1 if it does not hold.`,
		Example: "  sandbox gate sign gate.out --key gate.key",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.Required("key"), cli.NotEmpty("", "key"))
		},
		RunE: a.With(func(ctx context.Context, _ settings.Settings, args []string) error {
			private, warning, err := gate.ReadKey(key, args[0])
			if err != nil {
				return err
			}
			if warning != "" {
				a.Warn("%s", warning)
			}
			report, err := gate.Verify(ctx, args[0], gate.VerifyOptions{})
			if err != nil {
				return noGate(err)
			}
			if !report.OK {
				a.Code = cli.ExitProblem
				return printProblems(a, args[0], report)
			}
			if err := gate.Sign(ctx, args[0], private); err != nil {
				return err
			}
			return a.Print("signed %s: %s\n", args[0], statusLine(report.Verdict))
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "the private key, a `file` (PEM)")
	return cmd
}
