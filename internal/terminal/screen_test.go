package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func wide(n int) func() int { return func() int { return n } }

// write writes pieces to one stream of a new screen and ends it.
func write(t testing.TB, width int, pieces ...[]byte) string {
	t.Helper()
	var out bytes.Buffer
	s := NewScreen(wide(width))
	w := s.Stream(&out)
	for _, p := range pieces {
		n, err := w.Write(p)
		require.NoError(t, err)
		require.Equal(t, len(p), n)
	}
	require.NoError(t, s.End())
	return out.String()
}

// lines are the lines that a terminal without an end of its rows shows.
func lines(text string) string {
	var l line
	var all []string
	for _, r := range text {
		switch r {
		case '\r':
			l.col = 0
		case '\n':
			all = append(all, strings.TrimRight(strings.Join(l.cells, ""), " "))
			l.clear()
		default:
			l.put([]byte(string(r)))
		}
	}
	return strings.Join(append(all, strings.TrimRight(strings.Join(l.cells, ""), " ")), "\n")
}

func TestScreen(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain text":                {"a\tb\n", "a\tb\n"},
		"an unfinished line":        {"a", "a\n"},
		"line end of Windows":       {"a\r\nb", "a\nb\n"},
		"the last state":            {"10%\r20%\r\n", "20%\n"},
		"a bar that ends its state": {"10%\r20%\r", "20%\n"},
		"a shorter state":           {"hello\rab\n", "abllo\n"},
		"removed":                   {"10%\r   \r", ""},
		"a control":                 {"a\r\x1b[2Kb\n", "^[[2Kb\n"},
		"wide characters":           {"世界\rab\n", "ab界\n"},
		"half a wide character":     {"世界\ra\n", "a 界\n"},
		"wider than the terminal":   {strings.Repeat("x", 20) + "\ry\n", strings.Repeat("x", 20) + "\ny\n"},
		"a wide last state":         {"1\r" + strings.Repeat("x", 30) + "\n", strings.Repeat("x", 30) + "\n"},
		"longer than what is kept":  {"1\r" + strings.Repeat("x ", maxLine) + "\n", strings.TrimRight(strings.Repeat("x ", maxLine), " ") + "\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, lines(test.want), lines(write(t, 20, []byte(test.in))))
		})
	}
}

// A bar of two thousand states takes one line, and few drawings.
func TestScreenDrawsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := NewScreen(wide(12))
		w := s.Stream(&out)
		for i := range 2000 {
			fmt.Fprintf(w, "\r%4d/2000 世界", i+1)
			time.Sleep(time.Millisecond) // of the test's clock
		}
		synctest.Wait() // the drawing is done
		require.LessOrEqual(t, strings.Count(out.String(), "/2000"), 21)
		require.NotContains(t, out.String(), "世", "cut before a wide character")
		time.Sleep(redraw)
		synctest.Wait()
		require.True(t, strings.HasSuffix(out.String(), "\r2000/2000"), "the last drawing does not wait for more output")
		require.NoError(t, s.End())
		require.Equal(t, "2000/2000 世界\n", lines(out.String()))
	})
}

// Streams share a terminal with each other and with messages.
func TestScreenShared(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(wide(80))
	a, b, own := s.Stream(&out), s.Stream(&out), s.Messages(&out)
	fmt.Fprint(a, "10%\r20%")
	fmt.Fprint(b, "warning\n")
	fmt.Fprint(a, "\r30%\r")
	fmt.Fprint(own, "sandbox: stopping\n")
	fmt.Fprint(a, "40%\r   \r") // as tqdm before it prints
	fmt.Fprint(b, "text\n")
	fmt.Fprint(a, "\r50%")
	require.NoError(t, s.End())
	require.Equal(t, "20%\nwarning\n30%\nsandbox: stopping\ntext\n50%\n", lines(out.String()))

	out.Reset()
	_, err := s.Raw(&out).Write([]byte("\x1b[2Ja\r"))
	require.NoError(t, err)
	require.NoError(t, s.End())
	require.Equal(t, "\x1b[2Ja\r\n", out.String())
}

func TestScreenReportsErrors(t *testing.T) {
	want := errors.New("gone")
	_, err := NewScreen(wide(80)).Stream(failing{want}).Write([]byte("a"))
	require.ErrorIs(t, err, want)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\x1b[2Jb\r\n\xe2\x82\xac\x9b\xff"), 3, 5, 80)
	f.Add([]byte("\r\xc2\r\x85"), 1, 2, 1)
	f.Add([]byte("世界\ra\xcc\x81\tb\r世\r\n"), 4, 8, 3)
	f.Add([]byte("10%\r 20%\r\n30%\r"), 4, 9, 0)
	f.Fuzz(func(t *testing.T, text []byte, first, second, width int) {
		a := cut(first, len(text))
		b := max(a, cut(second, len(text)))
		pieces := [][]byte{text[:a], text[a:b], text[b:]}
		harmless(t, Text(string(text)), "")
		harmless(t, write(t, width%200, pieces...), "\r")
		if len(text) >= maxLine/2 {
			return
		}
		// What the characters are does not matter here, but where lines begin does.
		plain := strings.Map(func(r rune) rune {
			if r == '\r' || r == '\n' || r == '\t' || unicode.IsLetter(r) {
				return r
			}
			return 'x'
		}, strings.ToValidUTF8(string(text), "x"))
		if got, want := lines(write(t, maxLine, []byte(plain))), lines(plain); strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") {
			t.Fatalf("%q is shown as %q, want %q", plain, got, want)
		}
	})
}

func harmless(t *testing.T, shown, allowed string) {
	t.Helper()
	if !utf8.ValidString(shown) {
		t.Fatalf("invalid UTF-8 %q", shown)
	}
	for _, r := range shown {
		if r != '\n' && r != '\t' && !strings.ContainsRune(allowed, r) && (unicode.IsControl(r) || unseen(r)) {
			t.Fatalf("%q holds %U", shown, r)
		}
	}
}

func cut(n, length int) int {
	if n < 0 {
		n = -(n + 1)
	}
	return n % (length + 1)
}
