package result

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const marker = "Traceback (most recent call last):"

// block is a traceback whose lines start with indent, with the given last line.
func block(indent, last string) string {
	return indent + marker + "\n" +
		indent + "  File \"job.py\", line 4, in <module>\n" +
		indent + "    main()\n" +
		indent + last
}

// group is an exception group as CPython 3.11 prints it, with a nested one.
const group = `  + Exception Group Traceback (most recent call last):
  |   File "job.py", line 9, in <module>
  |     raise eg
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Exception Group Traceback (most recent call last):
    |   File "job.py", line 3, in <module>
    |     raise inner
    | ExceptionGroup: one (1 sub-exception)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "job.py", line 2, in <module>
      |     raise OSError("a")
      | OSError: a
      +------------------------------------
    +---------------- 2 ----------------
    | KeyError: 'b'
    +------------------------------------`

func TestExtractTraceback(t *testing.T) {
	one, two := block("", "KeyError: 'a'"), block("", "OSError: b")
	cut := block("", "")
	for _, c := range []struct {
		name, stderr, want string // no want: there is none
	}{
		{"empty", "", ""},
		{"other text", "warning: slow\n", ""},
		{"whole stream", one, one},
		{"between other text", "starting\n" + one + "\nbye\n", one},
		{"last wins", one + "\n\n" + two + "\n", two},
		{"last wins without a blank line", one + "\n" + two + "\n", two},
		{"chained", one + "\n\nThe above exception was the direct cause of the following exception:\n\n" + two + "\n", two},
		{"first line of a message only", one + "\nsecond line\n", one},
		{"no frames", marker + "\nMemoryError\n", marker + "\nMemoryError"},
		{"exception line without a message", block("", "KeyError: ") + "\n", block("", "KeyError: ")},
		{"control sequences", block("", "\x1b[1;35mKeyError\x1b[0m") + "\n", block("", "\x1b[1;35mKeyError\x1b[0m")},
		{"tabs", marker + "\n\tFile \"x\"\n\t\tf()\nOSError\n", marker + "\n\tFile \"x\"\n\t\tf()\nOSError"},
		{"blank frame line", marker + "\n  File \"x\"\n    \nOSError\n", marker + "\n  File \"x\"\n    \nOSError"},

		{"marker only", marker, ""},
		{"marker line only", marker + "\n", ""},
		{"no exception line", cut, ""},
		{"empty line in it", cut + "\nKeyError\n", ""},
		{"form feed is no indent", marker + "\n\f  File \"x\"\nOSError\n", ""},
		{"no-break space is no indent", marker + "\n\u00a0 File \"x\"\nOSError\n", ""},
		{"an incomplete one does not hide a complete one", one + "\n\n" + cut, one},
		{"an incomplete one ends at the next marker", cut + two + "\n", two},
		{"two incomplete ones", cut + cut, ""},
		{"marker inside of a line", "see '" + marker + "' above\nOSError\n", ""},
		{"space after the marker", marker + " \n  File \"x\"\nOSError\n", ""},
		{"a frame line that ends with the marker", marker + "\n  File \"x\"\n    print(\"" + marker + "\nOSError: x\n",
			marker + "\n  File \"x\"\n    print(\"" + marker + "\nOSError: x"},

		{"CR LF", strings.ReplaceAll(one+"\n", "\n", "\r\n"), one},
		{"CR LF empty line", marker + "\r\n  File \"x\"\r\n\r\nOSError\r\n", ""},
		{"CR at the end", one + "\r", one},

		{"indented", block("    ", "OSError: b") + "\nworker 3 restarted\n", strings.TrimSpace(block("    ", "OSError: b"))},
		{"indented with tabs", block("\t", "OSError: b") + "\n", strings.TrimSpace(block("\t", "OSError: b"))},
		{"indented, ends too early", strings.TrimSuffix(block("    ", ""), "    ") + "restarted\n", ""},

		{"prefix on each line", "ERR| " + strings.ReplaceAll(one, "\n", "\nERR| "), ""},
		{"prefix on the first line", "worker 3: " + one + "\n", one},
		{"prefix without a frame", "worker 3: " + marker + "\nOSError: b\n", ""},
		{"progress bar before it", "\r 10%|#   |\r 20%|##  |" + one + "\n", one},
		{"indented progress bar before it", " 20%|##  | 2/9" + one + "\n", one},
		{"prefix after an indent", "  [w3] " + block("  ", "OSError: b")[2:] + "\nrestarted\n", block("  ", "OSError: b")[2:]},
		{"prefix after an indent, unusual frames", "  [w3] " + marker + "\n    in f\n  OSError\nrestarted\n", marker + "\n    in f\n  OSError"},
		{"exception line with a marker", block("", "RuntimeError: "+marker) + "\nend\n", block("", "RuntimeError: "+marker)},
		{"exception line that starts another", block("", "RuntimeError: ") + two + "\n", two},

		{"group", group, group},
		{"group between other text", "a\n" + group + "\nb\n", group},
		{"group, CR LF", strings.ReplaceAll(group, "\n", "\r\n") + "\r\n", group},
		{"group after a traceback", one + "\n\n" + group + "\n", group},
		{"group after an incomplete traceback", strings.TrimSuffix(cut, "\n") + "\n" + group + "\n", group},
		{"traceback after a group", group + "\n\n" + one + "\n", one},
		{"traceback right after a group", group + "\n" + one + "\n", one},
		{"group after a group", group + "\n" + strings.Replace(group, "two", "new", 1), strings.Replace(group, "two", "new", 1)},
		{"group that is cut", one + "\n\n" + group[:len(group)-50], one},
		{"group that is cut inside of its closing line", group[:len(group)-5], group[:len(group)-5]},
		{"group without its margin", "Exception Group " + one + "\n", ""},
		{"group header inside of a line", "x " + group + "\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := ExtractTraceback(c.stderr)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want != "", ok)
		})
	}
}

