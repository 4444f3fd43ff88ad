package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const odd = `p/+ w"<ö>%&=\key`

func TestRedactForms(t *testing.T) {
	var r redactor
	r.add(odd)
	quotedJSON, err := json.Marshal(odd)
	require.NoError(t, err)
	for name, text := range map[string]string{
		"plain": odd, "query": url.QueryEscape(odd), "path": url.PathEscape(odd), "lower": lowerEscapes(url.QueryEscape(odd)),
		"JSON": string(bytes.Trim(quotedJSON, `"`)), "base64": base64.StdEncoding.EncodeToString([]byte(odd)), "raw URL": base64.RawURLEncoding.EncodeToString([]byte(odd)),
	} {
		got := r.text("a" + text + "b")
		require.True(t, strings.HasPrefix(got, "a[secret]"), "%s: %s", name, got)
		require.True(t, strings.HasSuffix(got, "b"), "%s: %s", name, got)
		require.LessOrEqual(t, len(got), len("a[secret]bb=="), "%s: %s", name, got)
	}
	for _, before := range []string{"", "u", "us", "use", "user:"} {
		got := r.text(base64.StdEncoding.EncodeToString([]byte(before + odd + "tail")))
		require.Contains(t, got, "[secret]", before)
	}
	require.Equal(t, "nothing", r.text("nothing"))
}

func TestRedactBody(t *testing.T) {
	var r redactor
	r.add("hunter2x")
	require.Equal(t, "ab[secret]", string(r.body([]byte("abhunter2xcd"), 4)), "begins in the kept part")
	require.Equal(t, "abc", string(r.body([]byte("abchunter2x"), 3)), "begins behind it")
	require.Equal(t, "a[secret]b", string(r.body([]byte("ahunter2xhunter2xb"), 100)))
	require.Empty(t, r.body(nil, 5))
}

// FuzzRedact: a secret is not in the text that is left, wherever it was.
func FuzzRedact(f *testing.F) {
	f.Add("hunter2", "before", "after", 9)
	f.Add("aaaa", "aaa", "aaaaa", 3)
	f.Fuzz(func(t *testing.T, secret, before, after string, limit int) {
		if secretRule(secret) != "" || strings.Contains(hidden, secret) || limit < 0 {
			return
		}
		var r redactor
		r.add(secret)
		text := before + secret + after
		if places := r.find([]byte(text)); len(places) == 0 {
			t.Fatal("not found")
		}
		got := string(r.body([]byte(text), min(limit, len(text))))
		for piece := range strings.SplitSeq(got, hidden) {
			require.NotContains(t, piece, secret)
		}
	})
}
