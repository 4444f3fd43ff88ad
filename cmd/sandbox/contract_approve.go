package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
)

// approvedLevels are the levels that need an approval.
var approvedLevels = []string{"filesystem:elevated", "network:open"}

// approveFlags are the flags of `contract approve`.
type approveFlags struct {
	by, reason, output string
	root               string
	levels             []string
	expires            time.Duration
}

func newContractApproveCommand(a *app) *cobra.Command {
	f := approveFlags{expires: soon}
	cmd := &cobra.Command{
		Use:   "approve CONTRACT.yaml --by NAME --reason TEXT",
		Short: "Approve one execution of a contract",
		Long: `Make an approval: somebody's consent to one execution of one contract at the levels
that need it, which are elevated files and the open network. It is bound to what
the contract says (not to its form, nor to its execution ID), to the root and to
the name of the image, expires, and is used up by the execution that it permits. It
is sealed with a key of the state folder: elsewhere, or changed, it permits nothing.

The exit code is 125 for a contract that is not valid or needs no approval.`,
		Example: `  sandbox contract approve contract.yaml --by Ada --reason "reads /etc/ssl" -o approval.yaml
  sandbox exec -f contract.yaml --approval approval.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case strings.TrimSpace(f.by) == "" || strings.TrimSpace(f.reason) == "":
				return usagef(cmd.CommandPath(), "contract approve: --by and --reason are required, and not empty")
			case f.expires <= 0:
				return usagef(cmd.CommandPath(), "contract approve: --expires must be more than 0")
			case f.expires > contract.MaxApproval:
				return usagef(cmd.CommandPath(), "contract approve: --expires must be at most %v", contract.MaxApproval)
			case cmd.Flags().Changed("root") && f.root == "":
				return usagef(cmd.CommandPath(), "contract approve: --root is empty: give a folder, or leave it out")
			}
			for _, level := range f.levels {
				if !slices.Contains(approvedLevels, level) {
					return usagef(cmd.CommandPath(), "contract approve: --level %q: must be %s", level, strings.Join(approvedLevels, " or "))
				}
			}
			return a.approveContract(cmd.Context(), f, args[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.by, "by", "", "`name` of who approves (required)")
	flags.StringVar(&f.reason, "reason", "", "why, as `text` (required)")
	flags.StringSliceVar(&f.levels, "level", nil, "`level` that is approved: filesystem:elevated or network:open (default: what the contract needs)")
	flags.Var(&durationFlag{&f.expires}, "expires", "how long it can be used, such as 1h; 7 days at most")
	flags.StringVar(&f.root, "root", "", "`folder` that the paths of the contract are relative to, as of exec")
	flags.StringVarP(&f.output, "output", "o", "-", "`file` to make, or - for stdout")
	a.settingFlags(cmd, false, contractKeys...)
	a.settingFlags(cmd, false, "image")
	return cmd
}

func (a *app) approveContract(ctx context.Context, f approveFlags, file string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	rules, err := rulesOf(s)
	if err != nil {
		return err
	}
	text, err := a.readDocument(ctx, file)
	if err != nil {
		return err
	}
	_, e, violations, _ := rules.Examine(text, file)
	if len(violations) > 0 {
		return &hintedError{errors.New(strings.Join(render.Violations(sourceName(file), violations), "\n")), "a contract must be valid before it can be approved"}
	}
	if len(e.Needs) == 0 {
		return &hintedError{fmt.Errorf("%s: needs no approval", file), "carry it out with: sandbox exec -f " + shellWord(file)}
	}
	levels := f.levels
	if len(levels) == 0 {
		levels = e.Needs
	}
	root := f.root
	if root == "" {
		if root, err = rootOf(file); err != nil {
			return err
		}
	}
	of := contract.NewApprovable(e, root, s.Image)
	now := time.Now().UTC()
	approval := contract.Approval{
		Schema: contract.ApprovalSchemaV1, ID: uuid.NewString(), ContractSHA256: e.ContractSHA256,
		ApprovedBy: f.by, Reason: f.reason, ApprovedAt: now.Format(time.RFC3339), ExpiresAt: now.Add(f.expires).Format(time.RFC3339),
		Root: of.Root, Image: of.Image, Levels: slices.Compact(slices.Sorted(slices.Values(levels))),
	}
	if wrong := contract.CheckApproval(approval, of, now); len(wrong) > 0 {
		return &hintedError{&contract.RefusedError{Source: "approval", Violations: wrong}, "the contract needs " + needsText(e.Needs)}
	}
	stateDir, err := s.StateDirectory()
	if err != nil {
		return err
	}
	if approval, err = ledgerIn(stateDir).Seal(approval); err != nil {
		return err
	}
	made, err := approvalText(approval)
	if err != nil {
		return err
	}
	if f.output == "-" {
		_, err := a.streams.Out.Write(made)
		return readerGone(err)
	}
	if err := writeNew(f.output, made); err != nil {
		return err
	}
	return a.print("%s: approval of %s until %s\n", f.output, needsText(approval.Levels), approval.ExpiresAt)
}

// approvalText is an approval as a document.
func approvalText(approval contract.Approval) ([]byte, error) {
	var out bytes.Buffer
	for _, field := range []struct {
		name  string
		value any
	}{
		{"schema", approval.Schema}, {"id", approval.ID}, {"contract_sha256", approval.ContractSHA256},
		{"root", approval.Root}, {"image", approval.Image},
		{"approved_by", approval.ApprovedBy}, {"reason", approval.Reason},
		{"approved_at", approval.ApprovedAt}, {"expires_at", approval.ExpiresAt}, {"levels", approval.Levels},
		{"mac", approval.MAC},
	} {
		line, err := yaml.Marshal(map[string]any{field.name: field.value})
		if err != nil {
			return nil, err
		}
		out.Write(line)
	}
	return out.Bytes(), nil
}

// writeNew makes a file, and leaves one that is there as it is.
func writeNew(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &fileError{fileOutput, name, errors.New("is there already")}
	}
	if err != nil {
		return &fileError{fileOutput, name, err}
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return &fileError{fileOutput, name, errors.Join(err, os.Remove(name))}
	}
	return nil
}
