package contract

import (
	"context"
	_ "embed" // for go:embed
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// The files of contracts.
var (
	contractFile = cli.FileKind{Noun: "contract", Hint: "give the path of a contract, or - for stdin; make one with: sandbox contract new"}
	approvalFile = cli.FileKind{Noun: "approval", Hint: "make one with: sandbox contract approve"}
	registryFile = cli.FileKind{Noun: "registry", Hint: "leave --registry out for the shipped one, which is a pattern for your own"}
	profilesFile = cli.FileKind{Noun: "profiles", Hint: "leave --profiles out for the shipped ones, which are a pattern for your own"}
)

// New returns the command `contract`.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contract",
		Short: "Write, check and approve contracts",
		Long: `Write, check and approve code execution contracts. 'sandbox exec' carries one out.

No container is involved.`,
		Example: `  sandbox contract new --tool python > contract.yaml
  sandbox contract validate contract.yaml
  sandbox contract approve contract.yaml --by Ada --reason "release" -o approval.yaml`,
	}
	cmd.AddCommand(newValidate(a), newNew(a), newApprove(a), newTools(a), a.SchemaCommand(&cobra.Command{
		Use:     "schema [--outcome]",
		Short:   "Print the JSON Schema of contracts or of outcomes",
		Long:    "Print the JSON Schema (draft 2020-12) of contracts, or with --outcome that of outcomes.",
		Example: "  sandbox contract schema > contract.schema.json\n  sandbox contract schema --outcome",
	}, contract.ContractSchemaJSON, "outcome", "that of outcomes", contract.OutcomeSchemaJSON))
	return cmd
}

// rulesOf are the rules of the settings for contracts, with adapters that are open already, or nil.
func rulesOf(s settings.Settings, adapters *adapter.Registry) (contract.Rules, error) {
	rules := contract.Rules{Strict: s.Strict, OpenAllowlist: s.OpenAllowlist}
	var err error
	if rules.Registry, err = registryOf(s); err != nil {
		return rules, err
	}
	if adapters == nil {
		if adapters, err = Adapters(s, false); err != nil {
			return rules, err
		}
	}
	rules.Adapters = adapters
	if rules.Profiles, err = policy.ParseProfiles(configs.Profiles(), "profiles.yaml"); err != nil || s.Profiles == "" {
		return rules, err
	}
	own, err := cli.ReadFile(profilesFile, s.Profiles, policy.ParseProfiles)
	maps.Copy(rules.Profiles, own)
	return rules, err
}

// Adapters are the adapters of the settings. refresh forgets what earlier processes found out
// about them.
func Adapters(s settings.Settings, refresh bool) (*adapter.Registry, error) {
	stateDir, err := s.StateDirectory()
	if err != nil {
		return nil, err
	}
	if s.Adapters != "" && !fsx.IsDir(s.Adapters) {
		return nil, cli.WithHint(fmt.Errorf("adapters %q: is not a directory", s.Adapters), "leave --adapters out for the shipped adapters, or name a directory of documents")
	}
	adapters, err := adapter.Open(s.Adapters, configs.Adapters(), adapter.OpenCache(filepath.Join(stateDir, "adapters"), refresh))
	if err != nil {
		return nil, cli.WithHint(err, "check them with: sandbox adapter validate "+text.ShellWord(s.Adapters))
	}
	return adapters, nil
}

// registryOf are the tools that contracts may name.
func registryOf(s settings.Settings) (registry.Registry, error) {
	if s.ToolRegistry == "" {
		return registry.Parse(configs.Tools(), "tools.yaml")
	}
	return cli.ReadFile(registryFile, s.ToolRegistry, registry.Parse)
}

// withTools runs a command that only needs the registry.
func withTools(a *cli.App, do func(s settings.Settings, tools registry.Registry) error) func(*cobra.Command, []string) error {
	return a.With(func(_ context.Context, s settings.Settings, _ []string) error {
		tools, err := registryOf(s)
		if err != nil {
			return err
		}
		return do(s, tools)
	})
}

//go:embed new.yaml.tmpl
var contractTemplate string