func TestSeenMarker(t *testing.T) {
	for _, c := range []struct {
		stderr string
		want   bool
	}{
		{"", false},
		{marker, true},
		{"see '" + marker + "' above", true},
		{"TracebacTraceback (mTraceback (most recent call last):", true},
		{"Traceback (most recent call last)", false},
		{"Traceback  (most recent call last):", false},
		{"Traceback (most recent call first):", false},
		{"Traceback (most recent\n call last):", false},
	} {
		for seed := range uint64(20) {
			var s TracebackScanner
			writeSplit(t, &s, []byte(c.stderr), seed)
			require.Equal(t, c.want, s.SeenMarker(), c.stderr)
		}
	}
}

// A reader may ask while the program still prints.
func TestTracebackScannerAsksDoNotDisturb(t *testing.T) {
	var s TracebackScanner
	in := "a\n" + block("", "OSError: b") + "\n\n" + group + "\n\n" + block("", "KeyError: c")
	for _, b := range []byte(in) {
		_, _ = s.Write([]byte{b})
		_, _ = s.Traceback()
	}
	got, ok := s.Traceback()
	require.True(t, ok)
	require.Equal(t, block("", "KeyError: c"), got)
	again, _ := s.Traceback()
	require.Equal(t, got, again)
	_, _ = s.Write([]byte("d\n"))
	got, _ = s.Traceback()
	require.Equal(t, block("", "KeyError: cd"), got, "the exception line went on")
}

var droppedLine = regexp.MustCompile(`\n\[\.\.\. (\d+) bytes dropped \.\.\.\]\n`)

// requireCut checks that got is whole with its middle dropped, and that the
// number of dropped bytes is right.
func requireCut(t *testing.T, whole, got string) {
	t.Helper()
	at := droppedLine.FindStringSubmatchIndex(got)
	require.NotNil(t, at, "no line about dropped bytes")
	head, tail := got[:at[0]], got[at[1]:]
	require.LessOrEqual(t, len(head)+len(tail), maxTraceback)
	require.GreaterOrEqual(t, len(head)+len(tail), maxTraceback-2*utf8.UTFMax)
	require.True(t, strings.HasPrefix(whole, head))
	require.True(t, strings.HasSuffix(whole, tail))
	require.Equal(t, fmt.Sprint(len(whole)-len(head)-len(tail)), got[at[2]:at[3]])
}

func TestTracebackBound(t *testing.T) {
	frames := strings.Repeat("  File \"x\", line 1, in f\n    f(\"é\")\n", 20_000)
	long := strings.Repeat("€ ", 200_000)
	for name, whole := range map[string]string{
		"many frames":         marker + "\n" + frames + "RecursionError: deep",
		"long exception line": marker + "\n  File \"x\"\nOSError: " + long + "end",
		"long frame line":     marker + "\n  File \"" + long + "\"\nOSError: end",
		"long lines":          marker + "\n  " + long + "\n  " + long + "\nOSError: " + long,
		"long group":          "  + Exception Group " + marker + "\n  | " + long + "\n  +------",
	} {
		t.Run(name, func(t *testing.T) {
			for _, end := range []string{"", "\n", "\r\nbye\n"} {
				got, ok := ExtractTraceback("start\n" + whole + end)
				require.True(t, ok)
				requireCut(t, whole, got)

				var split TracebackScanner
				writeSplit(t, &split, []byte("start\n"+whole+end), 3)
				again, _ := split.Traceback()
				require.Equal(t, got, again)
			}
		})
	}
}

// Around the bounds of head and line, where a line takes other ways through the
// scanner, nothing may be lost or counted twice.
func TestTracebackLineAtTheBound(t *testing.T) {
	for _, size := range []int{maxTraceback/2 - 1, maxTraceback / 2, maxTraceback/2 + 1, maxTraceback - 1, maxTraceback, maxTraceback + 1} {
		last := "E" + strings.Repeat("x", size-1)
		whole := marker + "\n" + last
		for _, piece := range []int{len(whole) + 9, 1000} {
			var s TracebackScanner
			for in := []byte(whole + "\nbye\n"); len(in) > 0; in = in[min(piece, len(in)):] {
				_, _ = s.Write(in[:min(piece, len(in))])
			}
			got, ok := s.Traceback()
			require.True(t, ok)
			if len(whole) <= maxTraceback {
				require.Equal(t, whole, got)
			} else {
				requireCut(t, whole, got)
			}
		}
	}
}

