package spec

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
	sandboxspec "github.com/evalbox/evalbox/sandbox/spec"
)

// reportFile is the path of pytest's report inside the container.
const reportFile = sandboxspec.FinalDir + "/report.xml"

// askForReport makes a command of tests write a report, by its environment: the command line
// stays the wished one. shared is the environment of all gates, whose values stay.
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
		if isGoTest(g.Argv) {
			set("GOFLAGS", "-json")
		}
	case auto || g.Report == evidence.ReportPytest:
		// A command such as make may start pytest; other programs ignore the variables.
		options := ""
		if g.ReportPath = ownReport(g.Argv); g.ReportPath == "" {
			g.ReportPath = reportFile
			options = "--junit-xml=" + reportFile
		}
		if !slices.ContainsFunc(g.Argv, cacheOption().MatchString) {
			options += " -p no:cacheprovider"
		}
		set("PYTEST_ADDOPTS", options)
	}
}

// cacheOption recognizes options of pytest's cache, which are errors without it.
var cacheOption = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^--(lf|last-failed.*|lfnf.*|ff|failed-first|nf|new-first|sw|sw-.*|stepwise.*|cache-.*)$`)
})

// isGoTest recognizes go test, also after -C DIR.
func isGoTest(argv []string) bool {
	return path.Base(argv[0]) == "go" && slices.Contains(argv[1:min(len(argv), 4)], "test")
}

// ownReport is the report that a pytest command names itself; empty for none. The last one
// counts.
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
			file = path.Clean(value)
		}
	}
	return strings.TrimPrefix(file, sandboxspec.RepoDir+"/")
}

// outside is a path of a command that lies outside of its boundary.
type outside struct{ path, why string }

var (
	// usual are paths of the container that a command may name: programs of the image, and
	// the directories of the sandbox.
	usual = []string{
		sandboxspec.RepoDir, sandboxspec.WorkDir, sandboxspec.HostDir, "/tmp",
		"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt",
		"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/dev/shm", "/dev/tty",
	}
	// private are directories of a machine and its users. In a script, where words can be
	// anything, only these count as paths.
	private = []string{"/etc", "/root", "/home", "/var", "/run", "/proc", "/sys", "/dev", "/boot", "/mnt", "/media", "/srv"}

	// plainParts separates the parts of one word: --flag=a, a:b, a,b, @a.
	plainParts = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[=:,@]`) })
	// scriptParts separates the words of a script as well.
	scriptParts = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\s=:,@'"` + "`" + `()\[\]{}<>|&;$]+`) })
	shortFlag   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-[A-Za-z]([/~].*)$`) })
	homePath    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^~[A-Za-z0-9_.-]*(/|$)`) })
	urlPrefix   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s'"]*`) })
)

// outsideOf finds the paths of a command that lie outside of the boundary or are protected,
// each once (RT-08, RT-09). It reads the command only: the run shows what a program opens.
func outsideOf(argv, protected []string) (found []outside) {
	seen := map[string]bool{}
	for _, word := range argv {
		script := strings.ContainsAny(word, " \t\n;|&<>()")
		for _, part := range parts(word, script) {
			if why := whyOutside(part, script, protected); why != "" && !seen[part] {
				seen[part] = true
				found = append(found, outside{part, why})
			}
		}
	}
	return found
}

// parts are the parts of a word that may be paths.
func parts(word string, script bool) []string {
	// Of URLs only those of files are paths.
	word = urlPrefix().ReplaceAllStringFunc(word, func(url string) string {
		if file, ok := strings.CutPrefix(strings.ToLower(url), "file://"); ok {
			return " " + url[len(url)-len(file):]
		}
		return ""
	})
	separator := plainParts
	if script || strings.HasPrefix(word, " ") {
		separator = scriptParts
	}
	all := separator().Split(word, -1)
	for i, part := range all {
		if m := shortFlag().FindStringSubmatch(part); m != nil {
			all[i] = m[1]
		}
	}
	return all
}

// whyOutside says what is wrong with a path; empty for nothing.
func whyOutside(name string, script bool, protected []string) string {
	if homePath().MatchString(name) {
		return "is in somebody's home directory"
	}
	climbs := strings.Contains("/"+name+"/", "/../")
	if !path.IsAbs(name) {
		name = sandboxspec.RepoDir + "/" + name
	}
	clean := path.Clean(name)
	in := func(dir string) bool { return fsx.Within(clean, dir) }
	if rel, ok := strings.CutPrefix(clean, sandboxspec.RepoDir+"/"); ok {
		if slices.ContainsFunc(protected, func(secret string) bool { return fsx.Within(rel, secret) }) {
			return "is protected"
		}
		return ""
	}
	// A script has texts that only look like paths, such as the pattern /x/.
	if slices.ContainsFunc(usual, in) || script && !climbs && !slices.ContainsFunc(private, in) {
		return ""
	}
	return "lies outside of the boundary"
}
