package evaluate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

func TestValidateScript(t *testing.T) {
	ok := []Violation(nil)
	at := func(line int, rule string) []Violation { return []Violation{{line, rule}} }
	for name, test := range map[string]struct {
		content string
		want    []Violation
	}{
		"a program":             {"import sys\nprint(sys.argv)\n", ok},
		"nothing":               {"", at(0, "is empty")},
		"white space":           {" \t\r\n\f\v", at(0, "is empty")},
		"white space of Python": {"\u00a0\u2003\u3000\x1c\x85"[:len("\u00a0\u2003\u3000\x1c")], at(0, "is empty")},
		"a byte order mark":     {"\ufeff", ok},
		"exit":                  {"x\nexit()", at(2, "calls exit(")},
		"exit with a code":      {"exit(3)", at(1, "calls exit(")},
		"exit, spaced":          {"exit \t\n (0)", at(1, "calls exit(")},
		"exit, spaced widely":   {"exit\u2003(0)", at(1, "calls exit(")},
		"sys.exit":              {"import sys\n\nsys.exit(1)", at(3, "calls sys.exit(")},
		"sys . exit":            {"sys . exit(1)", at(1, "calls exit(")},
		"os._exit":              {"os._exit(1)", at(1, "calls os._exit(")},
		"quit":                  {"quit ()", at(1, "calls quit(")},
		"a method":              {"driver.quit()", at(1, "calls quit(")},
		"in a comment":          {"# exit()", at(1, "calls exit(")},
		"in a string":           {"s = 'never exit()'", at(1, "calls exit(")},
		"two":                   {"exit()\nx\nquit()", []Violation{{1, "calls exit("}, {3, "calls quit("}}},
		"another name":          {"on_exit(); atexit(); x2exit(); exit_code = 1; EXIT()", ok},
		"a name in French":      {"éexit()", ok},
		"no call":               {"handler = sys.exit\nraise SystemExit(1)", ok},
		"posix":                 {"posix._exit(1)", ok},
		"not UTF-8":             {"x = 1\ny = '\xff'\n", at(2, "is not UTF-8")},
		"replacement character": {"x = '\ufffd'", ok},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, ValidateScript(test.content))
			err := checkScript(test.content)
			require.Equal(t, test.want == nil, err == nil)
		})
	}
	require.Len(t, ValidateScript(strings.Repeat("exit()\n", 1000)), maxViolations)
}

func TestWriteScript(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"print('é')\n", "x = 1\r\ny = 2", "\ufeffx = 1", "longer\x00 than before\n", "a"} {
		path, err := WriteScript(mlestar.NewSolution(content, mlestar.PhaseInit), dir, "")
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "solution.py"), path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(text))
	}
	path, err := WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), dir, "other.py")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "other.py"), path)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "no temporary file stays")

	t.Chdir(dir)
	path, err = WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), ".", "")
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(path))
}

func TestWriteScriptReplacesALinkAndNotItsTarget(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside, "kept")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "solution.py")))
	_, err := WriteScript(mlestar.NewSolution("new", mlestar.PhaseInit), dir, "")
	require.NoError(t, err)
	text, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "kept", string(text))
}

func TestWriteScriptRefuses(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "solution.py"), "before")
	_, err := WriteScript(mlestar.NewSolution("import sys\nsys.exit()\nquit()", mlestar.PhaseInit), dir, "")
	var refused *ScriptError
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, err, "script refused: line 2: calls sys.exit(; line 3: calls quit(")
	require.NotEmpty(t, refused.Hint())
	text, err := os.ReadFile(filepath.Join(dir, "solution.py"))
	require.NoError(t, err)
	require.Equal(t, "before", string(text), "nothing is written")

	for _, name := range []string{"../x.py", "a/b.py", "/x.py", "..", ".", `a\b.py`} {
		_, err := WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), dir, name)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field, name)
	}
	_, err = WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), filepath.Join(dir, "missing"), "")
	var path *sandbox.PathError
	require.ErrorAs(t, err, &path)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.py"), 0o755))
	_, err = WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), dir, "folder.py")
	require.ErrorContains(t, err, "is a directory")
}