// A marker at the end of an endless line starts a block if its depth is known.
func TestTracebackAfterEndlessLine(t *testing.T) {
	rest := strings.TrimPrefix(block("", "OSError"), marker)
	got, ok := ExtractTraceback(strings.Repeat("#", 3*maxTraceback) + marker + rest)
	require.True(t, ok)
	require.Equal(t, marker+rest, got)
	_, ok = ExtractTraceback(strings.Repeat(" ", 3*maxTraceback) + marker + rest)
	require.False(t, ok)
}

func TestTracebackIsValidText(t *testing.T) {
	got, ok := ExtractTraceback(block("", "OSError: \xe2\x82\xff"))
	require.True(t, ok)
	require.Equal(t, block("", "OSError: \ufffd\ufffd"), got)
}

// pathologicalTracebacks are inputs that make a backtracking or rescanning
// parser slow. They are large instead of timed.
func pathologicalTracebacks() map[string]string {
	const size = 4 << 20
	return map[string]string{
		"markers":             strings.Repeat(marker+"\n", size/35),
		"markers on one line": strings.Repeat(marker, size/34),
		"marker halves":       strings.Repeat("Traceback (most recent", size/22),
		"frames without end":  marker + "\n" + strings.Repeat("  File \"a.py\"\n    g()\n", size/22),
		"tracebacks":          strings.Repeat(block("", "OSError\n"), size/90),
		"groups without end":  strings.Repeat("  + Exception Group "+marker+"\n  | x\n", size/61),
		"group lines":         "  + Exception Group " + marker + "\n" + strings.Repeat("  | x\n", size/6),
		"newlines":            strings.Repeat("\n", size),
		"no newline":          strings.Repeat("x", size),
		"spaces":              marker + "\n" + strings.Repeat(" ", size),
		"dashes":              "  + Exception Group " + marker + "\n  +" + strings.Repeat("-", size),
		"deep markers":        strings.Repeat(strings.Repeat(" ", 10_000)+marker+"\n", size/10_035),
	}
}

func TestTracebackScannerPathological(t *testing.T) {
	want := block("", "KeyError: 'x'")
	for name, in := range pathologicalTracebacks() {
		t.Run(name, func(t *testing.T) {
			var s TracebackScanner
			feed(&s, in+"\n\n"+want+"\nbye")
			got, ok := s.Traceback()
			require.True(t, ok)
			require.Equal(t, want, got)
			kept := cap(s.line.buf) + cap(s.block.buf) + cap(s.last.buf) + cap(s.indent)
			require.LessOrEqual(t, kept, 4*maxTraceback, "memory must not grow with the stream")
		})
	}
}

func FuzzTraceback(f *testing.F) {
	f.Add([]byte(block("", "OSError: x")+"\n"), uint64(1))
	f.Add([]byte(block("  ", "OSError: x")+"\r\n"+group), uint64(2))
	f.Add([]byte("a M\n  F\nE\n+ G\n| x\n+--\n"), uint64(3))
	f.Add([]byte("\t+ G\n |x\r\n  +-"), uint64(4))
	// Letters stand for texts that are too rare for the fuzzer to find.
	texts := strings.NewReplacer("M", marker, "G", "Exception Group "+marker, "F", "File \"x\"")
	start := regexp.MustCompile(`\A(Traceback|[ \t]*\+ Exception Group Traceback) \(most recent call last\):\n`)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		in := texts.Replace(string(data))
		var split TracebackScanner
		writeSplit(t, &split, []byte(in), seed)
		got, ok := ExtractTraceback(in)
		again, okAgain := split.Traceback()
		require.Equal(t, got, again)
		require.Equal(t, ok, okAgain)
		require.Equal(t, strings.Contains(in, marker), split.SeenMarker())
		if !ok {
			require.Empty(t, got)
			return
		}
		require.True(t, split.SeenMarker())
		require.Regexp(t, start, got)
		require.True(t, utf8.ValidString(got))
		require.False(t, strings.HasSuffix(got, "\n"))
		const line = len("\n[... 9223372036854775807 bytes dropped ...]\n")
		require.LessOrEqual(t, len(got), len("\ufffd")*maxTraceback+line)
		if utf8.ValidString(in) {
			require.LessOrEqual(t, len(got), maxTraceback+line)
			require.Contains(t, strings.ReplaceAll(in, "\r\n", "\n"), strings.TrimSuffix(got, "\r"))
		}
	})
}

func BenchmarkTracebackScanner(b *testing.B) {
	in := []byte(strings.Repeat("2024-01-01 00:00:00 INFO step 12 loss=0.5\n", 1<<20/42) + block("", "OSError\n"))
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		var s TracebackScanner
		_, _ = s.Write(in)
		if _, ok := s.Traceback(); !ok {
			b.Fatal("no traceback")
		}
	}
}

func BenchmarkTracebackScannerPathological(b *testing.B) {
	for name, in := range pathologicalTracebacks() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				ExtractTraceback(in)
			}
		})
	}
}
