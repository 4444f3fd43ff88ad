package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/strict"
)

var (
	adapterFile = cli.FileKind{Noun: "adapter", Hint: "see a shipped one with: sandbox adapter show ADP-001 --level L3"}
	paramsFile  = cli.FileKind{Noun: "parameters", Hint: "give a JSON object in a file, or - for stdin"}
)

// NewAdapter returns the command `adapter`.
func NewAdapter(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapter",
		Short: "Call tools through adapters: commands, web APIs, libraries, MCP servers",
		Long: `Call tools through adapters. An adapter is a document that says how a tool is
called: a command, a web API, a library or an MCP server. It turns an operation
and its parameters into a call, and the output of the call into a value.

A call is a contract with an adapter_id: the rules and limits of contracts hold
for it. Commands, libraries and MCP servers on stdio run in the sandbox;
requests to web APIs and MCP servers on http are made by this process.`,
		Example: `  sandbox adapter list
  sandbox adapter show ADP-001 --level L2
  sandbox adapter run ADP-001 --param pattern=TODO --param path=src`,
	}
	cmd.AddCommand(newAdapterList(a), newAdapterShow(a), newAdapterValidate(a), newAdapterRun(a), newAdapterGolden(a))
	return cmd
}

func newAdapterList(a *cli.App) *cobra.Command {
	var tool string
	var refresh bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the adapters",
		Long: `List the adapters (level L0), in the order in which one is chosen for a tool:
those of --adapters, then the shipped ones. The list is remembered for 24 hours,
as long as the files do not change.`,
		Example: "  sandbox adapter list\n  sandbox adapter list --tool TL-003 --json",
		Args:    cobra.NoArgs,
		RunE: a.With(func(_ context.Context, s settings.Settings, _ []string) error {
			adapters, err := Adapters(s, refresh)
			if err != nil {
				return err
			}
			all := adapters.List(tool)
			var rows [][]string
			for _, d := range all {
				rows = append(rows, []string{d.ID, d.Name, d.ToolID, string(d.Type)})
			}
			list := struct {
				Schema   string               `json:"schema"`
				Adapters []adapter.Disclosure `json:"adapters"`
			}{"evalbox/adapters/v1", append([]adapter.Disclosure{}, all...)}
			return a.ShowTable(s, list, []string{"ID", "NAME", "TOOL", "TYPE"}, rows)
		}),
	}
	cmd.Flags().StringVar(&tool, "tool", "", "only the adapters of a `tool`")
	cmd.Flags().BoolVar(&refresh, "refresh", false, "forget what is remembered of adapters and servers")
	a.SettingFlags(cmd, "adapters", "json")
	completeTools(a, cmd)
	return cmd
}

func newAdapterShow(a *cli.App) *cobra.Command {
	var level string
	var refresh bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show an adapter",
		Long: `Show an adapter as JSON, as much as a level says:

  L0  adapter_id, name, tool_id, type: to list adapters
  L1  also version, status and a summary of the interface: to choose one
  L2  also the whole interface, transforms, errors and limits: to execute it
  L3  also metadata, schemas of the parameters, examples and their golden
      outputs: to develop it

L3 has the tools that an MCP server described within the last hour. --refresh
asks the server again: one on stdio is started in the sandbox for that.`,
		Example: "  sandbox adapter show ADP-001\n  sandbox adapter show ADP-003 --level L3 --refresh",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return showAdapter(ctx, a, s, args[0], level, refresh)
		}),
	}
	cmd.Flags().StringVar(&level, "level", "L1", "`level` of disclosure, L0 to L3")
	cmd.Flags().BoolVar(&refresh, "refresh", false, "forget what is remembered of adapters and servers")
	a.SettingFlags(cmd, "adapters", "tool_registry", "image", "allow_unlocked", "json")
	return cmd
}

// chosen are the adapters of the settings, and the one that the caller names.
func chosen(s settings.Settings, id string, refresh bool) (*adapter.Registry, *adapter.Adapter, error) {
	adapters, err := Adapters(s, refresh)
	if err != nil {
		return nil, nil, err
	}
	found, err := adapters.Resolve(id, "")
	if unknown, ok := errors.AsType[*adapter.UnknownError](err); ok {
		hint := "see all with: sandbox adapter list"
		if near := settings.Nearest(id, unknown.Known); near != "" {
			hint = "did you mean " + near + "?"
		}
		err = cli.WithHint(fmt.Errorf("adapter %q is not known", id), hint)
	} else if err != nil {
		err = cli.WithHint(err, "check the directory of the adapter with: sandbox adapter validate DIRECTORY")
	}
	return adapters, found, err
}

