package driver_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract/adapter/driver"
	"github.com/evalbox/evalbox/internal/strict"
)

func TestCheckAcceptsNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"go", "node", "python", "rust"}, driver.Languages())
	for _, test := range []struct {
		language, pkg, importPath string
		functions                 []string
	}{
		{"python", "scikit-learn", "sklearn.metrics", []string{"f1_score", "Class.method", "f()", "f(a)", "f(a, _b)", "f( a,b )"}},
		{"python", "json", "", []string{"dumps"}},
		{"node", "lodash", "", []string{"map", "default", "$", "a.b(c)"}},
		{"node", "@scope/name", "@scope/name/sub/x.js", nil},
		{"node", "node:fs", "node:fs/promises", nil},
		{"node", "./lib/index.mjs", "/work/x.mjs", nil},
		{"go", "gonum.org/v1/gonum", "gonum.org/v1/gonum/stat", []string{"Mean(x, weights)", "Type.Method", "F"}},
		{"go", "encoding/json", "", nil},
		{"rust", "std", "std::cmp", []string{"max(a, b)", "Ordering::is_lt(&a)", "f()", "f(a.into(), &b)"}},
		{"rust", "serde-json", "", nil},
		{"rust", "./my-lib", "", nil},
		{"rust", "/work/lib/", "", nil},
		{"rust", "./", "crate_name", nil},
	} {
		functions := map[string]string{}
		for _, f := range test.functions {
			functions[f] = f
		}
		require.Empty(t, driver.Check(test.language, test.pkg, test.importPath, functions), test.pkg)
	}
}

// TestCheckRefusesNames: nothing but an import and a call can be written.
func TestCheckRefusesNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 201)
	common := []string{"", " ", "a b", "a;b", "a\n", "\na", "a\"", "a'", "a\\", "a`", "a\x00", "é", "a)", "(a)", "a(", "a()()", "a(b", "a(b)c", "a(b,)", "a(,b)",
		"a(1)", "a(b c)", "a(b, b)", "a(\"b\")", "a(b\n)", "a(b=1)", "a.", ".a", "a..b", "a/*b*/", "a//b", "a#b", "1a", "-a", "a-b", long}
	own := map[string][]string{
		"python": {"a::b", "a(&b)", "a(b.into())", "a$"},
		"node":   {"a::b", "a(&b)", "a[0]"},
		"go":     {"a", "Join.x", "A::B", "A(&b)", "(*A).B"},
		"rust":   {"a", "a.b()", "a::(b)", "::a()", "a::()", "a(&&b)", "a(&b.into())", "a(b.clone())", "a::<u8>()", "a!()"},
	}
	good := map[string]string{"python": "json", "node": "path", "go": "strings", "rust": "std"}
	for _, language := range driver.Languages() {
		for _, name := range slices.Concat(common, own[language]) {
			problems := driver.Check(language, good[language], "", map[string]string{"op": name})
			require.Len(t, problems, 1, "%s: %q", language, name)
			require.Equal(t, "function_mapping.op", problems[0].Path)
			_, err := driver.New(driver.Call{Language: language, Package: good[language], Function: name})
			require.Error(t, err, "%s: %q", language, name)
		}
	}

	paths := []string{" ", "a b", "a;b", "a\n", "a\"", "a'", "a\\", "a`", "a\x00", "é", "../a", "a/../b", "a//b", "-a", "a(", "https://x", "data:x", "a,b", "{{a}}", "{a}", long}
	for language, more := range map[string][]string{
		"python": {"a/b", "./a", ".a", "a..b", "a-b"},
		"node":   {"@a", "@a/", "file:a", ".", "./", "./../a"},
		"go":     {"C", "unsafe", "main", "./a", "/a", "a:b"},
		"rust":   {"::a", "a::", "a.b", "a-b", "./a", "a::<b>", "a:b"},
	} {
		for _, path := range slices.Concat(paths, more) {
			problems := driver.Check(language, good[language], path, nil)
			require.Len(t, problems, 1, "%s: %q", language, path)
			require.Equal(t, "import_path", problems[0].Path)
		}
	}
	for language, more := range map[string][]string{
		"python": {"", "a/b", "./a", "a-"},
		"node":   {"", "@a"},
		"go":     {"", "C", "./a"},
		"rust":   {"", "a.b", "./..", "./../a", "/", ".", "1a", "a/b"},
	} {
		for _, pkg := range slices.Concat(paths, more) {
			problems := driver.Check(language, pkg, "", nil)
			require.Len(t, problems, 1, "%s: %q", language, pkg)
			require.Equal(t, "package", problems[0].Path)
		}
	}
}

