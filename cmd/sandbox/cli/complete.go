package cli

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/record"
)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// maxRuns bounds the runs that a completion offers.
const maxRuns = 50

// words are the values of settings that have a fixed set of them.
var words = map[string][]cobra.Completion{
	"network": {"none\tno network, the loopback works (default)", "bridge\tthe engine's own network; needs allow_network"},
	"gpu_driver": {
		"auto\twhat the engine has (default)", "nvidia\tthe runtime nvidia", "cdi\tthe Container Device Interface",
	},
	"engine":     {"docker\ta Docker engine (default)", "kubernetes\tthe cluster of the settings kubernetes.*"},
	"gpus":       {"all\tevery GPU of the engine", "1\tone GPU that is free"},
	"transfer":   {"auto\ttry it and decide (default)", "bind\tmount directories of this machine", "copy\tcopy files to the engine and back"},
	"disk_bound": {"auto\ta size limit of each file, and measurements (default)", "hard\ta file system of that size; takes root"},
	"isolation": {
		"basic\tnot root, and system calls are filtered", "separate\tno quota of the kernel is shared with another run",
		"layered\ta user namespace or a security module as well", "own_kernel\ta kernel of its own, such as gVisor",
	},
	"soft_signal": {"SIGTERM\t(default)", "SIGINT\tas Ctrl-C", "SIGHUP", "SIGUSR1", "SIGUSR2"},
	"stop_when": {
		"metric.loss is nan\ta value is not a number", "no output for 10m\tnothing on stdout and stderr for so long",
		"plateau of metric.loss over 500 steps within 0.001\tthe values differ by no more",
		"best metric.acc < median - 0.2\tworse than the median of the batch at the same step",
	},
	"runtime": {"runc\tthe usual one", "runsc\tgVisor, a kernel of its own"},
}

// flagWords are the values of flags that are no settings.
var flagWords = map[string][]cobra.Completion{
	"egress": {
		"offline\tnothing (default)", "registry\tpackage registries only", "api\tthe hosts of --allow-host",
		"open\tevery public address, logged",
	},
	"direction": {"maximize\ta higher score is better", "minimize\ta lower score is better"},
	"retention": {"session\truns that left only output and an exit code", "evidence\truns that left files, or were approved or referred to"},
	"mode":      {"execute\trun the commands (default)", "plan\tprint the plan and run nothing"},
	"level": {
		"L0\tID, name, tool and type", "L1\tand a summary of the interface", "L2\tand the whole interface", "L3\tand its fixtures",
	},
}

// Complete makes every command complete its arguments and the values of its flags. positional
// has the completion of arguments by the path of a command; a path that names no command is
// ignored. No completion asks the engine, and none prints anything on stderr.
func Complete(a *App, root *cobra.Command, positional map[string]cobra.CompletionFunc) {
	completeFlags(a, root)
	if complete := positional[root.CommandPath()]; complete != nil && root.ValidArgsFunction == nil {
		root.ValidArgsFunction = upTo(complete)
	}
	if root.Runnable() && root.ValidArgsFunction == nil && root.Args != nil && root.Args(root, []string{"x"}) != nil && root.Args(root, nil) == nil {
		root.ValidArgsFunction = cobra.NoFileCompletions // it takes no argument
	}
	for _, below := range root.Commands() {
		Complete(a, below, positional)
	}
}

// upTo completes an argument only where the command takes one more.
func upTo(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if cmd.ValidateArgs(append(slices.Clone(args), word)) != nil && cmd.ValidateArgs(args) == nil {
			return nil, noFiles
		}
		return complete(cmd, args, word)
	}
}

func completeFlags(a *App, cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if _, done := cmd.GetFlagCompletionFunc(flag.Name); done || flag.NoOptDefVal != "" {
			return
		}
		if complete := flagCompletion(a, flag); complete != nil {
			if err := cmd.RegisterFlagCompletionFunc(flag.Name, complete); err != nil {
				panic(err) // the flag is one of the command
			}
		}
	})
}

// flagCompletion is the completion of a flag; nil for files.
func flagCompletion(a *App, flag *pflag.Flag) cobra.CompletionFunc {
	key := settings.KeyOf(flag)
	placeholder, _ := pflag.UnquoteUsage(flag)
	switch {
	case words[key] != nil:
		return cobra.FixedCompletions(words[key], noFiles)
	case key == "image":
		return CompleteImages(a)
	case key == "context":
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return dockerhost.Contexts(), noFiles
		}
	case key == "" && flagWords[flag.Name] != nil:
		return cobra.FixedCompletions(flagWords[flag.Name], noFiles)
	}
	switch placeholder {
	case "directory":
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	case "file", "script", "command":
		return nil
	}
	return cobra.NoFileCompletions
}

