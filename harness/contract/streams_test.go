package contract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// kept is a stream as a run keeps it.
func kept(text string, limit int) stream {
	h := result.NewHeadTail(max(limit, leastCapture))
	_, _ = h.Write([]byte(text))
	return (&execution{}).stream("stdout", h.Text(), h.Total(), h.Truncated(), policy.Size(limit))
}

func TestCaptured(t *testing.T) {
	for name, test := range map[string]struct {
		stream string
		limit  int
		exact  int
	}{
		"empty":          {"", 100, 0},
		"exactly":        {strings.Repeat("a", 1<<20), 1 << 20, 1 << 20},
		"one more":       {strings.Repeat("a", 1<<20+1), 1 << 20, 1 << 20},
		"far more":       {strings.Repeat("a", 2_000_000), 1 << 20, 1 << 20},
		"stderr exactly": {strings.Repeat("e", 256<<10), 256 << 10, 256 << 10},
		"at a character": {strings.Repeat("a", 1<<20-1) + "€", 1 << 20, -1},
		"only wide ones": {strings.Repeat("€", 500), 1000, -1},
		"not UTF-8":      {strings.Repeat("\xff", 999), 1000, -1},
		"not UTF-8, cut": {strings.Repeat("\xff", 1<<20+5), 1 << 20, -1},
		"tiny":           {strings.Repeat("a", 100), 10, 10},
		"below the mark": {strings.Repeat("a", 9000), 5, 5},
		"of the mark":    {strings.Repeat("a", 9000), len(cutMark), len(cutMark)},
		"above the mark": {strings.Repeat("a", 9000), 2 * len(cutMark), 2 * len(cutMark)},
		"one wide":       {"€€", 4, 3},
		"nothing":        {"aaa", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := kept(test.stream, test.limit)
			got, shortened := s.captured(int64(test.limit))
			require.True(t, utf8.ValidString(got))
			require.LessOrEqual(t, len(got), test.limit)
			require.Equal(t, len(result.DecodeUTF8([]byte(test.stream))) > test.limit, shortened)
			require.Equal(t, len(test.stream) > test.limit, s.cut)
			if test.exact >= 0 {
				require.Len(t, got, test.exact)
			}
			head, tail, marked := strings.Cut(got, cutMark)
			require.Equal(t, shortened && test.limit >= 2*len(cutMark), marked)
			if text := result.DecodeUTF8([]byte(test.stream)); !marked {
				require.True(t, strings.HasPrefix(text, got))
			} else {
				require.True(t, strings.HasPrefix(text, head) && strings.HasSuffix(text, tail))
			}
		})
	}
}

// What was not seen as a whole fits nothing, our own mark least of all.
func TestCompareStream(t *testing.T) {
	long := strings.Repeat("a", 600_000)
	for name, test := range map[string]struct {
		stream string
		limit  int
		want   Stream
		got    string
	}{
		"pattern over the cut":    {long + "BAD" + long, 1 << 20, Stream{Pattern: new(`\A[^B]*\z`)}, "(not all was captured)"},
		"pattern in the head":     {"ok" + long + long, 1 << 20, Stream{Pattern: new(`\Aok`)}, "(not all was captured)"},
		"pattern of our mark":     {long + long, 1 << 20, Stream{Pattern: new("cut")}, "(not all was captured)"},
		"nothing is kept":         {"ab", 0, Stream{Expected: new("")}, "(not all was captured)"},
		"below the least":         {"abc", 2, Stream{Expected: new("ab")}, "(not all was captured)"},
		"all of it":               {"abc\n", 4, Stream{Expected: new("abc")}, ""},
		"replaced":                {"\xff\xfeA", 100, Stream{Expected: new("\ufffd\ufffdA")}, "(not UTF-8, and it could not be read again: no such file or directory)"},
		"not UTF-8 and a pattern": {"\xff\xfeA", 100, Stream{Pattern: new("A")}, "(not UTF-8, and it could not be read again: no such file or directory)"},
		"end of a pattern":        {"3 lines\n", 100, Stream{Pattern: new("^[0-9]+ lines$")}, ""},
		"end of a pattern, CR LF": {"3 lines\r\n", 100, Stream{Pattern: new("^[0-9]+ lines$")}, ""},
		"a pattern of line ends":  {"3 lines\n", 100, Stream{Pattern: new(`s\n\z`)}, ""},
		"more than a pattern":     {"3 lines\n4 lines\n", 100, Stream{Pattern: new("^[0-9]+ lines$")}, `none in "3 lines\n4 lines"`},
		"nothing is expected":     {"\xff", 100, Stream{}, ""},
		"differs far in":          {strings.Repeat("x", 3000) + "a", 1 << 20, Stream{Expected: new(strings.Repeat("x", 3000) + "b")}, `line 1 from byte 2961: "…` + strings.Repeat("x", 40) + `a"`},
	} {
		t.Run(name, func(t *testing.T) {
			d := kept(test.stream, test.limit).compare(test.want)
			if test.got == "" {
				require.Nil(t, d)
				return
			}
			require.NotNil(t, d)
			require.True(t, strings.HasSuffix(d.Got, test.got), d.Got)
		})
	}
}

// Bytes are compared where the record has them.
func TestCompareBytes(t *testing.T) {
	for _, test := range []struct {
		stream, expected string
		same             bool
	}{
		{"\xff\xfeA", "\ufffd\ufffdA", false}, {"\ufffd\ufffdA\n", "\ufffd\ufffdA", true},
	} {
		h, box := newHarness(t, nil)
		box.program = func(req sandbox.Request, _ string) result.Result {
			require.NoError(t, os.WriteFile(filepath.Join(box.store.RecordDir(req.ID), "stdout.log"), []byte(test.stream), 0o600))
			return result.Result{Status: result.StatusExited, Stdout: result.DecodeUTF8([]byte(test.stream)), StdoutBytes: int64(len(test.stream))}
		}
		c := cat()
		c.Outputs.Stdout.Expected = &test.expected
		o, err := h.Run(t.Context(), of(c))
		require.NoError(t, err)
		require.Equal(t, test.same, o.Success, o.Error)
		if !test.same {
			require.Contains(t, o.Error, `got line 1: "\xff\xfeA" (not UTF-8)`)
		}
	}
}
