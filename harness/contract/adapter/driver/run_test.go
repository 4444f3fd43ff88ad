package driver_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract/adapter/driver"
	"github.com/evalbox/evalbox/internal/treetest"
)

// ended is a program that has ended.
type ended struct {
	code           int
	stdout, stderr string
	value          json.RawMessage
	err            error
}

// run runs the program of a call in a directory, as a container does.
func run(t *testing.T, workDir string, c driver.Call) ended {
	t.Helper()
	p, err := driver.New(c)
	require.NoError(t, err)
	return runProgram(t, workDir, p)
}

func runProgram(t *testing.T, workDir string, p driver.Program) ended {
	t.Helper()
	files := t.TempDir()
	for name, text := range p.Files {
		file := filepath.Join(files, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o444))
	}
	p = p.At(files)
	command := exec.CommandContext(t.Context(), p.Command[0], p.Command[1:]...)
	command.Dir, command.Stdin = workDir, strings.NewReader(p.Stdin)
	command.Env = os.Environ()
	for name, value := range p.Env {
		if name != "GOCACHE" { // the one of this test has the standard library
			command.Env = append(command.Env, name+"="+value)
		}
	}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run() // the code says it
	e := ended{code: command.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	e.value, e.err = driver.Answer(stdout.Bytes())
	written := map[string]string{}
	require.NoError(t, filepath.WalkDir(files, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		written[strings.TrimPrefix(path, files+"/")] = string(text)
		return err
	}))
	if len(p.Files)+len(written) > 0 {
		require.Equal(t, p.Files, written, "the files are read-only in a container")
	}
	return e
}

// requireFailure requires that a function failed, and that its program says so.
func requireFailure(t *testing.T, e ended, kind, message string) {
	t.Helper()
	var failed *driver.FunctionError
	require.ErrorAs(t, e.err, &failed, e.stderr)
	require.Equal(t, kind, failed.Type, failed.Message)
	require.Contains(t, failed.Message, message)
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, message)
}

const pythonLibrary = `
import collections, dataclasses, datetime, decimal, enum, os, subprocess, sys
print("at the import")

def echo(*args, **kwargs):
    print("printed")
    os.write(1, b"written\n")
    subprocess.run(["echo", "by a child"])
    return {"args": args, "kwargs": kwargs}

def types(a, b):
    return [type(a).__name__, type(b).__name__]

class Class:
    @classmethod
    def method(cls, a): return a
    @staticmethod
    def fail(): raise KeyError("it")

class Color(enum.Enum):
    RED = 1

class Array:
    def __init__(self, items): self.items = items
    def tolist(self): return self.items

class Scalar:
    def item(self): return 2.5

@dataclasses.dataclass
class Point:
    x: int
    color: Color

Pair = collections.namedtuple("Pair", "a b")

def all():
    return {"set": {3, 1, 2}, "tuple": (1,), "bytes": b"\x00\xff", "point": Point(1, Color.RED), "pair": Pair(1, 2),
            "date": datetime.date(2026, 1, 2), "time": datetime.datetime(2026, 1, 2, 3, 4, 5), "array": Array([Scalar()]),
            "decimal": decimal.Decimal("1.10"), 5: None, "text": "\u00e9\n\ud83d\ude00", "half": "\ud800", "big": 10**30}

def value(kind):
    loop = []
    loop.append(loop)
    return {"nan": float("nan"), "object": object(), "loop": loop, "key": {(1, 2): 1}, "type": Point, "generator": (x for x in [])}[kind]

async def later(a):
    import asyncio
    await asyncio.sleep(0)
    return a

def leave(): sys.exit(5)
def close():
    sys.stdout.close()
    return 1
def vanish(): os._exit(0)
def lazy(): import no_such_module

class Evil(Exception):
    def __str__(self): raise ValueError
def evil(): raise Evil
`

