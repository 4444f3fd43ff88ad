package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/settings"
)

const volumes = "use --input DIR for files to read, --final DIR for results, or --mount SRC:DST"

// dockerFlags say how to do here what a flag of docker run does. The keys are long names and
// single letters.
var dockerFlags = map[string]string{
	"v": volumes, "volume": volumes,
	"rm": "leave it out: a container is always removed after its run; --keep keeps it",
	"t":  "leave it out: a program has no terminal; -i passes stdin on", "tty": "leave it out: a program has no terminal; -i passes stdin on",
	"w": "leave it out: a program always starts in a fresh directory of its own", "workdir": "leave it out: a program always starts in a fresh directory of its own",
	"p": "leave it out: nothing can connect to a program", "publish": "leave it out: nothing can connect to a program",
	"expose": "leave it out: nothing can connect to a program", "net": "permit single hosts with --allow-host HOST; see: sandbox help network",
	"privileged": "leave it out: a program never gets privileges", "cap-add": "leave it out: a program never gets capabilities",
	"cap-drop": "leave it out: a program has no capabilities", "security-opt": "leave it out: the strictest options are always in force",
	"device": "for GPUs there is --gpus; no other device can be given", "read-only": "leave it out: the root file system is always read-only",
	"tmpfs": "leave it out: /tmp is a tmpfs, bounded by --tmp-size", "memory-swap": "leave it out: a program has no swap beyond --memory",
	"entrypoint": "give the command after --", "init": "leave it out: an init process always collects the children of a program",
	"platform": "choose it when you pull the image: sandbox image pull --platform", "pull": "make the image before: sandbox image ensure NAME",
	"restart": "leave it out: a run is never repeated by itself", "hostname": "leave it out: the name of the host is fixed",
}

// dockerCommands are the commands here that do what a command of docker does.
var dockerCommands = map[string]string{
	"images": "sandbox image list", "inspect": "sandbox show ID", "info": "sandbox doctor", "kill": "sandbox stop --kill ID",
	"attach": "sandbox logs -f ID", "stats": "sandbox ps", "top": "sandbox ps", "container": "sandbox ls", "containers": "sandbox ls",
	"pull": "sandbox image ensure NAME", "build": "sandbox image build NAME", "start": "sandbox run", "create": "sandbox run", "restart": "sandbox run",
	"rmi": "sandbox image prune", "system": "sandbox doctor, or sandbox gc",
	"events": "sandbox ls", "history": "sandbox ls",
	"context": "sandbox --context NAME", "network": "sandbox help network", "volume": "sandbox run --input DIR --final DIR", "commit": "sandbox image build NAME",
	"login": "docker login", "save": "sandbox image export NAME FILE", "load": "sandbox image import FILE",
}

// unknownFlag is the error of a flag that a command does not have: its hint is how it is done
// here, or the flag whose name is nearest.
func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name, shown := e.GetSpecifiedName(), "--"+e.GetSpecifiedName()
	if letters := e.GetSpecifiedShortnames(); letters != "" {
		shown = "-" + letters
		for _, letter := range strings.Split(letters, "") {
			if cmd.Flags().ShorthandLookup(letter) == nil {
				name = letter
				break
			}
		}
	}
	if hint := dockerFlags[name]; hint != "" && cmd.Flags().Lookup("image") != nil {
		return UsageHint(hint, "%s: unknown flag: %s", Subject(cmd), shown)
	}
	var known []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			known = append(known, flag.Name)
		}
	})
	if near := settings.Nearest(name, known); near != "" && len(name) > 1 {
		return UsageHint("did you mean --"+near+"?", "%s: unknown flag: %s", Subject(cmd), shown)
	}
	return Misuse(cmd, "unknown flag: %s", shown)
}

// unknownCommand is the error of a command that does not exist.
func unknownCommand(cmd *cobra.Command, name string) error {
	subject := ""
	if cmd.HasParent() {
		subject = Subject(cmd) + ": "
	} else if there := dockerCommands[name]; there != "" {
		return UsageHint("use "+there, "unknown command %q", name)
	}
	cmd.SuggestionsMinimumDistance = 2 // letters that differ
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return UsageHint("did you mean "+strings.Join(near, " or ")+"?", "%sunknown command %q", subject, name)
	}
	return Usagef(cmd.CommandPath(), "%sunknown command %q", subject, name)
}

// wrongArguments is the error of a command with too many or too few arguments, by the names
// that its line of usage gives them. cobra's words count arguments and name none.
func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	var usage *UsageError
	if errors.As(err, &usage) {
		return err
	}
	names := argumentsOf(cmd)
	line, _, _ := strings.Cut(cmd.Use, "\n")
	hint := "give it as in: sandbox " + strings.TrimSpace(strings.TrimSuffix(Subject(cmd), cmd.Name())+line)
	missing := len(args)
	if missing < len(names) && !strings.HasPrefix(names[missing], "[") {
		name, _, _ := strings.Cut(strings.TrimSuffix(names[missing], "..."), "@")
		if name == "ID" {
			return UsageHint("see all runs with: sandbox ls", "%s: which run? Give its ID", Subject(cmd))
		}
		return UsageHint(hint, "%s: %s is missing", Subject(cmd), name)
	}
	if len(names) == 0 && len(args) > 0 {
		return Misuse(cmd, "takes no argument, and %q is one", args[0])
	}
	if len(args) > len(names) {
		return UsageHint(hint, "%s: one argument too many: %q", Subject(cmd), args[len(names)])
	}
	return Misuse(cmd, "%s", err)
}

// argumentsOf are the names of the arguments in the line of usage of a command, without its
// flags. An optional one is in brackets.
func argumentsOf(cmd *cobra.Command) (names []string) {
	line, _, _ := strings.Cut(cmd.Use, "\n")
	words := strings.Fields(line)[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "[flags]", word == "|":
		case strings.HasPrefix(word, "["):
			whole := word
			for !strings.Contains(whole, "]") && i+1 < len(words) {
				i++
				whole += " " + words[i]
			}
			if !strings.HasPrefix(whole, "[-") {
				names = append(names, whole)
			}
		case strings.HasPrefix(word, "-"):
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") && !strings.HasPrefix(words[i+1], "[") {
				i++ // the value of the flag
			}
		default:
			names = append(names, word)
		}
	}
	return names
}
