package web

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// hidden stands in place of a secret.
const hidden = "[secret]"

// redactor finds the secrets of one call, in the forms that a server may send back: as they
// are, escaped for URLs or JSON, and in base64, alone or within a longer text.
type redactor struct{ forms [][]byte }

// add adds a secret.
func (r *redactor) add(secret string) {
	forms := []string{secret}
	for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
		forms = append(forms, escaped, lowerEscapes(escaped))
	}
	forms = append(forms, jsonForms(secret)...)
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(secret)), inBase64(encoding, secret, 0), inBase64(encoding, secret, 1), inBase64(encoding, secret, 2))
	}
	for _, form := range forms {
		if !slices.ContainsFunc(r.forms, func(f []byte) bool { return string(f) == form }) {
			r.forms = append(r.forms, []byte(form))
		}
	}
}

var escapePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%[0-9A-F]{2}`) })

func lowerEscapes(escaped string) string {
	return escapePattern().ReplaceAllStringFunc(escaped, strings.ToLower)
}

// jsonForms are the forms of a secret within a JSON string.
func jsonForms(secret string) (forms []string) {
	for _, escapeHTML := range []bool{true, false} {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(escapeHTML)
		if err := encoder.Encode(secret); err != nil {
			continue // a text has a form
		}
		inner := strings.Trim(out.String(), "\n")
		inner = inner[1 : len(inner)-1]
		forms = append(forms, inner, strings.ReplaceAll(inner, "/", `\/`))
	}
	return forms
}

// inBase64 is what a secret looks like in base64 behind a number of other bytes, without the
// characters that depend on its neighbours.
func inBase64(encoding *base64.Encoding, secret string, before int) string {
	encoded := encoding.WithPadding(base64.NoPadding).EncodeToString([]byte(strings.Repeat("x", before) + secret))
	first := (before*8 + 5) / 6
	last := (before + len(secret)) * 8 / 6
	return encoded[first:last]
}

// longest is the length of the longest form, in bytes.
func (r *redactor) longest() int {
	most := 0
	for _, form := range r.forms {
		most = max(most, len(form))
	}
	return most
}

// text hides the secrets in a text.
func (r *redactor) text(s string) string { return string(r.body([]byte(s), len(s))) }

// body hides the secrets in a body. Secrets that begin within the first limit bytes are
// hidden; what follows those bytes is left out.
func (r *redactor) body(body []byte, limit int) []byte {
	found := r.find(body)
	if len(found) == 0 {
		return body[:min(limit, len(body))]
	}
	var out []byte
	at := 0
	for _, place := range found {
		if place.from >= limit {
			break
		}
		out = append(append(out, body[at:place.from]...), hidden...)
		at = place.to
	}
	if end := min(limit, len(body)); at < end {
		out = append(out, body[at:end]...)
	}
	return out
}

// value hides the secrets in the texts and keys of plain data: a decoder has undone the escapes of a
// server.
func (r *redactor) value(value any) any {
	switch value := value.(type) {
	case string:
		return r.text(value)
	case []any:
		for i := range value {
			value[i] = r.value(value[i])
		}
	case map[string]any:
		for key, each := range value {
			delete(value, key)
			value[r.text(key)] = r.value(each)
		}
	}
	return value
}

// span is a part of a body.
type span struct{ from, to int }

// find returns the places of secrets in their order. Places that overlap or touch are one.
func (r *redactor) find(body []byte) []span {
	var all []span
	for _, form := range r.forms {
		for at := 0; ; {
			next := bytes.Index(body[at:], form)
			if next < 0 {
				break
			}
			place := span{at + next, at + next + len(form)}
			all = append(all, place)
			at = place.to
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var merged []span
	for _, place := range all {
		if last := len(merged) - 1; last >= 0 && place.from <= merged[last].to {
			merged[last].to = max(merged[last].to, place.to)
			continue
		}
		merged = append(merged, place)
	}
	return merged
}
