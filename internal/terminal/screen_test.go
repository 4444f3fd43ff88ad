package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
)

// tty is a terminal without a right margin: rows of columns, which \r, \n and text change.
// Marks are not shown.
type tty struct {
	mu   sync.Mutex
	rows [][]string
	col  int
	raw  bytes.Buffer
}

func newTTY() *tty { return &tty{rows: [][]string{nil}} }

func (t *tty) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw.Write(p)
	for _, r := range string(p) {
		last := len(t.rows) - 1
		switch r {
		case '\r':
			t.col = 0
		case '\n':
			t.rows, t.col = append(t.rows, nil), 0
		case '\t':
			for t.col = t.col/8*8 + 8; len(t.rows[last]) < t.col; {
				t.rows[last] = append(t.rows[last], " ")
			}
		default:
			for range uniseg.StringWidth(string(r)) {
				if t.col == len(t.rows[last]) {
					t.rows[last] = append(t.rows[last], "")
				}
				t.rows[last][t.col] = string(r)
				t.col++
			}
		}
	}
	return len(p), nil
}

// shown are the rows without blanks at their ends.
func (t *tty) shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rows []string
	for _, row := range t.rows {
		text := ""
		for i := 0; i < len(row); i += max(uniseg.StringWidth(row[i]), 1) {
			text += row[i]
		}
		rows = append(rows, strings.TrimRight(text, " "))
	}
	return strings.TrimRight(strings.Join(rows, "\n"), "\n")
}

func columns(n int) func() int { return func() int { return n } }

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	n, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.Equal(t, len(text), n)
}

func TestScreen(t *testing.T) {
	tests := map[string]struct {
		width    int
		in, want string
	}{
		"no bar":                  {40, "a\nb\n", "a\nb"},
		"a bar":                   {40, "\r 0%\r50%\r100%\n", "100%"},
		"a bar without end":       {40, "\r 0%\r50%", "50%"},
		"ends with a return":      {40, "\r 0%\r50%\r", "50%"},
		"text behind stays":       {40, "abcdef\rxy\n", "xycdef"},
		"text before a bar":       {40, "begin\n1\r2\r3\nend\n", "begin\n3\nend"},
		"line ends of Windows":    {40, "a\r\nb\r\n", "a\nb"},
		"wide characters":         {40, "日本語\rab\n", "ab本語"},
		"half of a wide one":      {40, "日本語\ra\n", "a 本語"},
		"marks":                   {40, "\rcafe\u0301\rCAF\n", "CAFe"},
		"tab":                     {40, "\ra\tb\rX\n", "X       b"},
		"final state is whole":    {8, "\r12345\r123456789012\n", "123456789012"},
		"longer than the width":   {8, "1234567890\rab\n", "1234567890\nab"},
		"escape sequences":        {40, "\r10%\x1b[K\r20%\x1b[K\n", "10%^[[K\n20%^[[K"},
		"an escape in a later":    {40, "\r10%\r20%\r30\x1b[K\n", "20%\n30^[[K"},
		"an escape before a bar":  {40, "\x1b[1mbold\rnext\n", "^[[1mbold\nnext"},
		"one that nothing draws":  {0, "10%\r20%\n", "10%\n20%"},
		"empty states":            {40, "abc\r\r\r\n", "abc"},
		"blanks take a bar away":  {40, "\r100%\r    \rdone\n", "done"},
		"a mark without a letter": {40, "\rab\r\u0301x\n", "ab\nx"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for pieces := range 2 {
				out := newTTY()
				screen := NewScreen(columns(test.width))
				w := screen.Stream(out)
				if pieces == 0 {
					write(t, w, test.in)
				} else {
					for i := range len(test.in) {
						write(t, w, test.in[i:i+1])
					}
				}
				require.NoError(t, screen.End(out))
				require.Equal(t, test.want, out.shown(), "%q", out.raw.String())
			}
		})
	}
}

