// Package mcp is the command `mcp`: evalbox as a server of the Model Context Protocol, for agents.
//
// An agent is as untrusted as its programs. It reads and writes files of this machine below one
// root, lowers the limits of the settings and never raises them, and has quotas. Everything that
// runs goes through one [sandbox.Box], which checks that once more.
package mcp

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// options are the flags that are not settings.
type options struct {
	root, listen, tokenFile string
	allRuns                 bool
	// remote are the adapters whose calls this process may make.
	remote   []string
	quota    quotaLimits
	parallel int
	// exec is the command line of the tool of invoke_tool, and execRoot the directory of its files.
	exec, execRoot string
}

const (
	defaultRuns = 1000
	defaultTime = 24 * time.Hour
	defaultDisk = 10 * policy.GiB
	// defaultPool is the most containers that wait at once, unless the settings say otherwise.
	defaultPool = 4
)

// New returns the command `mcp`.
func New(a *cli.App) *cobra.Command {
	o := options{quota: quotaLimits{time: defaultTime, disk: defaultDisk}, parallel: runtime.NumCPU()}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve agents: run programs over the Model Context Protocol",
		Long: `Serve agents over the Model Context Protocol: they run programs, evaluate
solutions, carry out contracts, call a tool and run gates, and read the
results.

The server speaks on stdin and stdout, or over HTTP with --listen. HTTP is for
this machine only, and needs the bearer token of --token-file, or the random
one that is printed on stderr.

An agent reads and writes files below --root only. The limits of the settings
and of the flags are the most that it gets. At the quotas --max-runs,
--max-time and --max-disk no more programs start. It sees the runs of this
session only.

A client that cancels a call, or goes away, ends the program of that call. The
end of stdin, Ctrl-C and SIGTERM end the server.`,
		Example: `  claude mcp add evalbox -- sandbox mcp --root .
  sandbox mcp --root ~/project --memory 4g --timeout 10m
  sandbox mcp --listen 127.0.0.1:8765 --token-file token
  sandbox mcp --exec "python -m tool.cli" --exec-root tool`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd,
				cli.NotEmpty(cli.Directory, "root", "exec-root"), cli.NotEmpty("", "listen", "token-file", "exec"),
				cli.Needs("listen", "token-file"), cli.Needs("exec", "exec-root"),
				cli.Wrong(o.parallel < 1 || o.parallel > cli.MaxParallel, "--parallel %d: must be between 1 and %d", o.parallel, cli.MaxParallel),
				cli.Wrong(o.quota.runs < 1, "--max-runs %d: must be at least 1", o.quota.runs),
				cli.Wrong(o.quota.time <= 0, "--max-time must be more than 0"),
				cli.Wrong(o.quota.disk <= 0, "--max-disk must be more than 0"),
			)
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error { return run(ctx, a, s, o) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.root, "root", ".", "`directory` whose files an agent may use; no others")
	flags.StringVar(&o.listen, "listen", "", "serve HTTP at this loopback `address`, such as 127.0.0.1:8765; port 0 is any")
	flags.StringVar(&o.tokenFile, "token-file", "", "`file` with the bearer token of HTTP, readable by its owner only")
	flags.StringArrayVar(&o.remote, "remote-adapter", nil, "`ID` of an adapter whose calls this process makes, with your secrets")
	flags.BoolVar(&o.allRuns, "all-runs", false, "show the agent all runs of the state directory, not only those of this session")
	flags.IntVar(&o.quota.runs, "max-runs", defaultRuns, "quota: `N` runs in this session")
	flags.Var(cli.Duration(&o.quota.time), "max-time", "quota: time of all programs of this session together")
	flags.Var(cli.Size(&o.quota.disk), "max-disk", "quota: what this session may leave on the disk")
	flags.IntVar(&o.parallel, "parallel", o.parallel, "calls that run at once, `N`; further ones wait in their order")
	flags.StringVar(&o.exec, "exec", "", "`command` that calls the tool of invoke_tool; without it there is no such tool")
	flags.StringVar(&o.execRoot, "exec-root", "", "`directory` of the tool's own files, and where it starts")
	a.SettingFlags(cmd, slices.Concat(cli.RequestKeys, cli.ContractKeys)...)
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
}

// run serves until the client goes, or ctx ends. Neither is an error.
func run(ctx context.Context, a *cli.App, s settings.Settings, o options) error {
	s, err := bounded(s)
	if err != nil {
		return err
	}
	size, memory := poolOf(s)
	x, err := a.Begin(ctx, s, cli.Hidden, sandbox.WithPool(sandbox.Pool{Size: size, Memory: memory}))
	if err != nil {
		return err
	}
	defer x.Close()
	server, err := newServer(ctx, x.Box, s, o, a.Logger(), x.Hooks.Kill)
	if err != nil {
		return err
	}
	if o.listen != "" {
		err = server.serveHTTP(ctx, a)
	} else {
		err = server.serveStdio(ctx, a.In, a.Out)
	}
	return errors.Join(err, server.close())
}

// shipped is the source of a setting that nobody changed.
const shipped = "default"

// poolOf is how many containers wait, and how much memory they use. A size that nobody chose is
// that of `sandbox pool start`.
func poolOf(s settings.Settings) (size int, memory int64) {
	for _, o := range s.Origins() {
		if o.Key == "pool.size" && o.Source != shipped {
			return int(s.PoolSize), int64(s.PoolMemory)
		}
	}
	return defaultPool, int64(s.PoolMemory)
}
