package invoke

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// impureImports are packages whose only use is what must be injected (M3-09), or that
// would bring a tool into this process.
var impureImports = []string{"math/rand", "math/rand/v2", "crypto/rand", "github.com/google/uuid", "plugin", "C"}

// impureNames are functions that read what must be injected: the clock, random names,
// the environment, the process and its directory.
var impureNames = map[string][]string{
	"time":    {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	"os": {
		"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Hostname", "Getpid", "Getppid", "Getuid", "Getgid", "CreateTemp", "MkdirTemp", "TempDir",
		"UserHomeDir", "UserCacheDir", "UserConfigDir", "Executable", "Args", "Getwd", "StartProcess",
	},
	"path/filepath": {"Abs"},
	"syscall":       {"Getenv", "Environ", "Getpid", "Getwd", "Gettimeofday", "ForkExec", "StartProcess", "Exec"},
}

// directoryNames read the directory of the process, for relative paths. That is the one thing
// that is not injected, and these files only may do it.
var directoryNames = []string{"path/filepath.Abs", "os.Getwd"}

var directoryFiles = []string{"invocation.go", "harness.go", "verify.go"}

// mayReadDirectory says that a file makes the caller's paths absolute. A sweep does so with
// its own.
func mayReadDirectory(file string) bool {
	return slices.Contains(directoryFiles, file) || strings.HasPrefix(filepath.ToSlash(file), "sweep/")
}

// impurities are the places of a Go file that break the rule.
func impurities(t *testing.T, name string, text any) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	packages := map[string]string{} // by the names that the file gives them
	for _, spec := range tree.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if slices.Contains(impureImports, path) {
			found = append(found, "import "+path)
		}
		local := path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name != nil {
			local = spec.Name.Name
		}
		packages[local] = path
		if local == "." && impureNames[path] != nil {
			found = append(found, "import . "+path)
		}
	}
	ast.Inspect(tree, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if of, ok := selector.X.(*ast.Ident); ok && slices.Contains(impureNames[packages[of.Name]], selector.Sel.Name) {
				found = append(found, packages[of.Name]+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return found
}

// sources are the files of this package and those below it, less tests.
func sources(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	}))
	require.NotEmpty(t, files)
	return files
}

// TestNoClockNoChance: the package reads neither a clock nor random numbers nor the
// environment, but what it is given.
func TestNoClockNoChance(t *testing.T) {
	used := map[string]bool{}
	for _, file := range sources(t) {
		found := slices.DeleteFunc(impurities(t, file, nil), func(name string) bool {
			used[file] = used[file] || slices.Contains(directoryNames, name)
			return mayReadDirectory(file) && slices.Contains(directoryNames, name)
		})
		assert.Empty(t, found, file)
	}
	for _, file := range directoryFiles {
		assert.True(t, used[file], "%s needs no exception", file)
	}
	// The search finds what it looks for, under whatever name.
	for text, want := range map[string]string{
		`import "time"; var x = time.Now()`:             "time.Now",
		`import "time"; var f = time.Since`:             "time.Since",
		`import clock "time"; var x = clock.After(1)`:   "time.After",
		`import "context"; var f = context.WithTimeout`: "context.WithTimeout",
		`import "os"; var x = os.Getenv("HOME")`:        "os.Getenv",
		`import "os"; var x = os.StartProcess`:          "os.StartProcess",
		`import file "path/filepath"; var x = file.Abs`: "path/filepath.Abs",
		`import "syscall"; var x = syscall.ForkExec`:    "syscall.ForkExec",
		`import "C"`:             "import C",
		`import . "time"`:        "import . time",
		`import "math/rand/v2"`:  "import math/rand/v2",
		`import _ "crypto/rand"`: "import crypto/rand",
		`import id "github.com/google/uuid"; var x = id.New()`: "import github.com/google/uuid",
	} {
		require.Equal(t, []string{want}, impurities(t, "x.go", "package x; "+text))
	}
	require.Empty(t, impurities(t, "x.go", `package x; import "time"; type c struct{ time.Time }; var d = time.Second; func (c) Now() {}`))
}

// TestToolsAreProcesses: nothing here starts a process: a tool runs in a container only
// (M3-01). TestEngineSuccess and TestNothingIsChanged show that nothing of a tool is changed.
func TestToolsAreProcesses(t *testing.T) {
	for _, file := range sources(t) {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range tree.Imports {
			assert.NotEqual(t, `"os/exec"`, spec.Path.Value, file)
		}
	}
}

// TestTheDoubleIsDeterministic: the test tool has nothing that differs from run to run,
// and no import of this project or of a shell.
func TestTheDoubleIsDeterministic(t *testing.T) {
	text, err := os.ReadFile("testdata/fake_tool.py")
	require.NoError(t, err)
	imports := regexp.MustCompile(`(?m)^\s*(?:import|from)\s+(\w+)`).FindAllStringSubmatch(string(text), -1)
	for _, found := range imports {
		assert.Contains(t, []string{"argparse", "hashlib", "json", "os", "signal", "socket", "subprocess", "sys", "time"}, found[1])
	}
	for _, forbidden := range []string{"random", "datetime", "uuid", "time.time", "urandom", "shell=True", "os.system"} {
		assert.NotContains(t, string(text), forbidden)
	}
}
