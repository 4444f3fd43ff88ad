package manifest

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// ReportFile is where pytest is asked to leave its report, inside the container.
const ReportFile = spec.FinalDir + "/report.xml"

// askForReport makes a command of tests tell its cases, by its environment: the command
// line stays the one that was wished. shared is the environment of all gates, whose
// values are kept.
func askForReport(g *evidence.Gate, shared map[string]string) {
	set := func(name, options string) {
		own, ok := g.Env[name]
		if !ok {
			own = shared[name]
		}
		g.Env[name] = strings.TrimSpace(options + " " + own)
	}
	auto := g.Report == evidence.ReportAuto
	switch {
	case g.Kind != evidence.KindTests:
	case g.Report == evidence.ReportGoTest, auto && isGoTest(g.Argv):
		if isGoTest(g.Argv) && !goTellsJSON(g.Argv) {
			set("GOFLAGS", "-json")
		}
	case auto || g.Report == evidence.ReportPytest:
		// A command such as make may run pytest behind another one; for others these
		// variables mean nothing.
		options := ""
		if g.ReportPath = ownReport(g.Argv); g.ReportPath == "" {
			g.ReportPath = ReportFile
			options = "--junit-xml=" + ReportFile
		}
		if !usesCache(g.Argv) {
			options += " -p no:cacheprovider"
		}
		set("PYTEST_ADDOPTS", options)
	}
}

// isGoTest recognizes go test, with flags before the verb.
func isGoTest(argv []string) bool {
	if path.Base(argv[0]) != "go" {
		return false
	}
	rest := argv[1:]
	for len(rest) > 1 && strings.HasPrefix(rest[0], "-") { // go -C folder test
		if !strings.Contains(rest[0], "=") {
			rest = rest[1:]
		}
		rest = rest[1:]
	}
	return len(rest) > 0 && rest[0] == "test"
}

// goTellsJSON reports whether -json was given already. What follows -args is not for go.
func goTellsJSON(argv []string) bool {
	for _, word := range argv {
		name, value, _ := strings.Cut(strings.TrimPrefix(word, "-"), "=")
		switch strings.TrimPrefix(word, "-") {
		case "args", "-args":
			return false
		}
		if strings.HasPrefix(word, "-") && (name == "json" || name == "-json") {
			return value != "false"
		}
	}
	return false
}

// ownReport is the report that a command of pytest asks for itself; empty for none.
func ownReport(argv []string) (file string) {
	for i, word := range argv {
		name, value, joined := strings.Cut(word, "=")
		if name != "--junit-xml" && name != "--junitxml" {
			continue
		}
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
		}
		if value != "" {
			file = path.Clean(value) // the last one counts
		}
	}
	if file != "" && path.IsAbs(file) && strings.HasPrefix(file, spec.RepoDir+"/") {
		return strings.TrimPrefix(file, spec.RepoDir+"/")
	}
	return file
}

var cacheOption = regexp.MustCompile(`^--(lf|last-failed.*|lfnf.*|ff|failed-first|nf|new-first|sw|sw-.*|stepwise.*|cache-.*)$`)

// usesCache recognizes options of pytest's cache, which are errors without it.
func usesCache(argv []string) bool { return slices.ContainsFunc(argv, cacheOption.MatchString) }
