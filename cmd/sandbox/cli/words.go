package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/settings"
)

// dockerCommands are the commands for which users of docker know another name.
var dockerCommands = map[string]string{
	"attach":    "sandbox logs -f RUN",
	"build":     "sandbox image build",
	"commit":    "sandbox image build",
	"container": "sandbox ls",
	"create":    "sandbox run --detach",
	"history":   "sandbox image inspect",
	"images":    "sandbox image list",
	"info":      "sandbox doctor",
	"inspect":   "sandbox show RUN",
	"kill":      "sandbox stop --kill RUN",
	"list":      "sandbox ls",
	"load":      "sandbox image import",
	"network":   "sandbox run --network NAME, or --allow-host HOST",
	"pull":      "sandbox image pull",
	"push":      "sandbox image push",
	"rmi":       "sandbox image rm NAME",
	"save":      "sandbox image export",
	"start":     "sandbox run",
	"stats":     "sandbox ps",
	"system":    "sandbox prune",
	"top":       "sandbox ps",
	"volume":    "sandbox run --input DIR, or --mount SRC:DST",
}

// dockerListFlags are the answers to flags of docker's commands on containers.
var dockerListFlags = map[string]string{
	"ls -a": "leave it out: every run is listed", "ls --all": "leave it out: every run is listed",
	"ps -a": "runs that have ended are in: sandbox ls", "ps --all": "runs that have ended are in: sandbox ls",
	"rm -f": "a run is stopped first: sandbox stop RUN", "rm --force": "a run is stopped first: sandbox stop RUN",
}

// dockerFlags are the answers to flags of `docker run` that no command has.
var dockerFlags = map[string]string{
	"a": "stdout and stderr are always shown; stdin is passed on with --interactive", "attach": "stdout and stderr are always shown; stdin is passed on with --interactive",
	"cap-add": "no program gets capabilities", "privileged": "no program gets privileges", "security-opt": "see docs/security.md for the protection of every run",
	"cap-drop": "leave it out: no program gets capabilities", "read-only": "leave it out: the root file system is read-only", "init": "leave it out: every container has an init",
	"device":     "GPUs are requested with --gpus; no other device is passed on",
	"entrypoint": "give the command after --",
	"hostname":   "every container has the same host name", "h": "see 'sandbox run --help'; a host name cannot be chosen",
	"net": "name a network of the engine with --network, or hosts with --allow-host",
	"p":   "a program cannot be reached from outside", "publish": "a program cannot be reached from outside", "P": "a program cannot be reached from outside",
	"pull":         "images are built and pulled beforehand: sandbox image ensure, sandbox image pull",
	"restart":      "leave it out: a program is started once",
	"stop-timeout": "the time between SIGTERM and SIGKILL is --grace", "memory-swap": "leave it out: there is no swap",
	"rm": "leave it out: the container of every run is removed; --keep leaves it behind",
	"t":  "leave it out: programs have no terminal", "tty": "leave it out: programs have no terminal",
	"tmpfs": "/tmp and the working directory are in memory; their sizes are --tmp-size and --scratch-size",
	"v":     "use --input DIR and --final DIR, or --mount SRC:DST, which is read-only", "volume": "use --input DIR and --final DIR, or --mount SRC:DST, which is read-only",
	"w": "leave it out: the working directory is always /work", "workdir": "leave it out: the working directory is always /work",
}

// unknownFlag is the error for a flag that a command does not have. Its hint is the flag that
// is meant, or the way of this command where docker has that flag.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	name, dashes := err.GetSpecifiedName(), "--"
	if short := err.GetSpecifiedShortnames(); short != "" {
		dashes = "-"
	}
	message := fmt.Sprintf("%s: unknown flag: %s%s", Subject(cmd), dashes, name)
	if hint, ok := dockerFlags[name]; ok && runsPrograms(cmd) {
		return UsageHint(hint, "%s", message)
	}
	if hint, ok := dockerListFlags[cmd.Name()+" "+dashes+name]; ok && cmd.Parent() == cmd.Root() {
		return UsageHint(hint, "%s", message)
	}
	if near := nearestFlag(cmd, name); near != "" && dashes == "--" {
		return UsageHint("did you mean --"+near+"?", "%s", message)
	}
	return Usagef(cmd.CommandPath(), "%s", message)
}