func TestCheckReportsEveryProblem(t *testing.T) {
	t.Parallel()
	shown := func(problems []strict.Problem) []string {
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		return all
	}
	require.Equal(t, []string{
		`package: "../x" must be the name of a Python distribution, such as scikit-learn`,
		`import_path: "a-b" must be a Python module, such as os.path`,
		`function_mapping.one: "f(a, a)" has the parameter a twice`,
		`function_mapping."two words": "f;" must be a function such as dumps, Class.method or name(a, b)`,
		`function_mapping.x: "f(a b)" has the parameter "a b", which must be a Python name`,
	}, shown(driver.Check("python", "../x", "a-b", map[string]string{"x": "f(a b)", "one": "f(a, a)", "two words": "f;", "good": "f"})))
	require.Equal(t, []string{`language: "perl" must be one of go, node, python, rust`}, shown(driver.Check("perl", "", ";", nil)))
	require.Equal(t, []string{`import_path: must be given: package "scikit-learn" cannot be imported by its name`}, shown(driver.Check("python", "scikit-learn", "", nil)))
	require.Equal(t, []string{`function_mapping.op: "max" must have the names of its parameters: name(a, b), or name() without any`},
		shown(driver.Check("rust", "std", "", map[string]string{"op": "max"})))
	many := "f(" + strings.Repeat("a, ", 64) + "a)"
	require.Contains(t, shown(driver.Check("rust", "std", "", map[string]string{"op": many}))[0], "has 65 parameters; at most 64")

	_, err := driver.New(driver.Call{Language: "python", Package: "a b", Function: "f("})
	require.EqualError(t, err, "package: \"a b\" must be the name of a Python distribution, such as scikit-learn\n"+
		"function: \"f(\" must be a function such as dumps, Class.method or name(a, b)")
}

func TestNewRefusesParameters(t *testing.T) {
	t.Parallel()
	deep := any("x")
	for range 70 {
		deep = []any{deep}
	}
	for _, test := range []struct {
		language   string
		function   string
		parameters map[string]any
		want       string
	}{
		{"python", "f(a, b)", map[string]any{"b": nil, "c d": nil}, "parameter \"a\" of f is missing\nparameter \"c d\" is not one of f(a, b)"},
		{"python", "f()", map[string]any{"a": nil}, `parameter "a" is not one of f()`},
		{"python", "f", map[string]any{"a": 1}, "parameter a is of type int, which JSON does not have"},
		{"python", "f", map[string]any{"a": []any{map[string]any{"b": math.NaN()}}, "b": math.Inf(1)}, "parameter a[0].b must be a finite number\nparameter b must be a finite number"},
		{"python", "f", map[string]any{"a": json.Number("0x1")}, "parameter a must be a number as JSON has it"},
		{"python", "f", map[string]any{"a": json.Number("1, evil")}, "parameter a must be a number as JSON has it"},
		{"python", "f", map[string]any{"a": "\xff"}, "parameter a must be UTF-8"},
		{"python", "f", map[string]any{"a": map[string]any{"\xff": nil}}, `parameter a."\xff" has a name that is not UTF-8`},
		{"node", "f", map[string]any{"a": int64(1 << 53)}, "parameter a is a whole number that JavaScript rounds; put it in quotes to keep its digits"},
		{"node", "f", map[string]any{"a": json.Number("123456789012345678901")}, "parameter a is a whole number that JavaScript rounds; put it in quotes to keep its digits"},
		{"rust", "f(a)", map[string]any{"a": map[string]any{}}, "parameter a is a mapping, for which Rust does not have a literal"},
	} {
		_, err := driver.New(driver.Call{Language: test.language, Package: "std", Function: test.function, Parameters: test.parameters})
		require.EqualError(t, err, test.want)
	}
	_, err := driver.New(driver.Call{Language: "python", Package: "p", Function: "f", Parameters: map[string]any{"a": deep}})
	require.ErrorContains(t, err, "is nested too deep; at most 64 levels")
	_, err = driver.New(driver.Call{Language: "node", Package: "p", Function: "f", Parameters: map[string]any{"a": int64(1<<53 - 1), "b": json.Number("1e300")}})
	require.NoError(t, err)
}

