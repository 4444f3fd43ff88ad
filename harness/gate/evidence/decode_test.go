package evidence

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
)

type inner struct {
	Name string `json:"name"`
}

type document struct {
	inner
	Text   string         `json:"text"`
	Count  int8           `json:"count"`
	Size   uint           `json:"size"`
	Flag   bool           `json:"flag"`
	List   []inner        `json:"list"`
	Map    map[string]int `json:"map"`
	Code   *int           `json:"code"`
	Status result.Status  `json:"status"`
	Any    any            `json:"any"`
	Time   *time.Time     `json:"time"`
	Part   *float64       `json:"part"`
	Later  string         `json:"later,omitempty"`
	Hidden string         `json:"-"`
}

const good = `{"name": "n", "text": "t", "count": -1, "size": 3, "flag": true, "list": [{"name": "x", "more": {"a": [1.5]}}],
	"map": {"Path": 1, "PATH": 2}, "code": 7, "status": "exited", "any": [null, {"x": 1e9}], "unknown": {"b": []}}`

func TestDecode(t *testing.T) {
	var d document
	require.NoError(t, Decode([]byte(good), &d))
	assert.Equal(t, "n", d.Name)
	assert.Equal(t, []inner{{"x"}}, d.List)
	assert.Equal(t, map[string]int{"Path": 1, "PATH": 2}, d.Map)
	assert.Equal(t, result.StatusExited, d.Status)
	assert.Equal(t, 7, *d.Code)

	var without document
	require.NoError(t, Decode([]byte(strings.Replace(good, `"code": 7, `, "", 1)), &without))
	assert.Nil(t, without.Code)
}

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"null for a string":       {`"text": "t"`, `"text": null`, "text must be a string, is null"},
		"null for a number":       {`"count": -1`, `"count": null`, "count must be a number, is null"},
		"null for a list":         {`[{"name": "x", "more": {"a": [1.5]}}]`, "null", "list must be an array, is null"},
		"null for an object":      {`{"Path": 1, "PATH": 2}`, "null", "map must be an object, is null"},
		"null for a status":       {`"exited"`, "null", "status must be a string, is null"},
		"a boolean for a number":  {`"count": -1`, `"count": true`, "count must be a number, is a boolean"},
		"a number for a boolean":  {`"flag": true`, `"flag": 1`, "flag must be a boolean, is a number"},
		"a float":                 {`"count": -1`, `"count": 1.0`, "count must be a whole number"},
		"an exponent":             {`"count": -1`, `"count": 1e1`, "count must be a whole number"},
		"too large":               {`"count": -1`, `"count": 128`, "whole number of 8 bits"},
		"negative":                {`"size": 3`, `"size": -3`, "size must be a whole number"},
		"huge":                    {`"code": 7`, `"code": 99999999999999999999`, "code must be a whole number"},
		"in a map":                {`"Path": 1`, `"Path": "1"`, "map.Path must be a number"},
		"in a list":               {`"name": "x"`, `"name": 1`, "list[0].name must be a string"},
		"key missing":             {`"text": "t", `, "", `the document has no key "text"`},
		"inner key missing":       {`"name": "x", `, "", `list[0] has no key "name"`},
		"embedded key missing":    {`"name": "n", `, "", `no key "name"`},
		"twice":                   {`"text": "t"`, `"text": "t", "text": "u"`, `the key "text" twice`},
		"twice in unknown":        {`"b": []`, `"b": [], "b": 1`, `unknown has the key "b" twice`},
		"twice in anything":       {`"x": 1e9`, `"x": 1, "x": 2`, `any[1] has the key "x" twice`},
		"twice in a map":          {`"PATH": 2`, `"Path": 2`, `map has the key "Path" twice`},
		"twice by an escape":      {`"text": "t"`, `"text": "t", "te\u0078t": "u"`, `the key "text" twice`},
		"other letters":           {`"text": "t"`, `"Text": "t"`, `the key "Text", which must be written "text"`},
		"other letters besides":   {`"text": "t"`, `"text": "t", "TEXT": "u"`, `must be written "text"`},
		"no status":               {`"exited"`, `"well"`, "well"},
		"a number for a time":     {`"flag": true`, `"flag": true, "time": 7`, "time cannot be read"},
		"an object for a time":    {`"flag": true`, `"flag": true, "time": {}`, "time cannot be read"},
		"no time":                 {`"flag": true`, `"flag": true, "time": "soon"`, "time cannot be read"},
		"a huge float":            {`"flag": true`, `"flag": true, "part": 1e999`, "part cannot be read: "},
		"trailing":                {`"b": []}}`, `"b": []}} {}`, "not one valid JSON document"},
		"cut":                     {`"b": []}}`, `"b": [`, "not one valid JSON document"},
		"a comment":               {`"b": []`, `"b": [] // x`, "not one valid JSON document"},
		"bytes that are no UTF-8": {`"text": "t"`, "\"text\": \"\xff\"", "invalid UTF-8"},
		"a byte order mark":       {`{"name": "n"`, "\ufeff{\"name\": \"n\"", "not one valid JSON document"},
		"deep":                    {`"b": []`, `"b": ` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), "not one valid JSON document"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, good, c.old)
			var d document
			err := Decode([]byte(strings.Replace(good, c.old, c.new, 1)), &d)
			assert.ErrorContains(t, err, c.want)
		})
	}
	var artifacts Artifacts
	for text, want := range map[string]string{
		"":                    "is not one valid JSON document: it is empty",
		"{}":                  `the document has no key "artifacts"`,
		`{"artifacts": null}`: "artifacts must be an array, is null",
		`{"artifacts": {}}`:   "artifacts must be an array, is an object",
		`{"artifacts": [{}]}`: `artifacts[0] has no key "file_path"`,
		`{"artifacts": [{}]`:  "is not one valid JSON document: unexpected EOF, at line 1, byte 18",
	} {
		assert.EqualError(t, Decode([]byte(text), &artifacts), want, text)
	}
	for _, text := range []string{"", "null", "[]", "7"} {
		assert.Error(t, Decode([]byte(text), &document{}), text)
	}
	assert.Error(t, Decode([]byte("{}"), document{}))
}

// FuzzDecode: what is read can be written, and reads the same again.
func FuzzDecode(f *testing.F) {
	f.Add(good)
	f.Add(`{"schema": "x", "artifacts": []}`)
	f.Fuzz(func(t *testing.T, text string) {
		var d document
		if err := Decode([]byte(text), &d); err != nil {
			return
		}
		d.Any = nil
		written, err := Canonical(d)
		require.NoError(t, err)
		var again document
		require.NoError(t, Decode(written, &again))
		assert.Equal(t, d.List, again.List)
		assert.Equal(t, d.Text, again.Text)
	})
}
