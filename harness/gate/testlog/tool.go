package testlog

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// tool is a program that runs tests.
type tool int

const (
	toolUnknown tool = iota
	toolPytest
	toolGo
	toolUnittest
	toolProve
)

var pythonName = regexp.MustCompile(`^(?:python|pypy)[0-9.]*$`)

// wrappers run the command that follows; the words are what stands before it.
var wrappers = [][]string{{"env"}, {"uv", "run"}, {"poetry", "run"}, {"pipenv", "run"}, {"coverage", "run", "-m"}, {"time"}, {"nice"}}

// toolOf says which tool a command is. What a shell carries out is not looked into.
func toolOf(argv []string) tool {
	argv = unwrap(argv)
	if len(argv) == 0 {
		return toolUnknown
	}
	program := path.Base(argv[0])
	switch {
	case program == "pytest", program == "py.test":
		return toolPytest
	case program == "unittest": // after "coverage run -m"
		return toolUnittest
	case program == "prove":
		return toolProve
	case program == "go" && goVerb(argv[1:]) == "test":
		return toolGo
	case pythonName.MatchString(program):
		return moduleOf(argv[1:])
	}
	return toolUnknown
}

// unwrap takes off what only prepares a command.
func unwrap(argv []string) []string {
	for {
		rest := argv
		for _, words := range wrappers {
			if len(rest) > len(words) && path.Base(rest[0]) == words[0] && slices.Equal(rest[1:len(words)], words[1:]) {
				rest = rest[len(words):]
				break
			}
		}
		for len(rest) < len(argv) && len(rest) > 1 && strings.Contains(rest[0], "=") {
			rest = rest[1:] // variables of env
		}
		if len(rest) == len(argv) {
			return argv
		}
		argv = rest
	}
}

// goVerb is the verb of a go command, after the option -C.
func goVerb(args []string) string {
	if len(args) > 0 && strings.HasPrefix(args[0], "-C") {
		if args[0] == "-C" && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// moduleOf finds the module of python -m. Options before it may be together, as in -Bm.
func moduleOf(args []string) tool {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-X" || arg == "-W":
			i++
		case strings.HasPrefix(arg, "--") || !strings.HasPrefix(arg, "-"):
			return toolUnknown
		case strings.HasSuffix(arg, "m"):
			if i+1 == len(args) {
				return toolUnknown
			}
			if args[i+1] == "coverage" {
				return toolOf(args[i+1:])
			}
			return map[string]tool{"pytest": toolPytest, "unittest": toolUnittest}[args[i+1]]
		case strings.HasSuffix(arg, "c"):
			return toolUnknown
		}
	}
	return toolUnknown
}

// asked says that the environment asks pytest for a report.
func asked(g evidence.Gate) bool {
	return strings.Contains(g.Env["PYTEST_ADDOPTS"], "--junit-xml") || strings.Contains(g.Env["PYTEST_ADDOPTS"], "--junitxml")
}

// endedByItself says that pytest came to its end, with whatever result: such a run
// writes the report that it was asked for.
func endedByItself(code *int) bool {
	return code != nil && (*code == 0 || *code == 1 || *code == 5)
}