func TestAt(t *testing.T) {
	t.Parallel()
	p := driver.Program{Command: []string{"go", "run", driver.Dir + "/main.go", driver.Dir + "x"}}
	require.Equal(t, []string{"go", "run", "/other/main.go", driver.Dir + "x"}, p.At("/other/").Command)
	require.Equal(t, driver.Dir+"/main.go", p.Command[2])
}

func TestNodeProgram(t *testing.T) {
	t.Parallel()
	parameters := map[string]any{"a": "</script>'\"\\\u2028", "b": []any{nil, true, 2.5}}
	for function, want := range map[string]string{
		"o.f":     `{"import_path":"@s/p","function":"o.f","args":[{"a":"</script>'\"\\\u2028","b":[null,true,2.5]}]}`,
		"f(b, a)": `{"import_path":"@s/p","function":"f","args":[[null,true,2.5],"</script>'\"\\\u2028"]}`,
	} {
		p, err := driver.New(driver.Call{Language: driver.Node, Package: "@s/p", Function: function, Parameters: parameters})
		require.NoError(t, err)
		require.Equal(t, []string{"node", "-e"}, p.Command[:2])
		require.Contains(t, p.Command[2], `const MARKER = "evalbox/answer/v1 ";`)
		require.JSONEq(t, want, p.Stdin)
		require.Empty(t, p.Files)
	}
	p, err := driver.New(driver.Call{Language: driver.Node, Package: "os", ImportPath: "node:os", Function: "hostname()"})
	require.NoError(t, err)
	require.JSONEq(t, `{"import_path":"node:os","function":"hostname","args":[]}`, p.Stdin)
}

func TestRustProgram(t *testing.T) {
	t.Parallel()
	program := func(pkg, importPath, function string, parameters map[string]any) driver.Program {
		p, err := driver.New(driver.Call{Language: driver.Rust, Package: pkg, ImportPath: importPath, Function: function, Parameters: parameters})
		require.NoError(t, err)
		require.Equal(t, []string{"cargo", "run", "--quiet", "--frozen", "--manifest-path", "/host/evalbox/driver/Cargo.toml"}, p.Command)
		require.Equal(t, map[string]string{"CARGO_HOME": "/tmp/evalbox/cargo", "CARGO_TARGET_DIR": "/tmp/evalbox/target", "CARGO_TERM_COLOR": "never"}, p.Env)
		require.NotContains(t, p.Files["Cargo.toml"], "dependencies", "the lock file has none")
		require.Contains(t, p.Files["Cargo.lock"], "version = 3\n")
		require.Empty(t, p.Stdin)
		for _, text := range p.Files {
			require.NotRegexp(t, `\{\{(extern|package)}}`, text)
		}
		return p
	}
	// A function of the compiler's crates is called by the project itself.
	p := program("std", "std::cmp", "max(a, b)", map[string]any{"b": int64(math.MinInt64), "a": json.Number("18446744073709551615")})
	require.Contains(t, p.Files["src/main.rs"], "\n    match ::std::cmp::max(18446744073709551615, (-9223372036854775808)) {\n")
	require.NotContains(t, p.Files["src/main.rs"], "extern crate")
	p = program("alloc", "", "f()", nil)
	require.Contains(t, p.Files["src/main.rs"], "\nextern crate alloc;\n")
	require.Contains(t, p.Files["src/main.rs"], " ::alloc::f() ")

	// The driver of another crate is the text of a launcher.
	p = program("./my-lib", "", "T::f(&a, b.into(), c.into(), d)", map[string]any{
		"a": []any{int64(1), 2.0, -0.5, 1e21, json.Number("-1e5"), true, nil, []any{}}, "b": "\"); evil(); //\\\n\x00\u202eé😀{{call}}", "c": nil, "d": -1.0,
	})
	require.Contains(t, p.Files["src/driver.rs"], ` ::my_lib::T::f(&vec![1, 2.0, (-0.5), 1e+21, (-1e5), true, None, vec![]], `+
		`"\"); evil(); //\\\u{a}\u{0}\u{202e}\u{e9}\u{1f600}{{call}}".into(), None, (-1.0)) `)
	require.Contains(t, p.Files["src/main.rs"], `const PACKAGE: &str = "./my-lib";`)
	require.Contains(t, p.Files["src/main.rs"], `const DRIVER: &str = include_str!("driver.rs");`)
	p = program("unicode-width", "", "width(a)", map[string]any{"a": "x"})
	require.Contains(t, p.Files["src/driver.rs"], ` ::unicode_width::width("x") `)
	require.Contains(t, p.Files["src/main.rs"], `const PACKAGE: &str = "unicode-width";`)
}

