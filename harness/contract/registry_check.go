package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Check says why a command line must not be run by what the registry lists (IV-01), for
// callers that have no contract: some tool that is not blocked must have the first word
// among its commands, and permit every argument. It is nil if one does.
func (r Registry) Check(argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("%s: there is no command", r.Source)
	}
	command, why := argv[0], ""
	for _, t := range r.Tools() {
		if !slices.Contains(t.Scope.Commands, command) {
			continue
		}
		if t.Status == ToolBlocked {
			if why == "" {
				why = fmt.Sprintf("tool %s is blocked", t.ID) + t.instead()
			}
			continue
		}
		at := slices.IndexFunc(argv[1:], func(argument string) bool { return !t.permits(argument) })
		if at < 0 {
			return nil
		}
		why = fmt.Sprintf("argument %d, %.200q, is not one that tool %s may be given", at+1, argv[at+1], t.ID)
	}
	if why == "" {
		why = fmt.Sprintf("%.200q is a command of no tool", command)
	}
	return fmt.Errorf("%s: %s", strings.TrimSpace(r.Source), why)
}