func TestDetectErrorMasking(t *testing.T) {
	bare := func(line int) Masking { return Masking{line, MaskingBare, ""} }
	broad := func(line int, name string) Masking { return Masking{line, MaskingBroadPass, name} }
	for name, test := range map[string]struct {
		content string
		want    []Masking
	}{
		"nothing":           {"", nil},
		"bare":              {"try:\n  f()\nexcept:\n  log()\n", []Masking{bare(3)}},
		"bare, spaced":      {"try: f()\nexcept  :  pass\n", []Masking{bare(2)}},
		"bare, continued":   {"try: f()\nexcept\\\n:\n  pass\n", []Masking{bare(2)}},
		"pass":              {"try:\n  f()\nexcept Exception:\n  pass\n", []Masking{broad(3, "Exception")}},
		"pass at the end":   {"try:\n  f()\nexcept BaseException:\n  pass", []Masking{broad(3, "BaseException")}},
		"on one line":       {"try: f()\nexcept Exception: pass\n", []Masking{broad(2, "Exception")}},
		"twice pass":        {"try: f()\nexcept Exception: pass; pass;\n", []Masking{broad(2, "Exception")}},
		"with a name":       {"try: f()\nexcept Exception as e:\n  pass\n", []Masking{broad(2, "Exception")}},
		"of a group":        {"try: f()\nexcept* Exception:\n  pass\n", []Masking{broad(2, "Exception")}},
		"in parentheses":    {"try: f()\nexcept (Exception):\n  pass\n", []Masking{broad(2, "Exception")}},
		"over lines":        {"try: f()\nexcept (\n  Exception\n):\n  pass\n", []Masking{broad(2, "Exception")}},
		"comments":          {"try: f()\nexcept Exception: # well\n\n  # ignore\n  pass  # fine\n", []Masking{broad(2, "Exception")}},
		"CR LF":             {"try:\r\n  f()\r\nexcept:\r\n  pass\r\n", []Masking{bare(3)}},
		"CR":                {"try:\r  f()\rexcept:\r  pass\r", []Masking{bare(3)}},
		"tabs":              {"if x:\n\ttry: f()\n\texcept Exception:\n\t\tpass\n\tg()\n", []Masking{broad(3, "Exception")}},
		"several":           {"try: f()\nexcept: pass\ntry: g()\nexcept Exception: pass\n", []Masking{bare(2), broad(4, "Exception")}},
		"handled":           {"try: f()\nexcept Exception:\n  pass\n  raise\n", nil},
		"handled after":     {"try: f()\nexcept Exception: log(); pass\n", nil},
		"narrow":            {"try: f()\nexcept ValueError:\n  pass\n", nil},
		"a similar name":    {"try: f()\nexcept ExceptionGroup:\n  pass\nexcept MyException: pass\n", nil},
		"a tuple":           {"try: f()\nexcept (ValueError, Exception):\n  pass\n", nil},
		"an empty tuple":    {"try: f()\nexcept ():\n  pass\n", nil},
		"continue":          {"for i in x:\n  try: f()\n  except Exception:\n    continue\n", nil},
		"in a comment":      {"# except:\n", nil},
		"in a string":       {"s = '''\nexcept:\n'''\nt = \"\"\"\nexcept Exception: pass\n\"\"\"\n", nil},
		"after a string":    {"s = 'it''s'; t = \"#\"\ntry: f()\nexcept: pass\n", []Masking{bare(3)}},
		"quote in a string": {"s = '\\'' \ntry: f()\nexcept: pass\n", []Masking{bare(3)}},
		"string over lines": {"s = 'a\\\nb'\ntry: f()\nexcept: pass\n", []Masking{bare(4)}},
		"open string":       {"s = 'a\ntry: f()\nexcept: pass\n", []Masking{bare(3)}},
		"no Python":         {"try:\nexcept:\n\x00\xff((", []Masking{bare(2)}},
		"a variable":        {"exceptional: int = 1\nexcepts = 2\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, DetectErrorMasking(test.content))
		})
	}
}

func TestMaskingTexts(t *testing.T) {
	require.Equal(t, "Line 3: bare 'except:' clause masks all errors", Masking{3, MaskingBare, ""}.String())
	require.Equal(t, "Line 4: 'except Exception:' with only 'pass' masks errors", Masking{4, MaskingBroadPass, "Exception"}.String())
}

func FuzzDetectErrorMasking(f *testing.F) {
	f.Add("try:\n  f()\nexcept Exception:\n  pass\n")
	f.Add("s = '''\\\nexcept:\r\n(")
	f.Add("except (Exception) as e: pass; pass\x00")
	f.Fuzz(func(t *testing.T, content string) {
		lines := 1 + strings.Count(content, "\n") + strings.Count(content, "\r")
		for _, m := range DetectErrorMasking(content) {
			if m.Line < 1 || m.Line > lines {
				t.Fatalf("line %d of %d", m.Line, lines)
			}
		}
		ValidateScript(content)
	})
}

// Ten times the text must not take a hundred times as long; the count of allocations
// is what a test can hold on to.
func BenchmarkDetectErrorMasking(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		for name, unit := range map[string]string{"blank lines": "\n", "clauses": "except Exception:\n", "open": "except (", "passes": " pass\n"} {
			text := "except Exception:\n" + strings.Repeat(unit, n)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					DetectErrorMasking(text)
				}
			})
		}
	}
}