// CompleteRuns completes the IDs of runs, newest first, with the name, the status and the age
// of each. Names that only one run has are completed once a letter of them is typed.
func CompleteRuns(a *App) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const order = noFiles | cobra.ShellCompDirectiveKeepOrder
		s, err := a.Settings()
		if err != nil {
			return nil, order
		}
		store, err := s.Store()
		if err != nil {
			return nil, order
		}
		records, _ := store.ListBrief() // without those that cannot be read
		return runCompletions(records, args, word, time.Now()), order
	}
}

// runCompletions are the completions of a word among records, which are sorted, oldest first.
func runCompletions(records []record.Record, given []string, word string, now time.Time) (found []cobra.Completion) {
	sharing := map[string]int{}
	for _, each := range records {
		sharing[each.Spec.Job.Name]++
	}
	describe := func(value, other string, each record.Record) {
		parts := []string{render.RecordStatus(each, contract.OfRecord(each)), render.Age(now.Sub(each.Created)) + " ago"}
		if other != "" {
			parts = append([]string{other}, parts...)
		}
		found = append(found, cobra.CompletionWithDesc(value, terminal.Line(text.OneLine(text.Fit(strings.Join(parts, " · "), 60)))))
	}
	var named []record.Record
	for _, each := range slices.Backward(records) {
		name := each.Spec.Job.Name
		if len(found) == maxRuns {
			break
		}
		if slices.Contains(given, each.ID) || name != "" && slices.Contains(given, name) {
			continue
		}
		if strings.HasPrefix(each.ID, word) {
			describe(each.ID, name, each)
		}
		if word != "" && sharing[name] == 1 && strings.HasPrefix(name, word) && policy.CheckName("name", name) == nil {
			named = append(named, each)
		}
	}
	for _, each := range named {
		if len(found) < maxRuns {
			describe(each.Spec.Job.Name, each.ID, each)
		}
	}
	return found
}

// CompleteImages completes the names of the catalog, with what they are, and of the lock.
func CompleteImages(a *App) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found := catalogImages(a, args)
		s, err := a.Settings()
		if err != nil {
			return found, noFiles
		}
		held, _, err := s.Lock()
		if err != nil {
			return found, noFiles
		}
		for _, name := range held.Names() {
			known := func(c cobra.Completion) bool { return c == name || strings.HasPrefix(c, name+"\t") }
			if !slices.ContainsFunc(found, known) && !slices.Contains(args, name) {
				found = append(found, cobra.CompletionWithDesc(name, "locked"))
			}
		}
		return found, noFiles
	}
}

// CompleteCatalog completes the names of the image catalog, with what they are.
func CompleteCatalog(a *App) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return catalogImages(a, args), noFiles
	}
}

func catalogImages(a *App, given []string) (found []cobra.Completion) {
	s, err := a.Settings()
	if err != nil {
		return nil
	}
	catalog, err := s.Catalog()
	if err != nil {
		return nil
	}
	for _, name := range catalog.Names() {
		if entry, _ := catalog.Lookup(name); !slices.Contains(given, name) {
			found = append(found, cobra.CompletionWithDesc(name, terminal.Line(text.OneLine(entry.Description))))
		}
	}
	return found
}

//go:embed complete.bash
var bashFunctions string

// CompletionCommand adds cobra's command `completion` to the commands. The script for bash
// also works without the package bash-completion.
func CompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil {
		panic(err) // cobra has just added it
	}
	bash.Long = `Print the completion script for bash. It needs no other package.

In the current shell:

	source <(sandbox completion bash)

In every new shell, for one user:

	mkdir -p ~/.local/share/bash-completion/completions
	sandbox completion bash > ~/.local/share/bash-completion/completions/sandbox

Without the package bash-completion, that directory is not read: write the first line into
~/.bashrc instead.`
	print := bash.RunE
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		if err := print(cmd, args); err != nil {
			return err
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), bashFunctions)
		return ReaderGone(err)
	}
}

// CompleteFiles completes RUN: of the first argument of `cp` by the completion of runs, and files
// after it.
func CompleteFiles(runs cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		known, order := runs(cmd, args, word)
		for i, each := range known {
			id, about, _ := strings.Cut(each, "\t")
			known[i] = id + ":\t" + about
		}
		return known, order | cobra.ShellCompDirectiveNoSpace
	}
}

// CompleteOrFiles completes runs, and files too.
func CompleteOrFiles(runs cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found, _ := runs(cmd, args, word)
		return found, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveKeepOrder
	}
}

// CompleteFirst completes the first argument, as a file too, and no other.
func CompleteFirst(names cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, noFiles
		}
		found, _ := names(cmd, args, word)
		return found, cobra.ShellCompDirectiveDefault
	}
}
