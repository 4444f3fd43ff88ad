package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// execFlags are the flags of `exec` that are not settings.
type execFlags struct {
	file, root                string
	approver, reason, approve string
	addHosts, dependencies    []string
	dryRun, keep              bool
}

// contractKeys are the settings of the rules for contracts.
var contractKeys = []string{"tool_registry", "profiles", "strict"}

func newExecCommand(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec -f CONTRACT.yaml",
		Short: "Carry out a code execution contract",
		Long: `Carry out a code execution contract: a document that says what a tool is run with,
what it may do and what it must give. It is checked, resolved against the files of
this machine, limited, run in a fresh container, and accounted for: the outcome is
a document too, and lies in the record of the run with everything else.

Paths of a contract are of this machine, below the root; the program finds the
root at /repo. What it may change is a copy: its changes are carried over when it
has ended. Levels that open more than that need somebody who approves.

The exit code is the program's, except: 124 time limit, 125 the contract was
refused or the sandbox failed, 126 and 127 the command cannot be executed or does
not exist, 130 interrupted, 137 out of memory, 1 the program exited with 0 but gave
something else than the contract wants, 2 wrong usage.`,
		Example: `  sandbox exec -f contract.yaml
  sandbox exec -f contract.yaml --dry-run             check it, run nothing
  sandbox exec -f - --root ~/project --json < contract.yaml | jq .checklist
  sandbox exec -f contract.yaml --approve "Ada" --reason "needs /etc/ssl"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.exec(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.file, "file", "f", "", "contract, a YAML or JSON `file`, or - for stdin (required)")
	flags.StringVar(&f.root, "root", "", "`folder` that the paths of the contract are relative to (default: the Git work tree or the folder of the file)")
	a.settingFlags(cmd, false, contractKeys...)
	flags.StringVar(&f.approver, "approve", "", "approve what the contract needs, as `NAME`")
	flags.StringVar(&f.reason, "reason", "", "why, as `text`")
	flags.StringVar(&f.approve, "approval", "", "approval, a `file` made with 'sandbox contract approve'")
	flags.StringArrayVar(&f.addHosts, "add-host", nil, "`NAME:ADDRESS` that the proxy of the network levels takes a name for")
	flags.StringArrayVar(&f.dependencies, "dependency", nil, "`folder` outside of the root that level extended may read, beside contract_dependencies")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything, print what would be run as JSON, and run nothing")
	a.settingFlags(cmd, false, "image", "allow_unlocked", "runtime", "user", "transfer", "grace", "disk", "json", "quiet", "raw")
	flags.BoolVar(&f.keep, "keep", false, "leave the container behind for inspection")
	return cmd
}

// check refuses flags that make no sense together.
func (f execFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case f.file == "":
		return usagef(cmd.CommandPath(), "exec: there is no contract: name one with -f")
	case given("approve") && f.approve != "":
		return usagef(cmd.CommandPath(), "exec: --approve and --approval do not go together")
	case given("approve") != given("reason"):
		return usagef(cmd.CommandPath(), "exec: --approve and --reason go together")
	case given("approve") && (strings.TrimSpace(f.approver) == "" || strings.TrimSpace(f.reason) == ""):
		return usagef(cmd.CommandPath(), "exec: --approve and --reason must not be empty")
	case given("root") && f.root == "":
		return usagef(cmd.CommandPath(), "exec: --root is empty: give a folder, or leave it out")
	}
	return nil
}

func (a *app) exec(ctx context.Context, f execFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	text, err := a.readDocument(ctx, f.file)
	if err != nil {
		return err
	}
	rules, err := rulesOf(s)
	if err != nil {
		return err
	}
	stateDir, err := s.StateDirectory()
	if err != nil {
		return err
	}
	executor := contract.Executor{
		Rules: rules, Root: f.root, Request: s.Request(), Approver: contract.Approver{Name: f.approver, Reason: f.reason},
		Ledger:    ledgerIn(stateDir),
		Forbidden: append([]string{stateDir}, engineSockets...),
	}
	executor.Request.Keep = f.keep
	if executor.Dependencies, err = f.dependenciesWith(s.Dependencies); err != nil {
		return err
	}
	if executor.AddHosts, err = f.hosts(); err != nil {
		return err
	}
	if executor.Root == "" {
		if executor.Root, err = rootOf(f.file); err != nil {
			return err
		}
	}
	if f.approve != "" {
		if executor.Approval, err = readApproval(f.approve); err != nil {
			return err
		}
	}
	runner, err := a.runner(s)
	if err != nil {
		return a.failedBefore(ctx, &executor, text, f, s, err)
	}
	defer runner.Close()
	executor.Runner, executor.Store = runner, runner.Store()
	if f.dryRun {
		o, err := executor.DryRun(ctx, text, sourceName(f.file))
		if err != nil {
			return a.failedBefore(ctx, &executor, text, f, s, err)
		}
		return a.showPlanned(o, f, s)
	}
	return a.carryOutContract(ctx, &executor, text, f, s)
}

// ledgerIn is the ledger of the approvals of a state directory.
func ledgerIn(stateDir string) contract.ApprovalLedger {
	return contract.ApprovalLedger{Dir: filepath.Join(stateDir, "approvals")}
}

// hosts are the names of --add-host with their addresses.
func (f execFlags) hosts() (map[string][]netip.Addr, error) {
	hosts := map[string][]netip.Addr{}
	for _, text := range f.addHosts {
		name, address, err := policy.ParseAddHost(text)
		if err != nil {
			return nil, usagef("sandbox exec", "exec: --%s", err)
		}
		hosts[name] = append(hosts[name], address)
	}
	return hosts, nil
}

// unused are messages about flags that the contract did not use.
func (f execFlags) unused(o *contract.Outcome) (unused []string) {
	if o.Executed == nil {
		return nil // it ended before it could use them
	}
	if len(f.addHosts) > 0 && o.Executed.NetworkLevel == string(policy.Offline) {
		unused = append(unused, "--add-host is not used: the contract is offline")
	}
	if o.Approval == nil && f.approver != "" {
		unused = append(unused, "--approve is not used: the contract needs no approval")
	}
	if o.Approval == nil && f.approve != "" {
		unused = append(unused, "--approval is not used: the contract needs none")
	}
	return unused
}

// dependenciesWith are the directories of the settings and those of --dependency.
func (f execFlags) dependenciesWith(folders []string) ([]string, error) {
	all := slices.Clone(folders)
	for _, folder := range f.dependencies {
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		if folder == "" || !fsx.IsDir(abs) {
			return nil, usagef("sandbox exec", "exec: --dependency %q: is no folder", folder)
		}
		all = append(all, abs)
	}
	return all, nil
}

// engineSockets are the sockets of engines. A process that reaches one is root on the
// machine.
var engineSockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"}

// carryOutContract runs the contract and shows its outcome.
func (a *app) carryOutContract(ctx context.Context, x *contract.Executor, text []byte, f execFlags, s settings.Settings) error {
	live := a.connect(&x.IO, s)
	watched := live.watch(ctx, a, &x.Hooks, s)
	ended := a.streams.Runs.Begin()
	o, runErr := x.ExecuteText(ctx, text, sourceName(f.file))
	ended()
	watched()
	a.ended()
	_ = live.finish() // the record has all output
	a.code = outcomeCode(o, runErr)
	if o == nil {
		return a.failedBefore(ctx, x, text, f, s, runErr)
	}
	silent := a.isQuiet(s) && (o.Status != contract.StatusRefused || s.JSON)
	if err := a.present(o, silent, s, func() []string { return a.outcomeLines(o, f, x.Root) }); err != nil {
		return err
	}
	return runErr
}

// failedBefore reports a failure before the contract began. With --json the outcome says so.
func (a *app) failedBefore(ctx context.Context, x *contract.Executor, text []byte, f execFlags, s settings.Settings, err error) error {
	if !s.JSON {
		return err
	}
	o := x.NotBegun(text, sourceName(f.file), interrupted(ctx, err))
	if ctx.Err() != nil {
		o.Status = result.StatusCanceled.String()
	}
	a.code = exitCode(nil, err)
	return errors.Join(err, a.printWire(o))
}

// outcomeLines are the outcome of a contract and hints.
func (a *app) outcomeLines(o *contract.Outcome, f execFlags, root string) (lines []string) {
	for _, unused := range f.unused(o) {
		lines = append(lines, "warning: "+unused)
	}
	lines = append(lines, render.Outcome(o, sourceName(f.file), a.palette())...)
	if o.Status == contract.StatusRefused {
		if abs, err := filepath.Abs(root); err == nil && root != "" {
			root = abs
		}
		for _, hint := range contract.Hints(render.InOrder(o.Violations), root) {
			lines = append(lines, "hint: "+terminal.Line(a.repeatFlags(hint)))
		}
	}
	return lines
}

// showPlanned shows the plan of a contract, or why it is refused.
func (a *app) showPlanned(o *contract.Outcome, f execFlags, s settings.Settings) error {
	a.code = outcomeCode(o, nil)
	if o.Status == contract.StatusRefused && !s.JSON {
		return a.printLines(a.outcomeLines(o, f, f.root))
	}
	for _, unused := range f.unused(o) {
		fmt.Fprintf(a.streams.Err, "sandbox: warning: %s\n", unused)
	}
	return a.printWire(o)
}

// sourceName is the name of a contract in messages.
func sourceName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

// readDocument reads a contract, from stdin if its name is "-". The first interruption ends
// the wait.
func (a *app) readDocument(ctx context.Context, name string) ([]byte, error) {
	if name == "-" {
		if a.inTerminal {
			fmt.Fprintln(a.streams.Err, "sandbox: reading the contract from the terminal; Ctrl-D ends it")
		}
		text, err := interruptibly(ctx, func() ([]byte, error) {
			return io.ReadAll(io.LimitReader(a.streams.In, contract.MaxDocument+1))
		})
		if err != nil {
			return nil, &fileError{fileContract, "stdin", err}
		}
		return text, nil
	}
	text, err := interruptibly(ctx, func() ([]byte, error) { return contract.ReadDocument(name) })
	if err != nil {
		return nil, &fileError{fileContract, name, err}
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
		return "", &fileError{fileContract, file, err}
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

func readApproval(file string) (*contract.Approval, error) {
	text, err := contract.ReadDocument(file)
	if err != nil {
		return nil, &fileError{fileApproval, file, err}
	}
	approval, err := contract.ParseApproval(text, file)
	if err != nil {
		return nil, &hintedError{err, "make one with: sandbox contract approve"}
	}
	return &approval, nil
}

// outcomeCode is the exit code of a contract.
func outcomeCode(o *contract.Outcome, err error) int {
	switch {
	case o == nil:
		return exitCode(nil, err)
	case o.Status == contract.StatusRefused:
		return exitSandbox
	case o.Status == contract.StatusPlanned:
		return 0
	case o.TimedOut:
		return exitTimeLimit
	case o.Status == "canceled":
		return exitInterrupted
	case o.Status == "out_of_memory":
		return exitKilled
	case o.ExitCode == nil || o.Status == "engine_lost" || err != nil:
		return exitSandbox
	case *o.ExitCode == 0 && !o.Success:
		return exitProblem
	}
	return programCode(*o.ExitCode)
}

// soon is the default lifetime of an approval.
const soon = time.Hour

// needsText are the levels that need an approval, for people.
func needsText(needs []string) string { return strings.Join(slices.Sorted(slices.Values(needs)), ", ") }