func TestGoProgram(t *testing.T) {
	t.Parallel()
	p, err := driver.New(driver.Call{Language: driver.Go, Package: "example.org/m", ImportPath: "example.org/m/p", Function: "T.F(ctx, b)", Parameters: map[string]any{"ctx": "`{{function}}", "b": nil}})
	require.NoError(t, err)
	require.Equal(t, []string{"go", "run", "/host/evalbox/driver/main.go"}, p.Command)
	require.Contains(t, p.Files["main.go"], "\tlibrary \"example.org/m/p\"\n")
	require.Contains(t, p.Files["main.go"], " = library.T.F\n")
	require.NotContains(t, p.Files["main.go"], "{{")
	require.JSONEq(t, "{\"parameters\":{\"b\":null,\"ctx\":\"`{{function}}\"},\"names\":[\"ctx\",\"b\"]}", p.Stdin)
	require.Equal(t, "off", p.Env["GOPROXY"])
	p, err = driver.New(driver.Call{Language: driver.Go, Package: "strings", Function: "F()"})
	require.NoError(t, err)
	require.JSONEq(t, `{"parameters":{},"names":[]}`, p.Stdin)
	p, err = driver.New(driver.Call{Language: driver.Go, Package: "strings", Function: "F"})
	require.NoError(t, err)
	require.JSONEq(t, `{"parameters":{},"names":null}`, p.Stdin)
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const m = "evalbox/answer/v1 "
	for stdout, want := range map[string]string{
		m + "{\"value\":1}\n":                           "1",
		m + "{\"value\":null}\n":                        "null",
		"noise\n" + m + "{\"value\":[1, {}]}\nafter":    "[1, {}]",
		m + "{\"value\":1}\n" + m + "{\"value\":2}\n\n": "2",
		m + "{\"value\":1}\nx" + m + "{\"value\":2}\n":  "1",
		m + "{\"value\":1,\"error\":null}\n":            "1",
	} {
		value, err := driver.Answer([]byte(stdout))
		require.NoError(t, err, stdout)
		require.Equal(t, want, string(value))
	}
	for _, stdout := range []string{"", "\n", "x", "x\n", " " + m + "{\"value\":1}\n", "evalbox/answer/v1", strings.Repeat("\n", 1000)} {
		_, err := driver.Answer([]byte(stdout))
		require.ErrorIs(t, err, driver.ErrNoAnswer, stdout)
	}
	for stdout, want := range map[string]string{
		m:                            "the answer of the program is cut off",
		m + "{\"value\":1}":          "the answer of the program is cut off",
		m + "\n":                     "the answer of the program is wrong: unexpected end of JSON input",
		m + "{}\n":                   "the answer of the program has neither a value nor an error",
		m + "null\n":                 "the answer of the program has neither a value nor an error",
		m + "{\"value\":NaN}\n":      "the answer of the program is wrong: invalid character 'N' looking for beginning of value",
		m + "{\"value\":\"\xff\"}\n": "the answer of the program is not UTF-8",
		m + "{\"value\":1} {}\n":     "the answer of the program is wrong: invalid character '{' after top-level value",
		m + "{\"value\":" + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}\n": "the answer of the program is wrong: invalid character '[' exceeded max depth",
	} {
		_, err := driver.Answer([]byte(stdout))
		require.EqualError(t, err, want)
	}
	_, err := driver.Answer([]byte(m + `{"error":{"type":"E","message":"a\n` + strings.Repeat("b", 300) + `","traceback":"t"}}` + "\n"))
	var failed *driver.FunctionError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "t", failed.Traceback)
	require.EqualError(t, err, "E: a "+strings.Repeat("b", 197)+"…")
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("x\nevalbox/answer/v1 {\"value\":1}\n"))
	f.Add([]byte("evalbox/answer/v1 {\"error\":{\"type\":\"E\"}}\nevalbox/answer/v1 "))
	f.Fuzz(func(t *testing.T, stdout []byte) {
		value, err := driver.Answer(stdout)
		var failed *driver.FunctionError
		switch {
		case err == nil:
			require.True(t, json.Valid(value))
		case errors.As(err, &failed):
			require.LessOrEqual(t, len(failed.Error()), 2000)
		}
	})
}