func showAdapter(ctx context.Context, a *cli.App, s settings.Settings, id, text string, refresh bool) error {
	level, err := adapter.ParseLevel(text)
	if err != nil {
		return cli.Usagef(a.Command, "adapter show: --level %s", err)
	}
	adapters, found, err := chosen(s, id, refresh)
	if err != nil {
		return err
	}
	shown := found.Disclose(level)
	shown.Schema = adapter.SchemaV1
	if level < adapter.L3 {
		return a.PrintJSON(shown)
	}
	stateDir, err := s.StateDirectory()
	if err != nil {
		return err
	}
	if shown.Fixtures, err = adapters.GoldenOf(id, stateDir).Fixtures(found); err != nil {
		return err
	}
	if found.Type == adapter.MCP {
		var known bool
		if shown.Tools, known = adapters.KnownTools(found); !known && refresh {
			shown.Tools, err = describeTools(ctx, a, s, adapters, found)
		}
	}
	return errors.Join(err, a.PrintJSON(shown))
}

// hidden opens a harness whose programs show nothing. Its root is the current directory, unless a flag
// names another. The caller closes the session.
func (f execFlags) hidden(ctx context.Context, a *cli.App, s settings.Settings) (*cli.Session, *contract.Harness, error) {
	f.file = "-"
	options, err := f.options(s)
	if err != nil {
		return nil, nil, err
	}
	x, err := a.Begin(ctx, s, cli.Hidden)
	if err != nil {
		return nil, nil, err
	}
	h, err := contract.New(x.Box, options)
	if err != nil {
		x.Close()
		return nil, nil, err
	}
	return x, h, nil
}

// describeTools asks the server of an adapter for its tools.
func describeTools(ctx context.Context, a *cli.App, s settings.Settings, adapters *adapter.Registry, found *adapter.Adapter) ([]adapter.Tool, error) {
	x, h, err := execFlags{adapters: adapters}.hidden(ctx, a, s)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	tools, err := adapters.DescribeTools(ctx, h, found)
	_ = x.Ended() // nothing was shown
	return tools, err
}

func newAdapterValidate(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check adapters",
		Long: `Check the documents of adapters, and report every problem at once. A directory
stands for the documents in it (.yaml, .yml, .json); then their fallbacks are
checked as well. The file - is stdin. Nothing is called.

The exit code is 1 when a document is not valid.`,
		Example: "  sandbox adapter validate adapter.yaml\n  sandbox adapter validate adapters/",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(ctx context.Context, _ settings.Settings, files []string) error {
			return validateAdapters(ctx, a, files)
		}),
	}
}

func validateAdapters(ctx context.Context, a *cli.App, files []string) error {
	var lines []string
	var unreadable []error
	for _, file := range files {
		valid, err := validateAdapter(ctx, a, file)
		switch {
		case isUnreadable(err):
			unreadable = append(unreadable, err)
		case err != nil:
			a.Code = cli.ExitProblem
			lines = append(lines, strings.Split(err.Error(), "\n")...)
		default:
			lines = append(lines, sourceName(file)+": "+valid)
		}
	}
	return errors.Join(a.PrintAll(lines), errors.Join(unreadable...))
}

// isUnreadable reports whether a file could not be read at all.
func isUnreadable(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok
}

// validateAdapter checks a file, stdin or a directory, and says what is valid.
func validateAdapter(ctx context.Context, a *cli.App, file string) (valid string, err error) {
	if file == "-" {
		if a.InTerminal {
			a.Say("reading the adapter from the terminal; Ctrl-D ends it")
		}
		text, err := cli.Interruptibly(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.In, adapter.MaxDocument+1)) })
		if err != nil {
			return "", adapterFile.Error(sourceName(file), err)
		}
		found, err := adapter.Parse(text, sourceName(file))
		if err != nil {
			return "", err
		}
		return found.ID + " is valid", nil
	}
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		dir, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		adapters, err := adapter.Open(dir, configs.Adapters(), nil) // a fallback may be a shipped one
		if err != nil {
			return "", err
		}
		var ids []string
		for _, each := range adapters.List("") {
			if adapters.Source(each.ID) != "" {
				ids = append(ids, each.ID)
			}
		}
		switch err := adapters.CheckAll(); {
		case err != nil:
			return "", err
		case len(ids) == 0:
			return "", fmt.Errorf("%s: has no adapters: there is no file *.yaml, *.yml or *.json", file)
		case len(ids) > 1:
			return strings.Join(ids, ", ") + " are valid", nil
		}
		return ids[0] + " is valid", nil
	}
	found, err := cli.ReadFile(adapterFile, file, adapter.Parse)
	if err != nil {
		return "", err
	}
	return found.ID + " is valid", nil
}

// callFlags are the flags of a call.
type callFlags struct {
	execFlags
	params, hosts        []string
	file, level, workDir string
}

