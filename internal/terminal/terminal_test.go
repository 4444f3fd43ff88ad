package terminal

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain text":             {"héllo\tworld\n", "héllo\tworld\n"},
		"empty":                  {"", ""},
		"emoji with joiner":      {"👩\u200d💻", "👩\u200d💻"},
		"clear screen":           {"\x1b[2J", "^[[2J"},
		"window title":           {"\x1b]0;owned\a", "^[]0;owned^G"},
		"clipboard":              {"\x1b]52;c;aGk=\x1b\\", "^[]52;c;aGk=^[\\"},
		"nul and delete":         {"\x00\x7f", "^@^?"},
		"backspace hides":        {"bad\b\b\bgood", "bad^H^H^Hgood"},
		"form feed":              {"a\x0cb", "a^Lb"},
		"CSI as one character":   {"\u009b2J", `\u009b2J`},
		"CSI as one byte":        {"\x9b2J", `\u009b2J`},
		"next line":              {"a\u0085b", `a\u0085b`},
		"line separators":        {"a\u2028b\u2029c", `a\u2028b\u2029c`},
		"right to left":          {"\u202etxt.exe", `\u202etxt.exe`},
		"isolates":               {"\u2066a\u2069", `\u2066a\u2069`},
		"marks":                  {"\u200e\u200f\u061c", `\u200e\u200f\u061c`},
		"byte order mark":        {"\ufeffa", `\ufeffa`},
		"invisible tag":          {"\U000e0041", `\U000e0041`},
		"progress bar":           {"10%\r20%\r\n", "10%\n20%\n"},
		"line end of Windows":    {"a\r\nb", "a\nb"},
		"carriage return ends":   {"a\r", "a\n"},
		"carriage returns":       {"a\r\rb", "a\n\nb"},
		"invalid byte":           {"a\xffb", "a\ufffdb"},
		"cut off":                {"a\xe2\x82", "a\ufffd\\u0082"},
		"the replacement itself": {"\ufffd", "\ufffd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, Text(test.in)) })
	}
}

func TestWriterReportsErrors(t *testing.T) {
	want := errors.New("gone")
	w := NewWriter(failing{want})
	_, err := w.Write([]byte("a"))
	require.ErrorIs(t, err, want)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\x1b[2Jb\r\n\xe2\x82\xac\x9b\xff"), 3, 5)
	f.Add([]byte("\r\xc2\r\x85"), 1, 2)
	f.Fuzz(func(t *testing.T, text []byte, first, second int) {
		whole := Text(string(text))
		for _, r := range whole {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029) {
				t.Fatalf("%q became %q, which holds %U", text, whole, r)
			}
		}
		if !utf8.ValidString(whole) {
			t.Fatalf("%q became invalid UTF-8 %q", text, whole)
		}
		a := cut(first, len(text))
		b := max(a, cut(second, len(text)))
		var pieces strings.Builder
		w := NewWriter(&pieces)
		for _, piece := range [][]byte{text[:a], text[a:b], text[b:]} {
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if pieces.String() != whole {
			t.Fatalf("cut at %d and %d: %q, whole: %q", a, b, pieces.String(), whole)
		}
	})
}

func cut(n, length int) int {
	if n < 0 {
		n = -(n + 1)
	}
	return n % (length + 1)
}
