package contract

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// execFlags are the flags of a command that carries out contracts.
type execFlags struct {
	file, root string
	source     string // the contract in messages
	// adapters are those of the settings, if they are open already.
	adapters               *adapter.Registry
	approver               contract.Approver
	approval               string
	addHosts, dependencies []string
	dryRun, keep           bool
}

// NewExec returns the command `exec`.
func NewExec(a *cli.App) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec CONTRACT.yaml",
		Short: "Carry out a code execution contract",
		Long: `Carry out a code execution contract: a YAML file that declares a tool's command, its
permissions and the output it must produce. It is checked, resolved against the files of
this machine, run in a fresh container with its limits, and compared with its
expectations. The outcome is a document too, in the record of the run. Its member
success says whether the contract was met; exit is about the exit code alone.

Paths of a contract are of this machine, below the root; the program finds the
root at /repo. It may change a copy, and its changes are carried over when it has
ended. Levels that open more need an approval.

The exit code is the program's, except: 124 time limit, 125 the contract was
refused or the sandbox failed, 126 and 127 the command cannot be executed or does
not exist, 130 interrupted, 137 out of memory, 1 the program exited with 0 but gave
something else than the contract wants, 2 wrong usage.`,
		Example: `  sandbox exec contract.yaml
  sandbox exec contract.yaml --dry-run                check it, run nothing
  sandbox exec --root ~/project --json - < contract.yaml | jq .success
  sandbox exec contract.yaml --approve "Ada" --reason "needs /etc/ssl"`,
		Args: cobra.ArbitraryArgs,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			approves, blank := cmd.Flags().Changed("approve"), strings.TrimSpace(f.approver.Name) == "" || strings.TrimSpace(f.approver.Reason) == ""
			return cli.Check(cmd,
				cli.Wrong(len(args) > 1, "carries out one contract, and %d are given", len(args)),
				cli.Wrong(len(args) == 1 && f.file != "", "there are two contracts, %q and -f %q: give one", strings.Join(args, ""), f.file),
				cli.Wrong(f.file+strings.Join(args, "") == "", "there is no contract: give the path of one, or - for stdin"),
				cli.Apart("approve", "approval"),
				cli.Together("approve", "reason"),
				cli.Wrong(approves && blank, "--approve and --reason must not be empty"),
				cli.NotEmpty(cli.Directory, "root"),
			)
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			f.file += strings.Join(args, "")
			return execute(ctx, a, s, f)
		}),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "contract, a YAML or JSON `file`, or - for stdin")
	_ = cmd.Flags().MarkHidden("file") // the former way to name it
	f.register(a, cmd)
	return cmd
}

// register adds the flags that do not name the contract.
func (f *execFlags) register(a *cli.App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", "", "`directory` that the paths of the contract are relative to (default: the Git work tree or the directory of the file)")
	a.SettingFlags(cmd, cli.ContractKeys...)
	flags.StringVar(&f.approver.Name, "approve", "", "approve what the contract needs, as `NAME`")
	flags.StringVar(&f.approver.Reason, "reason", "", "why, as `text`")
	flags.StringVar(&f.approval, "approval", "", "approval, a `file` made with 'sandbox contract approve'")
	flags.StringArrayVar(&f.addHosts, "add-host", nil, "`NAME:ADDRESS` that the proxy of the network levels takes a name for")
	flags.StringArrayVar(&f.dependencies, "dependency", nil, "`directory` outside of the root that level extended may read, beside contract_dependencies")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything, print what would be run as JSON, and run nothing")
	a.SettingFlags(cmd, "image", "allow_unlocked", "runtime", "user", "transfer", "grace", "disk", "json", "quiet", "raw")
	flags.BoolVar(&f.keep, "keep", false, "leave the container behind for inspection")
}

func execute(ctx context.Context, a *cli.App, s settings.Settings, f execFlags) error {
	text, err := readDocument(ctx, a, f.file)
	if err != nil {
		return err
	}
	f.source = sourceName(f.file)
	return f.carryOut(ctx, a, s, contract.Job{Text: text})
}