// A fast bar is drawn ten times a second, cut to the width; its last state comes by itself.
func TestScreenRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newTTY()
		screen := NewScreen(columns(10))
		w := screen.Stream(out)
		for i := range 2000 {
			write(t, w, fmt.Sprintf("\r%4d of 2000", i+1))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "2000 of 2", out.shown())
		drawn := strings.Count(out.raw.String(), "of")
		require.Greater(t, drawn, 15)
		require.Less(t, drawn, 25)
		require.NotContains(t, out.raw.String(), "\n")
		write(t, w, "\n")
		require.Equal(t, "2000 of 2000", out.shown())
	})
}

// Streams and messages share the terminal: nothing is written into the line of a bar.
func TestScreenShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newTTY()
		screen := NewScreen(columns(40))
		stdout, stderr, messages := screen.Stream(out), screen.Stream(out), screen.Messages(out)
		write(t, stderr, "\r 10%")
		require.Equal(t, "10%", strings.TrimSpace(out.shown()))
		write(t, stdout, "line\n")
		require.Equal(t, "line", out.shown())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "line\n 10%", out.shown())
		write(t, messages, "sandbox: a message\n")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "line\nsandbox: a message\n 10%", out.shown())
		write(t, stderr, "\r100%\n")
		write(t, stdout, "prompt> ")
		write(t, stderr, "\r  0%")
		require.Equal(t, "line\nsandbox: a message\n100%\nprompt>", out.shown())
		write(t, messages, "sandbox: another\n")
		write(t, stderr, "\r  1%")
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, screen.End(out))
		require.Equal(t, "line\nsandbox: a message\n100%\nprompt>\nsandbox: another\n  1%", out.shown())
		require.True(t, strings.HasSuffix(out.raw.String(), "\n"))
	})
}

func TestScreenRaw(t *testing.T) {
	out := newTTY()
	screen := NewScreen(columns(40))
	write(t, screen.Raw(out), "\x1b[1m 1%\r 2%")
	require.NoError(t, screen.End(out))
	require.Equal(t, "\x1b[1m 1%\r 2%\n", out.raw.String())
}

func TestScreenReportsErrors(t *testing.T) {
	want := errors.New("gone")
	w := NewScreen(columns(40)).Stream(failing{want})
	_, err := w.Write([]byte("\ra\n"))
	require.ErrorIs(t, err, want)
}

// Whatever a program prints, no control character of it arrives, and nothing is lost: bars
// that only return look in the end as they would on the terminal itself.
func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\x1b[2Jb\r\n\xe2\x82\xac\x9b\xff"), []byte("err\r1%\r2%\n"), 3)
	f.Add([]byte("abc\rd\n\r1\r22\r\r\n"), []byte(""), 1)
	f.Add([]byte("日本\r日x\ty\r\tz"), []byte("\r\x1b\r\x85"), 5)
	f.Fuzz(func(t *testing.T, one, other []byte, cut int) {
		out := newTTY()
		screen := NewScreen(columns(20))
		a, b := screen.Stream(out), screen.Stream(out)
		step := 1 + (cut&0xff)%7
		for i := 0; i < max(len(one), len(other)); i += step {
			for w, text := range map[io.Writer][]byte{a: one, b: other} {
				if piece := text[min(i, len(text)):min(i+step, len(text))]; len(piece) > 0 {
					if n, err := w.Write(piece); n != len(piece) || err != nil {
						t.Fatal(n, err)
					}
				}
			}
		}
		if err := screen.End(out); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.raw.String() {
			if r != '\n' && r != '\t' && r != '\r' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Fatalf("%q and %q became %q, which holds %U", one, other, out.raw.String(), r)
			}
		}

		pure := strings.Map(func(r rune) rune {
			if r == '\r' || r == '\n' || r >= ' ' && r < 0x7f {
				return r
			}
			return -1
		}, string(one))
		want, got := newTTY(), newTTY()
		_, _ = want.Write([]byte(pure))
		wide := NewScreen(columns(1 << 20))
		w := wide.Stream(got)
		for i := 0; i < len(pure); i += step {
			_, _ = io.WriteString(w, pure[i:min(i+step, len(pure))])
		}
		if err := wide.End(got); err != nil {
			t.Fatal(err)
		}
		if len(pure) < maxLine && got.shown() != want.shown() {
			t.Fatalf("%q looks like %q, not %q (%q)", pure, got.shown(), want.shown(), got.raw.String())
		}
	})
}
