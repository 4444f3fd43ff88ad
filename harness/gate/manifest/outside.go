package manifest

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// outside is a path of a command that lies outside of its boundary.
type outside struct{ path, why string }

var (
	// usual are folders of the container that a command may well name: programs of the
	// image, and what evalbox puts there.
	usual = []string{
		spec.RepoDir, spec.WorkDir, spec.HostDir, "/tmp",
		"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt",
		"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/dev/shm", "/dev/tty",
	}
	// private are folders that belong to a machine and its people. In a script, where
	// words can be anything, only these are taken for paths.
	private = []string{"/etc", "/root", "/home", "/var", "/run", "/proc", "/sys", "/dev", "/boot", "/mnt", "/media", "/srv"}

	// plainParts separates what one word can hold: --flag=a, a:b, a,b, @a.
	plainParts = regexp.MustCompile(`[=:,@]`)
	// scriptParts separates the words of a script as well.
	scriptParts = regexp.MustCompile(`[\s=:,@'"` + "`" + `()\[\]{}<>|&;$]+`)
	shortFlag   = regexp.MustCompile(`^-[A-Za-z]([/~].*)$`)
	homePath    = regexp.MustCompile(`^~[A-Za-z0-9_.-]*(/|$)`)
	urlPrefix   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s'"]*`)
)

// outsideOf finds what a command names outside of the boundary, or that is protected,
// each once (RT-08, RT-09). It looks at texts only: what a program opens is found out
// when it runs.
func outsideOf(argv, protected []string) []outside {
	var found []outside
	seen := map[string]bool{}
	for _, word := range argv {
		script := strings.ContainsAny(word, " \t\n;|&<>()")
		for _, part := range parts(word, script) {
			why := whyOutside(part, script, protected)
			if why != "" && !seen[part] {
				seen[part] = true
				found = append(found, outside{part, why})
			}
		}
	}
	return found
}

// parts are the texts of a word that may be paths.
func parts(word string, script bool) []string {
	// Of addresses only those of files are paths.
	word = urlPrefix.ReplaceAllStringFunc(word, func(url string) string {
		if file, ok := strings.CutPrefix(strings.ToLower(url), "file://"); ok {
			return " " + url[len(url)-len(file):]
		}
		return ""
	})
	split := plainParts
	if script || strings.HasPrefix(word, " ") {
		split = scriptParts
	}
	all := split.Split(word, -1)
	for i, part := range all {
		if m := shortFlag.FindStringSubmatch(part); m != nil {
			all[i] = m[1]
		}
	}
	return all
}

// whyOutside says what is wrong with a path; empty if nothing is.
func whyOutside(name string, script bool, protected []string) string {
	if homePath.MatchString(name) {
		return "is in somebody's home folder"
	}
	climbs := strings.Contains("/"+name+"/", "/../")
	if !path.IsAbs(name) {
		name = spec.RepoDir + "/" + name
	}
	clean := path.Clean(name)
	if rel, ok := strings.CutPrefix(clean, spec.RepoDir+"/"); ok {
		for _, secret := range protected {
			if fsx.Within(rel, secret) {
				return "is protected"
			}
		}
		return ""
	}
	if slices.ContainsFunc(usual, func(folder string) bool { return fsx.Within(clean, folder) }) {
		return ""
	}
	// A script has texts that only look like paths, such as the pattern /x/.
	if script && !climbs && !slices.ContainsFunc(private, func(folder string) bool { return fsx.Within(clean, folder) }) {
		return ""
	}
	return "lies outside of the boundary"
}
