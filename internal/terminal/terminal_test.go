package terminal

import (
	"testing"

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