func newNew(a *cli.App) *cobra.Command {
	pad := func(line string) string { return fmt.Sprintf("%-37s", line) } // up to the column of the comments
	var tool string
	cmd := &cobra.Command{
		Use:   "new [--tool TOOL]",
		Short: "Print a contract to begin with",
		Long: `Print a contract to begin with. It is valid, and its comments explain every field and its
default.`,
		Example: "  sandbox contract new > contract.yaml\n  sandbox contract new --tool pytest > contract.yaml",
		Args:    cobra.NoArgs,
		RunE: withTools(a, func(_ settings.Settings, tools registry.Registry) error {
			found, err := findTool(tools, tool)
			if err != nil {
				return err
			}
			page, err := template.New("contract").Funcs(template.FuncMap{"pad": pad}).Parse(contractTemplate)
			if err != nil {
				return err
			}
			if len(found.Scope.Commands) == 0 {
				return cli.WithHint(fmt.Errorf("--tool %q: the tool has no commands", tool), "call it through an adapter: sandbox adapter list")
			}
			command, arguments := found.Scope.Commands[0], "[]"
			if strings.HasPrefix(command, "pytest") {
				arguments = `[-p, "no:cacheprovider"]` // the cache would be in a read-only directory
			}
			var text strings.Builder
			if err := page.Execute(&text, map[string]any{
				"Tool": "tool_id: " + found.ID, "Name": found.Name, "Command": fmt.Sprintf("  command: %q", command), "Arguments": "  arguments: " + arguments,
			}); err != nil {
				return err
			}
			return a.Print("%s", text.String())
		}),
	}
	cmd.Flags().StringVar(&tool, "tool", "python", "ID or name of a `tool` of the registry")
	a.SettingFlags(cmd, "tool_registry")
	completeTools(a, cmd)
	return cmd
}

// completeTools completes --tool with the tools that may be used.
func completeTools(a *cli.App, cmd *cobra.Command) {
	err := cmd.RegisterFlagCompletionFunc("tool", func(*cobra.Command, []string, string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		if s, err := a.Settings(); err == nil {
			tools, _ := registryOf(s) // none, if it cannot be read
			for _, t := range tools.Tools() {
				if t.Status != registry.Blocked {
					found = append(found, cobra.CompletionWithDesc(t.Name, terminal.Line(text.OneLine(t.Description))))
				}
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the command has no such flag
	}
}

// findTool finds a tool that may be used by its ID or its name.
func findTool(tools registry.Registry, name string) (registry.Tool, error) {
	var known []string
	for _, t := range tools.Tools() {
		if t.ID == name || t.Name == name {
			if t.Status == registry.Blocked {
				return t, cli.WithHint(fmt.Errorf("Tool '%s' is blocked", t.Name), "see the others with: sandbox contract tools") //nolint:staticcheck // the sentence of a refused contract
			}
			return t, nil
		}
		known = append(known, t.ID, t.Name)
	}
	hint := "see all with: sandbox contract tools"
	if near := settings.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return registry.Tool{}, cli.WithHint(fmt.Errorf("--tool %q: the registry has no such tool", name), hint)
}

func newTools(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that contracts may name",
		Long: `List the tools of the registry with their commands, and the highest levels of files and
network that they may be used with.`,
		Example: "  sandbox contract tools\n  sandbox contract tools --registry tools.yaml --json",
		Args:    cobra.NoArgs,
		RunE: withTools(a, func(s settings.Settings, tools registry.Registry) error {
			var rows [][]string
			for _, t := range tools.Tools() {
				rows = append(rows, []string{t.ID, t.Name, string(t.Status), string(t.Scope.Filesystem), string(t.Scope.Network), strings.Join(t.Scope.Commands, " ")})
			}
			list := struct {
				Schema string          `json:"schema"`
				Tools  []registry.Tool `json:"tools"`
			}{registry.SchemaV1, tools.Tools()}
			return a.ShowTable(s, list, []string{"ID", "NAME", "STATUS", "FILES", "NETWORK", "COMMANDS"}, rows)
		}),
	}
	a.SettingFlags(cmd, "tool_registry", "json")
	return cmd
}

// validated is one contract as `contract validate --json` prints it. Its lists are never null.
type validated struct {
	Contract string `json:"contract"`
	Valid    bool   `json:"valid"`
	// ContractSHA256 is the hash that approvals are bound to.
	ContractSHA256 string               `json:"contract_sha256"`
	Violations     []contract.Violation `json:"violations"`
	// Stripped are variables that the program would not get.
	Stripped []contract.Violation `json:"stripped"`
	// Needs are the levels that need an approval.
	Needs    []string `json:"needs"`
	Warnings []string `json:"warnings"`
}

func newValidate(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate CONTRACT.yaml...",
		Short: "Check contracts without carrying them out",
		Long: `Check the text of contracts against the tool registry, the profiles of limits and the
levels, and report every problem at once. The files of this machine are not checked:
'sandbox exec --dry-run' does that.

The exit code is 1 when a contract is not valid. - is stdin.`,
		Example: "  sandbox contract validate contract.yaml\n  sandbox contract validate --strict --json contracts/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, files []string) error {
			return validate(ctx, a, s, files)
		}),
	}
	a.SettingFlags(cmd, append(slices.Clone(cli.ContractKeys), "json")...)
	return cmd
}