// carryOut carries out a contract, and shows its outcome.
func (f execFlags) carryOut(ctx context.Context, a *cli.App, s settings.Settings, job contract.Job) error {
	job.Approver = f.approver
	options, err := f.options(s)
	if err == nil && f.approval != "" {
		var approval contract.Approval
		approval, err = cli.ReadFile(approvalFile, f.approval, contract.ParseApproval)
		job.Approval = &approval
	}
	if err != nil {
		return err
	}
	view := cli.Piped
	if f.dryRun {
		view = cli.Hidden
	}
	x, err := a.Begin(ctx, s, view)
	if err != nil {
		if s.JSON {
			a.Code = cli.ExitCode(nil, err)
			err = errors.Join(err, a.PrintJSON(contract.NotBegun(ctx, options.Rules, job, err)))
		}
		return err
	}
	defer x.Close()
	h, err := contract.New(x.Box, options)
	if err != nil {
		return err
	}
	job.IO, job.Hooks = x.IO, x.Hooks
	do := h.Plan
	if !f.dryRun {
		do = func(ctx context.Context, job contract.Job) (contract.Outcome, error) {
			return runRecorded(ctx, x, h, job, f.source)
		}
	}
	o, err := do(ctx, job)
	_ = x.Ended() // the record has all output
	a.Code = cli.ExitCode(ended(o), err)
	refused := o.Status == contract.StatusRefused
	switch notBegun := err != nil && o.Evidence.RunID == ""; {
	case notBegun && s.JSON:
		return errors.Join(err, a.PrintJSON(o))
	case notBegun:
		return err
	case f.dryRun && (!refused || s.JSON):
		for _, unused := range f.unused(o) {
			a.Warn("%s", unused)
		}
		return a.PrintJSON(o)
	}
	quiet := a.IsQuiet(s) && (!refused || s.JSON)
	if o.Call != nil && o.Success && !s.JSON {
		err = errors.Join(err, printValue(a, o.Call.Value))
	}
	return errors.Join(a.Present(o, quiet, s, func() []string {
		return append(outcomeLines(a, o, f, options.Root), exitHint(s, o)...)
	}), err)
}

// exitHint is a hint for programs whose contract was not met although the exit code is 0.
func exitHint(s settings.Settings, o contract.Outcome) []string {
	if !s.JSON || o.Success || o.ExitCode == nil || *o.ExitCode != 0 {
		return nil
	}
	return []string{"hint: success in the outcome says whether the contract was met; exit is about the exit code alone"}
}

// printValue prints the value of a call: a text as it is, anything else as JSON. In a terminal
// a line ends.
func printValue(a *cli.App, value any) error {
	if text, ok := value.(string); ok {
		if a.OutTerminal && text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return a.Print("%s", text)
	}
	return a.PrintJSON(value)
}

// runRecorded executes a contract, and adds it to the log of trials.
func runRecorded(ctx context.Context, x *cli.Session, h *contract.Harness, job contract.Job, source string) (contract.Outcome, error) {
	var document any
	if job.Contract != nil {
		document = *job.Contract
	} else if c, err := contract.Parse(job.Text, source); err == nil {
		document = c
	}
	ctx, record := x.Trial(ctx, trial.Job{Kind: contract.Kind, Name: source}, document)
	o, err := h.Run(ctx, job)
	res, _ := o.Trial(record.Job()) // its record has an outcome that cannot be encoded
	record.Record(ctx, err, res)
	return o, err
}

// engineSockets are the sockets of engines. A process that reaches one is root on the machine.
var engineSockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"}

