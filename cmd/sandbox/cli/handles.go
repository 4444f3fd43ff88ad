package cli

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// handles marks the commands of [TakesHandles].
const handles = "evalbox.handles"

// TakesHandles says that the arguments of a command name runs: "-1" among them is the newest
// run, and not a flag.
func TakesHandles(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[handles] = "true"
	return cmd
}

var countsBack = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-[1-9][0-9]*(:.*)?$`) })

// relativeArgs spells the handles "-1", "-2" and so on of a command line as "~1" and "~2", which
// cobra does not take for flags. The value of a flag stays as it is.
func relativeArgs(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd.Annotations[handles] == "" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if countsBack().MatchString(arg) && (i == 0 || !takesNext(cmd, args[i-1])) {
			args[i] = "~" + arg[1:]
		}
	}
	return args
}

// takesNext reports whether an argument is a flag whose value is the next argument.
func takesNext(cmd *cobra.Command, arg string) bool {
	if len(arg) < 2 || arg[0] != '-' || strings.Contains(arg, "=") {
		return false
	}
	flag := cmd.Flag(strings.TrimPrefix(arg, "--"))
	if !strings.HasPrefix(arg, "--") {
		flag = cmd.Flags().ShorthandLookup(arg[len(arg)-1:])
	}
	return flag != nil && flag.NoOptDefVal == ""
}