func TestMissing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		language string
		code     int
		stderr   string
		want     string
	}{
		{"python", 127, "", "python3"},
		{"node", 127, "", "node"},
		{"go", 127, "", "go"},
		{"rust", 127, "", "cargo"},
		{"perl", 127, "", ""},
		{"python", 0, "ModuleNotFoundError: No module named 'x'", ""},
		{"python", 1, "Traceback\nModuleNotFoundError: No module named 'x.y'\n", "Python package x.y"},
		{"python", 1, "ImportError: cannot import name 'x'", ""},
		{"node", 1, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'absent' imported from /work/[eval]\n    at x", "Node.js package absent"},
		{"node", 1, "Error: Cannot find module 'absent'\nRequire stack:", "Node.js package absent"},
		{"node", 1, "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/work/absent.js' imported from /work/[eval]", "the file /work/absent.js"},
		{"go", 1, "main.go:1:1: undefined: x", ""},
		{"go", 1, "/host/evalbox/driver/main.go:20:2: package no/such is not in std (/usr/lib/go/src/no/such)", "Go package no/such"},
		{"go", 1, "/host/evalbox/driver/main.go:20:2: package no/such is not in GOROOT (/usr/lib/go/src/no/such)", "Go package no/such"},
		{"rust", 101, "error: linker `cc` not found\n  |", "the linker cc"},
		{"rust", 101, "error: could not execute process `rustc -vV` (never executed)\n", "rustc"},
		{"rust", 101, "error: no matching package named `my-lib` found\nlocation searched: registry", "Rust crate my-lib"},
		{"rust", 1, "evalbox: /work/./lib/Cargo.toml: No such file or directory (os error 2)\n", "the file /work/./lib/Cargo.toml"},
		{"rust", 101, "error[E0425]: cannot find function", ""},
		{"python", 1, strings.Repeat("x\n", 1<<20) + "ModuleNotFoundError: No module named 'x'\n", "Python package x"},
		{"python", 1, "ModuleNotFoundError: No module named '" + strings.Repeat("x", 1000) + "'", "Python package " + strings.Repeat("x", 199) + "…"},
	} {
		require.Equal(t, test.want, driver.Missing(test.language, test.code, test.stderr), "%s %d %.100s", test.language, test.code, test.stderr)
	}
}