func TestPython(t *testing.T) {
	t.Parallel()
	dir := treetest.Dir(t, map[string]string{"library/__init__.py": pythonLibrary, "library/below.py": "def f(): return 'below'\n"})
	call := func(function string, parameters map[string]any) ended {
		return run(t, dir, driver.Call{Language: driver.Python, Package: "library", Function: function, Parameters: parameters})
	}
	parameters := map[string]any{"b": []any{nil, true, int64(1)}, "a": "'\"\\\n\x00é", "c": map[string]any{"d": 2.5}}
	for function, want := range map[string]string{
		"echo":          `{"args": [], "kwargs": {"a": "'\"\\\n\u0000é", "b": [null, true, 1], "c": {"d": 2.5}}}`,
		"echo(b, c, a)": `{"args": [[null, true, 1], {"d": 2.5}, "'\"\\\n\u0000é"], "kwargs": {}}`,
	} {
		e := call(function, parameters)
		require.NoError(t, e.err, e.stderr)
		require.JSONEq(t, want, string(e.value), function)
		require.Zero(t, e.code)
		require.Equal(t, "\nevalbox/answer/v1 ", e.stdout[:len("\nevalbox/answer/v1 ")], "nothing comes before the answer")
		require.Contains(t, e.stderr, "at the import\n")
		require.Contains(t, e.stderr, "written\nby a child\n")
		require.Contains(t, e.stderr, "printed\n")
	}
	for function, test := range map[string]struct {
		parameters map[string]any
		want       string
	}{
		"Class.method(a)": {map[string]any{"a": int64(1)}, "1"},
		"types":           {map[string]any{"a": 3.0, "b": int64(3)}, `["float", "int"]`},
		"types(a, b)":     {map[string]any{"a": json.Number("1e2"), "b": json.Number("123456789012345678901")}, `["float", "int"]`},
		"later":           {map[string]any{"a": "x"}, `"x"`},
		"close()":         {nil, "1"},
		"all": {nil, `{"set": [1, 2, 3], "tuple": [1], "bytes": {"base64": "AP8="}, "point": {"x": 1, "color": 1}, "pair": [1, 2], "date": "2026-01-02",
			"time": "2026-01-02T03:04:05", "array": [2.5], "decimal": "1.10", "5": null, "text": "é\n😀", "half": "\ud800", "big": 1000000000000000000000000000000}`},
	} {
		e := call(function, test.parameters)
		require.NoError(t, e.err, e.stderr)
		require.JSONEq(t, test.want, string(e.value), function)
	}
	below := run(t, dir, driver.Call{Language: driver.Python, Package: "a-distribution", ImportPath: "library.below", Function: "f"})
	require.NoError(t, below.err)
	require.Equal(t, `"below"`, string(below.value))

	for kind, want := range map[string][2]string{
		"nan":       {"ValueError", "the result has the number nan, which JSON does not have"},
		"object":    {"TypeError", "a value of type builtins.object, which JSON does not have"},
		"generator": {"TypeError", "a value of type builtins.generator"},
		"type":      {"TypeError", "a value of type builtins.type"},
		"loop":      {"ValueError", "the result contains itself"},
		"key":       {"TypeError", "a key of type tuple; keys must be text"},
	} {
		requireFailure(t, call("value", map[string]any{"kind": kind}), want[0], want[1])
	}
	requireFailure(t, call("Class.fail", nil), "KeyError", "'it'")
	requireFailure(t, call("leave", nil), "SystemExit", "5")
	requireFailure(t, call("nothing", nil), "AttributeError", "nothing")
	requireFailure(t, call("types", nil), "TypeError", "missing 2 required positional arguments")
	evil := call("evil", nil)
	require.EqualError(t, evil.err, "Evil: the exception has no text")
	require.ErrorIs(t, call("vanish", nil).err, driver.ErrNoAnswer)

	lazy := call("lazy", nil)
	requireFailure(t, lazy, "ModuleNotFoundError", "no_such_module")
	require.Equal(t, "Python package no_such_module", driver.Missing(driver.Python, lazy.code, lazy.stderr))
	absent := run(t, dir, driver.Call{Language: driver.Python, Package: "not-there", ImportPath: "not_there.module", Function: "f"})
	require.Equal(t, "Python package not_there", driver.Missing(driver.Python, absent.code, absent.stderr))
}