// runsPrograms reports whether a command has the settings of a run.
func runsPrograms(cmd *cobra.Command) bool { return cmd.Flags().Lookup("image") != nil }

// nearestFlag is the flag whose name is nearest to a mistyped one; empty if none is near.
func nearestFlag(cmd *cobra.Command, name string) string {
	var known []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			known = append(known, flag.Name)
		}
	})
	return settings.Nearest(name, known)
}

// argumentError is the error for a wrong number of arguments. It names the argument that is
// missing or too much, by the names in the usage line of the command. The words of a command
// that has checked its arguments itself are kept.
func argumentError(cmd *cobra.Command, args []string, err error) error {
	names := argumentNames(cmd)
	ofCobra := func(begin string) bool { return strings.HasPrefix(err.Error(), begin) }
	switch {
	case !slices.ContainsFunc([]string{"accepts ", "requires ", "unknown command "}, ofCobra):
		return Misuse(cmd, "%s", err)
	case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
		return UsageHint(argumentHint(cmd, names[len(args)]), "%s: %s is missing", Subject(cmd), strings.TrimSuffix(names[len(args)], "..."))
	case len(names) == 0 && len(args) > 0:
		return Misuse(cmd, "takes no argument, and %q is one", args[0])
	case len(args) > len(names):
		return Misuse(cmd, "%q is one argument too many", args[len(names)])
	}
	return Misuse(cmd, "%s", err)
}

// argumentNames are the names of the arguments in the usage line of a command, without its
// options and their values. An optional one is in brackets.
func argumentNames(cmd *cobra.Command) (names []string) {
	line, _, _ := strings.Cut(cmd.Use, "\n")
	words := strings.Fields(line)[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		for strings.HasPrefix(word, "[") && !strings.Contains(word, "]") && i+1 < len(words) {
			i++
			word += " " + words[i]
		}
		switch {
		case word == "[flags]", word == "|", strings.HasPrefix(word, "[-"):
		case strings.HasPrefix(word, "-"):
			if i+1 < len(words) && !strings.ContainsAny(words[i+1][:1], "-[") {
				i++ // the value of the option
			}
		default:
			names = append(names, word)
		}
	}
	return names
}

// argumentHint says where the value of an argument comes from.
func argumentHint(cmd *cobra.Command, name string) string {
	line, _, _ := strings.Cut(cmd.UseLine(), "\n")
	use := strings.TrimSuffix(strings.Replace(line, " [flags]", "", 1), " [flags]")
	if name := strings.TrimSuffix(name, "..."); (name == "ID" || name == "RUN") && cmd.Parent() == cmd.Root() {
		return "give one, as in: " + use + "; sandbox ls lists the runs, and last is the latest"
	}
	return "give one, as in: " + use
}

// dockerWord is the hint for a command that docker has under another name; empty for none.
func dockerWord(cmd *cobra.Command, name string) string {
	if cmd.HasParent() {
		return ""
	}
	return dockerCommands[name]
}

// errorDocument is the document of a command that failed before it printed one of its own.
type errorDocument struct {
	Schema string `json:"schema"`
	// Error is the first line of Problems.
	Error    string   `json:"error"`
	Problems []string `json:"problems"`
	Hints    []string `json:"hints"`
	// Code is the exit code.
	Code int `json:"code"`
}

// errorSchema is the version of [errorDocument].
const errorSchema = "evalbox/error/v1"

// wantsJSON reports whether a command line asks for JSON. After a flag that cannot be read the
// rest of the line was not read, so its words count.
func (a *App) wantsJSON(err error, args []string) bool {
	if a.JSONLines {
		return true
	}
	if flag, ok := a.Given["json"]; ok {
		return flag.Text != "false"
	}
	if !errors.As(err, new(*UsageError)) {
		return false
	}
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	a.JSONLines = slices.Contains(args, "--json-lines")
	return a.JSONLines || slices.Contains(args, "--json")
}

// reportJSON prints an error as a document, if the command has printed none.
func (a *App) reportJSON(err error) {
	if a.printed {
		return
	}
	problems := problemLines(err)
	hints := a.Hints(err)
	for i := range hints {
		hints[i] = a.RepeatFlags(hints[i])
	}
	document := errorDocument{Schema: errorSchema, Problems: problems, Hints: append([]string{}, hints...), Code: a.Code}
	if len(problems) > 0 {
		document.Error = problems[0]
	}
	_ = a.PrintJSON(document) // stderr has the error too
}