func (f execFlags) options(s settings.Settings) (o contract.Options, err error) {
	stateDir, err := s.StateDirectory()
	if err != nil {
		return o, err
	}
	o = contract.Options{
		Root: f.root, Request: s.Request(), Approvals: approvalsIn(stateDir), Forbidden: append([]string{stateDir}, engineSockets...),
		Dependencies: slices.Clone(s.Dependencies),
	}
	names := map[string][]netip.Addr{}
	o.Request.Keep, o.Request.Egress = f.keep, &policy.Egress{Resolve: names}
	if o.Rules, err = rulesOf(s, f.adapters); err != nil {
		return o, err
	}
	o.Policy = s.Policy()
	for _, dir := range f.dependencies {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return o, err
		}
		if dir == "" || !fsx.IsDir(abs) {
			return o, cli.Usagef("sandbox exec", "exec: --dependency %q: is not a directory", dir)
		}
		o.Dependencies = append(o.Dependencies, abs)
	}
	for _, pair := range f.addHosts {
		name, address, err := policy.ParseAddHost(pair)
		if err != nil {
			return o, cli.Usagef("sandbox exec", "exec: --%s", err)
		}
		names[name] = append(names[name], address)
	}
	if o.Root == "" {
		o.Root, err = rootOf(f.file)
	}
	return o, err
}

// approvalsIn are the approvals of a state directory.
func approvalsIn(stateDir string) contract.Approvals {
	return contract.Approvals{Dir: filepath.Join(stateDir, "approvals")}
}

// unused returns messages about flags that the contract did not use.
func (f execFlags) unused(o contract.Outcome) (unused []string) {
	if o.Executed == nil {
		return nil // it ended before it could use them
	}
	if len(f.addHosts) > 0 && o.Executed.NetworkLevel == string(policy.Offline) {
		unused = append(unused, "--add-host is not used: the contract is offline")
	}
	if o.Approval == nil && f.approver.Name != "" {
		unused = append(unused, "--approve is not used: the contract needs no approval")
	}
	if o.Approval == nil && f.approval != "" {
		unused = append(unused, "--approval is not used: the contract needs none")
	}
	return unused
}

// outcomeLines are the outcome of a contract and hints.
func outcomeLines(a *cli.App, o contract.Outcome, f execFlags, root string) (lines []string) {
	for _, unused := range f.unused(o) {
		lines = append(lines, "warning: "+unused)
	}
	lines = append(lines, render.Outcome(o, f.source, a.Palette())...)
	if o.Status != contract.StatusRefused {
		return lines
	}
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	for _, hint := range contract.Hints(render.InOrder(o.Violations), root) {
		if o.AdapterID != "" {
			hint = strings.ReplaceAll(hint, "adapter show ID", "adapter show "+text.ShellWord(o.AdapterID))
		}
		lines = append(lines, "hint: "+terminal.Line(a.RepeatFlags(hint)))
	}
	return lines
}

// sourceName is the name of a contract in messages.
func sourceName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

// readDocument reads a contract, from stdin if its name is "-". An interruption ends the wait.
func readDocument(ctx context.Context, a *cli.App, name string) ([]byte, error) {
	read := func() ([]byte, error) { return contract.ReadDocument(name) }
	if name == "-" {
		if a.InTerminal {
			a.Say("reading the contract from the terminal; Ctrl-D ends it")
		}
		read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.In, contract.MaxDocument+1)) }
	}
	text, err := cli.Interruptibly(ctx, read)
	if err != nil {
		return nil, contractFile.Error(sourceName(name), err)
	}
	return text, nil
}

// rootOf is the root of a contract that names none: the Git work tree of its file, or else
// the directory of the file. For stdin it is the current directory.
func rootOf(file string) (string, error) {
	if file == "-" {
		return os.Getwd()
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", contractFile.Error(file, err)
	}
	folder := filepath.Dir(abs)
	for dir := folder; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return folder, nil
		}
	}
}

// ended is how a contract ended, as the exit code sees it.
func ended(o contract.Outcome) *trial.Result {
	end := &trial.Result{Verdict: o.Verdict, Reason: o.Status, ExitCode: -1}
	if o.Status == contract.StatusPlanned {
		end.Verdict = trial.Passed
	}
	if o.ExitCode != nil {
		end.ExitCode = *o.ExitCode
	}
	if o.Call != nil && o.Call.Type == string(adapter.MCP) && o.Success {
		end.ExitCode = 0 // how a server ends after its answer does not matter
	}
	return end
}