const goLibrary = `package library

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
)

var out = os.Stdout

func init() { fmt.Print("at the import, without a line end") }

type Options struct {
	Name  string   ` + "`json:\"name\"`" + `
	Items []int64  ` + "`json:\"items\"`" + `
	Ratio *float64 ` + "`json:\"ratio\"`" + `
}

func Echo(ctx context.Context, o Options) (Options, error) {
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	fmt.Println("printed")
	fmt.Fprintln(out, "written")
	child := exec.Command("echo", "by a child")
	child.Stdout = out
	return o, child.Run()
}

type Kind string

func (k Kind) Twice() Kind { return k + k }

func Map(m map[string]any) int                           { return len(m) }
func Add(a int, b ...float64) float64                    { return float64(a) + b[0] + b[1] }
func Pair(k Kind) (Kind, bool)                           { return k, true }
func Bytes(b []byte) []byte                              { return b }
func Nothing()                                           {}
func Fail(ctx context.Context, text string) (int, error) { return 0, errors.New(text) }
func Panic(text string)                                  { panic(text) }
func NaN() float64                                       { return math.NaN() }
func Func() func()                                       { return Nothing }
func Exit()                                              { os.Exit(0) }

var Variable = 5
`

func TestGo(t *testing.T) {
	t.Parallel()
	// The version is the oldest that a driver is compiled for; the library needs a newer one itself.
	dir := treetest.Dir(t, map[string]string{"go.mod": "module example.org/m\n\ngo 1.18\n", "library/library.go": goLibrary})
	call := func(function string, parameters map[string]any) ended {
		return run(t, dir, driver.Call{Language: driver.Go, Package: "example.org/m", ImportPath: "example.org/m/library", Function: function, Parameters: parameters})
	}
	e := call("Echo", map[string]any{"name": "\"\\\n`é", "items": []any{int64(1) << 62}, "ratio": 0.5})
	require.NoError(t, e.err, e.stderr)
	require.JSONEq(t, "{\"name\":\"\\\"\\\\\\n`é\",\"items\":[4611686018427387904],\"ratio\":0.5}", string(e.value))
	require.Zero(t, e.code)
	require.True(t, strings.HasPrefix(e.stdout, "at the import, without a line end\nevalbox/answer/v1 "), e.stdout)
	require.Equal(t, "printed\nwritten\nby a child\n", e.stderr)

	for function, test := range map[string]struct {
		parameters map[string]any
		want       string
	}{
		"Map":           {map[string]any{"a": int64(1), "b": nil}, "2"},
		"Map(m)":        {map[string]any{"m": map[string]any{"a": int64(1)}}, "1"},
		"Add(a, b)":     {map[string]any{"a": int64(1), "b": []any{0.5, 2.0}}, "3.5"},
		"Pair(k)":       {map[string]any{"k": "x"}, `["x",true]`},
		"Kind.Twice(k)": {map[string]any{"k": "x"}, `"xx"`},
		"Bytes(b)":      {map[string]any{"b": "AP8="}, `"AP8="`},
		"Nothing":       {nil, "null"},
	} {
		e := call(function, test.parameters)
		require.NoError(t, e.err, e.stderr)
		require.Equal(t, test.want, string(e.value), function)
	}
	for function, test := range map[string]struct {
		parameters map[string]any
		want       [2]string
	}{
		"Fail(text)":  {map[string]any{"text": "it failed"}, [2]string{"*errors.errorString", "it failed"}},
		"Panic(text)": {map[string]any{"text": "it panics"}, [2]string{"panic", "it panics"}},
		"NaN":         {nil, [2]string{"*json.UnsupportedValueError", "NaN"}},
		"Func":        {nil, [2]string{"*errors.errorString", "the result has a value of type func(), which JSON does not have"}},
		"Echo":        {map[string]any{"nam": "x"}, [2]string{"*fmt.wrapError", `the parameters must fit the type library.Options: json: unknown field "nam"`}},
		"Add":         {map[string]any{"a": int64(1)}, [2]string{"*errors.errorString", "Add does not have one parameter, but 2: the mapping must name them, as in Add(a, b)"}},
		"Pair(k, l)":  {map[string]any{"k": "x", "l": "y"}, [2]string{"*errors.errorString", "the parameters of Pair are 1, the mapping names 2"}},
		"Pair(k)":     {map[string]any{"k": int64(1)}, [2]string{"*fmt.wrapError", "parameter k must fit the type library.Kind"}},
		"Variable":    {nil, [2]string{"*errors.errorString", "Variable is not a function, but a int"}},
	} {
		e := call(function, test.parameters)
		requireFailure(t, e, test.want[0], test.want[1])
	}
	require.ErrorIs(t, call("Exit", nil).err, driver.ErrNoAnswer)
	unknown := call("Unknown", nil)
	require.ErrorIs(t, unknown.err, driver.ErrNoAnswer)
	require.Contains(t, unknown.stderr, "undefined: library.Unknown")
	require.Empty(t, driver.Missing(driver.Go, unknown.code, unknown.stderr))
}

