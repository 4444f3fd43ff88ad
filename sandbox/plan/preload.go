package plan

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	maxModules      = 32
	maxModuleLength = 128
)

var (
	modulePattern      = lazyPattern(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	interpreterPattern = lazyPattern(`^python3?(\.[0-9]{1,2})?$`)
	// flagPattern are flags without a value that change neither what Python imports at its
	// start nor what it prints there.
	flagPattern = lazyPattern(`^-[bBOPqsu]+$`)
)

func lazyPattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// planPreload plans the waiting interpreter of a request. It returns nil if none was asked for. A
// program that no interpreter can wait for is not an error: a setting may ask for all runs.
func planPreload(req spec.Request, command []string) (*spec.Preload, error) {
	if len(req.Preload) == 0 || len(command) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	if len(req.Preload) > maxModules {
		return nil, &policy.FieldError{Field: "preload", Value: fmt.Sprintf("%d modules", len(req.Preload)), Rule: fmt.Sprintf("must be at most %d", maxModules)}
	}
	for _, module := range req.Preload {
		if len(module) > maxModuleLength || !modulePattern().MatchString(module) {
			return nil, &policy.FieldError{Field: "preload", Value: fmt.Sprintf("%.80q", module), Rule: "is not the name of a Python module",
				Hint: "name modules as an import statement does, such as numpy or scipy.stats"}
		}
	}
	p := &spec.Preload{Modules: slices.Clone(req.Preload), Env: spec.SortedEnv(req.Env), Stdin: req.Stdin, NoFork: req.NoFork}
	p.Interpreter, p.Unfit = splitPython(command)
	if p.Unfit == "" {
		p.Unfit = unfitRequest(req)
	}
	if p.Unfit != "" {
		p.Interpreter, p.Env = []string{}, []string{}
	}
	return p, nil
}

// unfitRequest says what in a request keeps an interpreter from waiting.
func unfitRequest(req spec.Request) string {
	if req.FakeClock != nil {
		return "the clock of the program starts with it"
	}
	// Python and the search for it must not depend on files of the run: these are not trusted,
	// and the program has not begun.
	names := slices.Sorted(maps.Keys(req.Env))
	for _, secret := range req.Secrets {
		names = append(names, secret.Name)
	}
	for _, name := range names {
		if name == "HOME" || name == "PATH" || strings.HasPrefix(name, "LD_") || policy.PythonChooses(name) {
			return "the environment of the request sets " + name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(req.Env)) {
		if namesFileOfRun(req, req.Env[name]) {
			return "variable " + name + " of the request names a file of the run"
		}
	}
	return ""
}

// namesFileOfRun reports whether a variable may lead a library to a file of the run: some load code that
// a variable names, such as OPENSSL_CONF. The interpreter waits in the working directory.
func namesFileOfRun(req spec.Request, value string) bool {
	names := []string{spec.WorkDir, spec.RepoDir, spec.HostDir, path.Base(spec.InputDir) + "/", path.Base(spec.FinalDir) + "/"}
	if req.Script != "" {
		names = append(names, filepath.Base(req.Script))
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(value, name) })
}

// splitPython returns the interpreter and its flags, or why it cannot wait.
func splitPython(command []string) (interpreter []string, unfit string) {
	dir, name := path.Split(command[0])
	if !interpreterPattern().MatchString(name) {
		return nil, "the command is not python3"
	}
	if dir != "" && (!path.IsAbs(dir) || ofRun(command[0])) {
		return nil, "the interpreter is a file of the run"
	}
	n := 1
	for n < len(command) && flagPattern().MatchString(command[n]) {
		n++
	}
	rest := command[n:]
	switch {
	case len(rest) == 0 || rest[0] == "-" || rest[0] == "":
		return nil, "the program comes from stdin"
	case rest[0] == "-c" || rest[0] == "-m":
		if len(rest) < 2 {
			return nil, "the command has no program"
		}
	case strings.HasPrefix(rest[0], "-"):
		return nil, fmt.Sprintf("a waiting interpreter cannot have the flag %.20q", rest[0])
	}
	return slices.Clone(command[:n]), ""
}

// ofRun reports whether a path may be one that the run brings.
func ofRun(name string) bool {
	name = path.Clean(name)
	return slices.ContainsFunc([]string{spec.WorkDir, spec.TmpDir, spec.RepoDir, spec.HostDir}, func(dir string) bool {
		return strings.HasPrefix(name, dir+"/")
	})
}