// validate shows the problems of the contracts that can be read, and then reports
// the contracts that cannot.
func validate(ctx context.Context, a *cli.App, s settings.Settings, files []string) error {
	rules, err := rulesOf(s, nil)
	if err != nil {
		return err
	}
	all := []validated{}
	var unreadable []error
	for _, file := range files {
		text, err := readDocument(ctx, a, file)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		x := rules.Examine(text)
		all = append(all, validated{
			Contract: sourceName(file), Valid: len(x.Violations) == 0, ContractSHA256: x.Effective.ContractSHA256,
			Violations: append([]contract.Violation{}, x.Violations...), Stripped: append([]contract.Violation{}, x.Stripped...),
			Needs: append([]string{}, x.Effective.Needs...), Warnings: append([]string{}, x.Effective.Warnings...),
		})
		if len(x.Violations) > 0 {
			a.Code = cli.ExitProblem
		}
	}
	list := struct {
		Schema      string      `json:"schema"`
		Validations []validated `json:"validations"`
	}{"evalbox/validations/v1", all}
	err = a.Show(s, list, func() error {
		var lines []string
		for _, v := range all {
			lines = append(lines, v.lines()...)
		}
		return a.PrintAll(lines)
	})
	return errors.Join(err, errors.Join(unreadable...))
}

func (v validated) lines() []string {
	lines := render.Violations(v.Contract, v.Violations)
	for _, warning := range v.Warnings {
		lines = append(lines, fmt.Sprintf("%s: warning: %s", v.Contract, warning))
	}
	for _, s := range v.Stripped {
		lines = append(lines, fmt.Sprintf("%s: stripped %s: %s", v.Contract, strings.TrimPrefix(s.Field, "inputs.environment."), s.Rule))
	}
	switch {
	case v.Valid && len(v.Needs) > 0:
		lines = append(lines, fmt.Sprintf("%s: valid, needs an approval of %s", v.Contract, needsText(v.Needs)))
	case v.Valid:
		lines = append(lines, v.Contract+": valid")
	}
	return lines
}

// needsText are the levels that need an approval, for people.
func needsText(needs []string) string { return strings.Join(slices.Sorted(slices.Values(needs)), ", ") }

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
  sandbox exec contract.yaml --approval approval.yaml`,
		Args: cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			known := []string{contract.NeedElevated, contract.NeedOpen}
			rules := []cli.Rule{
				cli.Wrong(strings.TrimSpace(f.by.Name) == "" || strings.TrimSpace(f.by.Reason) == "", "--by and --reason are required, and not empty"),
				cli.Wrong(f.expires <= 0, "--expires must be more than 0"),
				cli.Wrong(f.expires > contract.MaxApproval, "--expires must be at most %v", contract.MaxApproval),
				cli.NotEmpty(cli.Directory, "root"),
			}
			for _, level := range f.levels {
				rules = append(rules, cli.Wrong(!slices.Contains(known, level), "--level %q: must be %s", level, strings.Join(known, " or ")))
			}
			return cli.Check(cmd, rules...)
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return approve(ctx, a, s, f, args[0])
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.by.Name, "by", "", "`name` of who approves (required)")
	flags.StringVar(&f.by.Reason, "reason", "", "why, as `text` (required)")
	flags.StringSliceVar(&f.levels, "level", nil, "`level` that is approved: filesystem:elevated or network:open (default: what the contract needs)")
	flags.Var(cli.Duration(&f.expires), "expires", "how long it can be used, such as 1h; 7 days at most")
	flags.StringVar(&f.root, "root", "", "`directory` that the paths of the contract are relative to, as of exec")
	flags.StringVarP(&f.output, "output", "o", "-", "`file` to make, or - for stdout")
	a.SettingFlags(cmd, append(slices.Clone(cli.ContractKeys), "image", "json")...)
	return cmd
}

func approve(ctx context.Context, a *cli.App, s settings.Settings, f approveFlags, file string) error {
	rules, err := rulesOf(s, nil)
	if err != nil {
		return err
	}
	document, err := readDocument(ctx, a, file)
	if err != nil {
		return err
	}
	x := rules.Examine(document)
	needs := x.Effective.Needs
	if len(x.Violations) > 0 {
		return cli.WithHint(errors.New(strings.Join(render.Violations(sourceName(file), x.Violations), "\n")), "a contract must be valid before it can be approved")
	}
	if len(needs) == 0 {
		return cli.WithHint(fmt.Errorf("%s: needs no approval", file), "carry it out with: sandbox exec "+text.ShellWord(file))
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
		if s.JSON {
			return a.PrintJSON(approval)
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
	return a.Show(s, approval, func() error {
		return a.Print("%s: approval of %s until %s\n", f.output, needsText(approval.Levels), approval.ExpiresAt)
	})
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