// TestGoWithoutModule: the standard library needs no module, and other packages are said to be
// missing.
func TestGoWithoutModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := run(t, dir, driver.Call{Language: driver.Go, Package: "strings", Function: "Repeat(text, count)", Parameters: map[string]any{"text": "ab", "count": int64(2)}})
	require.NoError(t, e.err, e.stderr)
	require.Equal(t, `"abab"`, string(e.value))
	e = run(t, dir, driver.Call{Language: driver.Go, Package: "encoding/base64", Function: "StdEncoding.EncodeToString(data)", Parameters: map[string]any{"data": "AP8="}})
	require.NoError(t, e.err, e.stderr)
	require.Equal(t, `"AP8="`, string(e.value))

	module := treetest.Dir(t, map[string]string{"go.mod": "module example.org/m\n\ngo 1.18\n"})
	required := treetest.Dir(t, map[string]string{"go.mod": "module example.org/m\n\ngo 1.18\n\nrequire example.org/there v1.2.3\n"})
	summed := treetest.Dir(t, map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.18\n\nrequire example.org/there v1.2.3\n",
		"go.sum": "example.org/there v1.2.3 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\nexample.org/there v1.2.3/go.mod h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
	})
	newer := treetest.Dir(t, map[string]string{"go.mod": "module example.org/m\n\ngo 1.999\n"})
	for name, test := range map[string]struct{ dir, path, want string }{
		"of the library": {dir, "no/such/package", "Go package no/such/package"},
		"without module": {dir, "example.org/there/pkg", "Go package example.org/there/pkg in the module of the working directory"},
		"not required":   {module, "example.org/there/pkg", "Go package example.org/there/pkg in the module of the working directory"},
		"not summed":     {required, "example.org/there/pkg", "Go package example.org/there/pkg in the module of the working directory"},
		"not downloaded": {summed, "example.org/there/pkg", "Go module example.org/there"},
		"a newer go":     {newer, "strings", "Go 1.999"},
	} {
		e := run(t, test.dir, driver.Call{Language: driver.Go, Package: test.path, Function: "F()"})
		require.ErrorIs(t, e.err, driver.ErrNoAnswer, name)
		require.Equal(t, test.want, driver.Missing(driver.Go, e.code, e.stderr), "%s: %s", name, e.stderr)
	}
}
