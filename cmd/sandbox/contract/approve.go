package contract

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
)

// approveFlags are the flags of `contract approve`.
type approveFlags struct {
	by           contract.Approver
	output, root string
	levels       []string
	expires      time.Duration
}

func newApprove(a *cli.App) *cobra.Command {
	f := approveFlags{expires: time.Hour}
	cmd := &cobra.Command{
		Use:   "approve CONTRACT.yaml --by NAME --reason TEXT",
		Short: "Approve one execution of a contract",
		Long: `Make an approval: somebody's consent to one execution of one contract at the levels
that need it, which are elevated files and the open network. It is bound to what
the contract says (not to its form, nor to its execution ID), to the root and to
the name of the image. It expires, and the execution that it permits uses it up. The
state directory records it: elsewhere, or changed, it permits nothing.

The exit code is 125 for a contract that is not valid or needs no approval.`,
		Example: `  sandbox contract approve contract.yaml --by Ada --reason "reads /etc/ssl" -o approval.yaml
  sandbox exec -f contract.yaml --approval approval.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			known := []string{contract.NeedElevated, contract.NeedOpen}
			rules := []cli.Rule{
				cli.Wrong(strings.TrimSpace(f.by.Name) == "" || strings.TrimSpace(f.by.Reason) == "", "--by and --reason are required, and not empty"),
				cli.Wrong(f.expires <= 0, "--expires must be more than 0"),
				cli.Wrong(f.expires > contract.MaxApproval, "--expires must be at most %v", contract.MaxApproval),
				cli.NotEmpty(cli.Folder, "root"),
			}
			for _, level := range f.levels {
				rules = append(rules, cli.Wrong(!slices.Contains(known, level), "--level %q: must be %s", level, strings.Join(known, " or ")))
			}
			if err := cli.Check(cmd, rules...); err != nil {
				return err
			}
			return a.With(func(ctx context.Context, s settings.Settings, args []string) error {
				return approve(ctx, a, s, f, args[0])
			})(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.by.Name, "by", "", "`name` of who approves (required)")
	flags.StringVar(&f.by.Reason, "reason", "", "why, as `text` (required)")
	flags.StringSliceVar(&f.levels, "level", nil, "`level` that is approved: filesystem:elevated or network:open (default: what the contract needs)")
	flags.Var(cli.Duration(&f.expires), "expires", "how long it can be used, such as 1h; 7 days at most")
	flags.StringVar(&f.root, "root", "", "`directory` that the paths of the contract are relative to, as of exec")
	flags.StringVarP(&f.output, "output", "o", "-", "`file` to make, or - for stdout")
	a.SettingFlags(cmd, append(slices.Clone(contractKeys), "image")...)
	return cmd
}

func approve(ctx context.Context, a *cli.App, s settings.Settings, f approveFlags, file string) error {
	rules, err := rulesOf(s)
	if err != nil {
		return err
	}
	text, err := readDocument(ctx, a, file)
	if err != nil {
		return err
	}
	x := rules.Examine(text)
	needs := x.Effective.Needs
	if len(x.Violations) > 0 {
		return cli.WithHint(errors.New(strings.Join(render.Violations(sourceName(file), x.Violations), "\n")), "a contract must be valid before it can be approved")
	}
	if len(needs) == 0 {
		return cli.WithHint(fmt.Errorf("%s: needs no approval", file), "carry it out with: sandbox exec -f "+cli.ShellWord(file))
	}
	if f.root == "" {
		if f.root, err = rootOf(file); err != nil {
			return err
		}
	}
	now := time.Now()
	want := contract.NewApproval(x.Effective, f.root, s.Image, f.by, now, f.expires)
	approval := want
	if len(f.levels) > 0 {
		approval.Levels = slices.Compact(slices.Sorted(slices.Values(f.levels)))
	}
	if wrong := contract.CheckApproval(approval, want, now); len(wrong) > 0 {
		return cli.WithHint(&contract.RefusedError{Source: "approval", Violations: wrong}, "the contract needs "+needsText(needs))
	}
	stateDir, err := s.StateDirectory()
	if err != nil {
		return err
	}
	made, err := approval.YAML()
	if err != nil {
		return err
	}
	if f.output == "-" {
		if err := approvalsIn(stateDir).Grant(approval); err != nil {
			return err
		}
		_, err := a.Out.Write(made)
		return cli.ReaderGone(err)
	}
	if err := writeNew(f.output, made); err != nil {
		return err
	}
	if err := approvalsIn(stateDir).Grant(approval); err != nil {
		return errors.Join(err, os.Remove(f.output))
	}
	return a.Print("%s: approval of %s until %s\n", f.output, needsText(approval.Levels), approval.ExpiresAt)
}

// writeNew creates a file, and leaves an existing one as it is.
func writeNew(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return cli.OutputError(name, errors.New("is there already"))
	}
	if err != nil {
		return cli.OutputError(name, err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return cli.OutputError(name, errors.Join(err, os.Remove(name)))
	}
	return nil
}
