package brief_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/brief"
)

func short(key string) bool { return key != "long" }

func TestMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`:                                `{"a":1}`,
		`{"long":"x"}`:                           `{}`,
		`{"long":"\\\\\"}","a":"{[,"}`:           `{"a":"{[,"}`,
		` { "long" : "}" , "b":{"long":"kept"}}`: `{ "b":{"long":"kept"}}`,
		`{"c":[1,"]"] ,"long":[{"x":"}"}]}`:      `{"c":[1,"]"] }`,
		`{"a":1,"long":null,"d":2}`:              `{"a":1,"d":2}`,
		`{}`:                                     `{}`,
		`[1]`:                                    `[1]`,
		``:                                       ``,
	} {
		got, err := brief.Members([]byte(text), short)
		require.NoError(t, err, text)
		require.Equal(t, want, string(got))
	}
	for _, text := range []string{`{`, `{"a`, `{"a":"\"`, `{"a":[1`, `{"long":"x"`} {
		_, err := brief.Members([]byte(text), short)
		require.ErrorContains(t, err, "unexpected end", text)
	}
}

// FuzzMembers: of a valid object, exactly the members that are kept are left.
func FuzzMembers(f *testing.F) {
	f.Add(`{"schema":"x","long":"a\"b","score":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := brief.Members([]byte(text), short)
		var want, left map[string]any
		if strings.Contains(text, `\u`) || json.Unmarshal([]byte(text), &want) != nil || want == nil {
			return // an escaped key is not recognized
		}
		require.NoError(t, err, "%q", text)
		require.NoError(t, json.Unmarshal(got, &left), "%q became %q", text, got)
		delete(want, "long")
		require.Equal(t, want, left)
	})
}
