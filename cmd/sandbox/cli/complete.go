package cli

import (
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// maxCompletions bounds the runs that a completion offers.
const maxCompletions = 50

// Values that a completion offers, by the key of a setting.
var settingValues = map[string][]cobra.Completion{
	"network":     {"none\tno network, the default"},
	"gpus":        {"all\tevery GPU", "1\tone GPU"},
	"gpu_driver":  {"auto\twhat the engine has", "nvidia\tthe runtime nvidia", "cdi\tdevices of CDI"},
	"transfer":    {"auto\tfind out", "bind\tthe engine sees the files", "copy\tthe files are copied to the engine"},
	"isolation":   {"basic\tnot root, with a system call filter", "separate\tno quota is shared with another run", "layered\ta user namespace or a security module as well", "own_kernel\ta kernel of its own, such as gVisor"},
	"disk_bound":  {"auto\tas hard as the kernel can", "hard\trefuse a run where the kernel cannot"},
	"soft_signal": {"SIGTERM\tthe default", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"},
	"runtime":     {"runc\tthe usual runtime", "runsc\tgVisor"},
	"preload":     {"numpy", "pandas", "numpy,pandas"},
	"host":        {"unix:///var/run/docker.sock\tthe engine of this machine", "ssh://", "tcp://"},
}

// flagValues are the values of flags that are no settings, by name.
var flagValues = map[string][]cobra.Completion{
	"egress":    {"offline\tno host", "registry\tpackage registries", "api\tthe hosts of --allow-host", "open\tevery public host"},
	"direction": {"maximize\thigher scores are better", "minimize\tlower scores are better"},
	"retention": {"session\trecords of a session", "evidence\trecords that are kept as evidence"},
	"level":     {"L0\tname and description", "L1\tand operations", "L2\tand inputs", "L3\teverything"},
	"mode":      {"execute\trun the wish", "plan\tprint what would run"},
}

// Complete gives every command of a tree its completions: the values of flags, and those of
// a table, whose keys are paths of commands, such as "image ensure", or of their flags, such as
// "contract new --tool". What a command has registered itself is kept.
func (a *App) Complete(root *cobra.Command, table map[string]cobra.CompletionFunc) {
	for key, complete := range table {
		path, flag, ofFlag := strings.Cut(key, " --")
		cmd, rest, err := root.Find(strings.Fields(path))
		switch {
		case err != nil || len(rest) > 0:
		case ofFlag:
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // unless the command has done so
		case cmd.ValidArgsFunction == nil:
			cmd.ValidArgsFunction = complete
		}
	}
	a.completeFlags(root)
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || bash.RunE == nil {
		return
	}
	script := bash.RunE
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		if err := script(cmd, args); err != nil {
			return err
		}
		_, err := io.WriteString(a.Out, strings.ReplaceAll(bashFallback, "NAME", root.Name()))
		return ReaderGone(err)
	}
}

func (a *App) completeFlags(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if _, done := cmd.GetFlagCompletionFunc(flag.Name); done {
			return
		}
		if complete := a.valuesOf(flag); complete != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, complete) // the flag exists, and has none
		}
	})
	for _, below := range cmd.Commands() {
		a.completeFlags(below)
	}
}

// valuesOf is the completion of a flag; nil for the names of files.
func (a *App) valuesOf(flag *pflag.Flag) cobra.CompletionFunc {
	key := settings.KeyOf(flag)
	switch {
	case key == "image":
		return a.CompleteImages
	case key == "context":
		return completeContexts
	case key != "":
		if values, ok := settingValues[key]; ok {
			return fixed(values)
		}
	default:
		if values, ok := flagValues[flag.Name]; ok {
			return fixed(values)
		}
	}
	switch {
	case flag.Value.Type() == "bool", strings.HasSuffix(flag.Value.Type(), "file"), flag.Value.Type() == "folder", flag.Value.Type() == "directory":
		return nil
	case key != "":
		return cobra.NoFileCompletions // a number, a size, a duration
	}
	return nil
}

func fixed(values []cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// CompleteRuns completes the IDs and names of recorded runs, newest first. It asks no engine,
// and is silent about records that cannot be read.
func (a *App) CompleteRuns(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	s, err := a.Settings()
	if err != nil {
		return nil, how
	}
	store, err := s.Store()
	if err != nil {
		return nil, how
	}
	records, _ := store.ListBrief() // without those that cannot be read
	slices.Reverse(records)
	var all []cobra.Completion
	seen := map[string]bool{}
	for _, arg := range args {
		seen[arg] = true
	}
	for _, r := range records {
		if len(all) == maxCompletions {
			break
		}
		if seen[r.ID] {
			continue
		}
		name := r.Spec.Job.Name
		age := units.HumanDuration(time.Since(r.Created)) + " ago"
		state := text.Fit(terminal.Line(render.RecordStatus(r, contract.OfRecord(r))), 40)
		switch {
		case strings.HasPrefix(r.ID, begun):
			about := state + ", " + age
			if name != "" {
				about = text.Fit(terminal.Line(name), 40) + ": " + about
			}
			all = append(all, cobra.CompletionWithDesc(r.ID, about))
		case begun != "" && strings.HasPrefix(name, begun) && !seen[name] && terminal.Line(name) == name && ShellWord(name) == name:
			seen[name] = true // the newest run of a name
			all = append(all, cobra.CompletionWithDesc(name, state+", "+age))
		}
	}
	return all, how
}

// CompleteRun is [App.CompleteRuns] for a command that takes one run.
func (a *App) CompleteRun(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.CompleteRuns(cmd, args, begun)
}

// CompleteImages completes the names of the catalog and of the lock. It asks no engine.
func (a *App) CompleteImages(_ *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const how = cobra.ShellCompDirectiveNoFileComp
	s, err := a.Settings()
	if err != nil {
		return nil, how
	}
	about := map[string]string{}
	if catalog, err := s.Catalog(); err == nil {
		for _, name := range catalog.Names() {
			about[name] = "of the catalog"
			if entry, ok := catalog.Lookup(name); ok && entry.Description != "" {
				about[name] = text.Fit(terminal.Line(entry.Description), 60)
			}
		}
	}
	if held, there, err := s.Lock(); err == nil && there {
		for _, name := range held.Names() {
			if about[name] == "" {
				about[name] = "locked"
			}
		}
	}
	var all []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(about)) {
		all = append(all, cobra.CompletionWithDesc(name, about[name]))
	}
	return all, how
}

func completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return dockerhost.Contexts(), cobra.ShellCompDirectiveNoFileComp
}

// bashFallback replaces a function of the script for bash, which needs the package
// bash-completion to join the words that bash splits at = and : .
const bashFallback = `
# Without the package bash-completion: join the words that bash splits at = and : .
__NAME_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local line=$COMP_LINE word i
    words=()
    cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        if ((${#words[@]} > 0)) && [[ $line != [[:space:]]* ]] &&
            [[ $word == [=:]* || ${words[${#words[@]}-1]} == *[=:] ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
        line=${line#*"$word"}
    done
    cur=${words[cword]}
    prev=
    ((cword > 0)) && prev=${words[cword-1]}
    return 0
}
`