func newAdapterRun(a *cli.App) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "run ID [OPERATION] [--param NAME=VALUE]... [-- ARGUMENT...]",
		Short: "Call a tool through an adapter",
		Long: `Call a tool through an adapter, and print the value of the call: a text as it
is, anything else as JSON. With --json, the whole outcome is printed, with all
attempts.

A VALUE that is JSON is read as JSON: a number, true, a list; anything else is
text. Put a text that looks like JSON in quotes: --param 'id="5"'. OPERATION may
be left out if the adapter has only one.

The program finds the root at /repo. A contract with an adapter_id can say more:
see 'sandbox exec', which has the same exit codes. For a request to a server the
exit code is 1 after a failure, and 125 if the server could not be reached.`,
		Example: `  sandbox adapter run ADP-001 --param pattern=TODO --param path=src
  sandbox adapter run ADP-002 get_resource --param id=7
  sandbox adapter run ADP-003 write_file --files standard --params call.json`,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			named := len(args)
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				named = at
			}
			return cli.Check(cmd,
				cli.Wrong(named < 1, "there is no adapter: name one"),
				cli.Wrong(named > 2, "takes an adapter and an operation: put %q behind --", strings.Join(args[min(named, 2):named], " ")),
				cli.Apart("param", "params"), cli.NotEmpty(cli.Directory, "root"),
			)
		},
	}
	cmd.RunE = a.With(func(ctx context.Context, s settings.Settings, args []string) error {
		named, arguments := args, []string(nil)
		if at := cmd.ArgsLenAtDash(); at >= 0 {
			named, arguments = args[:at], args[at:]
		}
		return f.call(ctx, a, s, named, arguments)
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.params, "param", nil, "`NAME=VALUE` of a parameter")
	flags.StringVar(&f.file, "params", "", "all parameters, a `file` with a JSON object, or - for stdin")
	flags.StringVar(&f.level, "files", "", "`level` of file access: minimal, standard, extended or elevated")
	flags.StringVar(&f.workDir, "workdir", "", "working `directory` below the root")
	flags.StringArrayVar(&f.hosts, "allow-host", nil, "`host` that the call may reach; no others (level api)")
	f.register(a, cmd)
	flags.Lookup("root").Usage = rootOfCall
	return cmd
}

// rootOfCall is the help of --root for calls without a document.
const rootOfCall = "`directory` that the program finds at /repo (default: the current one)"

// call makes a contract of the command line, and carries it out.
func (f callFlags) call(ctx context.Context, a *cli.App, s settings.Settings, named, arguments []string) error {
	adapters, found, err := chosen(s, named[0], false)
	if err != nil {
		return err
	}
	c := contract.Contract{Schema: contract.SchemaV1, ToolID: found.ToolID, AdapterID: found.ID}
	if len(named) == 2 {
		c.Inputs.Operation = named[1]
	}
	c.Inputs.Arguments, c.Inputs.WorkingDirectory, c.Sandbox.Filesystem.Level = arguments, f.workDir, f.level
	if len(f.hosts) > 0 {
		c.Sandbox.Network = contract.Network{Enabled: new(true), Allow: f.hosts}
	}
	if c.Inputs.Parameters, err = f.parameters(ctx, a); err != nil {
		return err
	}
	f.execFlags.file, f.source, f.adapters = "-", found.ID, adapters // its root is the current directory
	return f.carryOut(ctx, a, s, contract.Job{Contract: &c})
}

// parameters are those of the flags.
func (f callFlags) parameters(ctx context.Context, a *cli.App) (map[string]any, error) {
	if f.file != "" {
		return f.fromFile(ctx, a)
	}
	parameters := map[string]any{}
	for _, pair := range f.params {
		name, text, ok := strings.Cut(pair, "=")
		if _, twice := parameters[name]; !ok || name == "" || twice {
			rule := "must be NAME=VALUE"
			if twice {
				rule = "is given twice: give a list, " + name + `='["a","b"]'`
			}
			return nil, cli.Usagef(a.Command, "adapter run: --param %q: %s", pair, rule)
		}
		var value struct {
			Value any `json:"value"`
		}
		parameters[name] = text
		if !json.Valid([]byte(text)) {
			continue
		}
		if problems := strict.Decode(slices.Concat([]byte(`{"value":`), []byte(text), []byte("}")), &value, strict.Options{Tag: "json"}); len(problems) > 0 {
			return nil, cli.Usagef(a.Command, "adapter run: --param %q: %s", pair, problems[0])
		}
		parameters[name] = value.Value
	}
	return parameters, nil
}

func (f callFlags) fromFile(ctx context.Context, a *cli.App) (map[string]any, error) {
	read := func() ([]byte, error) { return contract.ReadDocument(f.file) }
	if f.file == "-" {
		if a.InTerminal {
			a.Say("reading the parameters from the terminal; Ctrl-D ends them")
		}
		read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.In, contract.MaxDocument+1)) }
	}
	text, err := cli.Interruptibly(ctx, read)
	if err != nil {
		return nil, paramsFile.Error(sourceName(f.file), err)
	}
	var parameters map[string]any
	problems := strict.Decode(text, &parameters, strict.Options{Tag: "json"})
	if len(problems) > 0 {
		return nil, paramsFile.Error(sourceName(f.file), strict.Join(sourceName(f.file), problems))
	}
	return parameters, nil
}
