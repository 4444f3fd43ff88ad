package strict

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type sample struct {
	Schema  string            `json:"schema"`
	Text    string            `json:"text"`
	Count   int64             `json:"count"`
	Small   int               `json:"small"`
	Ratio   float64           `json:"ratio"`
	On      bool              `json:"on"`
	Maybe   *int64            `json:"maybe"`
	List    []string          `json:"list"`
	Env     map[string]string `json:"env"`
	Part    part              `json:"part"`
	Parts   []*part           `json:"parts"`
	Word    word              `json:"word"`
	Kind    kind              `json:"kind"`
	Time    time.Time         `json:"time"`
	Inlined inlined           `json:",inline"`
	Hidden  string            `json:"-"`
}

type (
	part    struct{ Name string }
	inlined struct {
		Inner string `json:"inner"`
	}
	word struct {
		Value string `json:"value"`
	}
	kind string
)

func (w *word) SetWord(text string) error {
	if text != "short" {
		return errors.New("must be short")
	}
	w.Value = "long"
	return nil
}

func (k *kind) UnmarshalText(text []byte) error {
	if string(text) != "good" {
		return errors.New("must be good")
	}
	*k = kind(text)
	return nil
}

func decodeSample(text string, o Options) (sample, []string) {
	var s sample
	o.Tag = "json"
	var told []string
	for _, p := range Decode([]byte(text), &s, o) {
		told = append(told, p.At("x"))
	}
	return s, told
}

func TestDecode(t *testing.T) {
	seven := int64(7)
	want := sample{
		Schema: "v1", Text: "a\nb", Count: -5, Small: 3, Ratio: 1.5, On: true, Maybe: &seven, List: []string{"a", "", "2026-01-01"},
		Env: map[string]string{"A": "1", "B.c": "é"}, Word: word{"long"}, Kind: "good",
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Inlined: inlined{"x"},
	}
	yaml := `# a comment
schema: v1
text: |-
  a
  b
count: -5
small: 3
ratio: 1.5
on: true
maybe: 7
list: [a, "", 2026-01-01]
env: {A: "1", B.c: é}
part: {}
word: short
kind: good
time: 2026-01-02T03:04:05Z
inner: x
`
	got, told := decodeSample(yaml, Options{Schema: "v1"})
	require.Empty(t, told)
	require.Equal(t, want, got)

	// The same as JSON, with escapes that YAML does not know.
	got, told = decodeSample(`{"schema":"v1","text":"a\nb","count":-5,"small":3,"ratio":1.5,"on":true,"maybe":7,
		"list":["a","","2026-01-01"],"env":{"A":"1","B.c":"\u00e9"},"part":{},"word":"short","kind":"good",
		"time":"2026-01-02T03:04:05Z","inner":"x"}`, Options{Schema: "v1"})
	require.Empty(t, told)
	require.Equal(t, want, got)
	got, told = decodeSample(`{"text":"\ud83d\ude00\/\u0000"}`, Options{})
	require.Empty(t, told)
	require.Equal(t, "😀/\x00", got.Text)
}

func TestDecodeTellsEveryProblem(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		wants []string
	}{
		"many at once": {"text: 5\nextra: 1\ncount: x\nlist: [a, 2, [b]]\n", []string{
			"x:1: text: 5 must be text: put it in quotes, is a number",
			`x:2: unknown key "extra"; there are count, env, inner, kind, list, maybe, on, part, parts, ratio, schema, small, text, time, word`,
			`x:3: count: "x" must be a whole number in decimal digits, is text`,
			"x:4: list[1]: 2 must be text: put it in quotes, is a number",
			"x:4: list[2]: must be text, is a list",
		}},
		"numbers": {"count: 5.0\nsmall: 1_000\nmaybe: 0x10\nratio: true\n", []string{
			"x:1: count: 5.0 must be a whole number in decimal digits, is a number",
			"x:2: small: 1_000 must be a whole number in decimal digits, is a number",
			"x:3: maybe: 0x10 must be a whole number in decimal digits, is a number",
			"x:4: ratio: true must be a number, is true or false",
		}},
		"octal":         {"count: 010\n", []string{"x:1: count: 010 must be a whole number in decimal digits, is a number"}},
		"out of range":  {"count: 9223372036854775808\n", []string{"x:1: count: 9223372036854775808 is out of range"}},
		"words of YAML": {"on: yes\n", []string{`x:1: on: "yes" must be true or false, is text`}},
		"null":          {"text: ~\nmaybe: null\npart:\n", []string{"x:1: text: must not be null: give a value or leave the key out", "x:2: maybe: must not be null: give a value or leave the key out", "x:3: part: must not be null: give a value or leave the key out"}},
		"a key twice":   {"text: a\ntext: b\nenv: {A: x, A: y}\n", []string{"x:2: text: is given twice, first in line 1", "x:3: env.A: is given twice, first in line 3"}},
		"kinds":         {"part: a\nenv: []\nlist: {}\nword: []\nkind: {}\ntime: soon\n", []string{`x:1: part: "a" must be a mapping, is text`, "x:2: env: must be a mapping, is a list", "x:3: list: must be a list, is a mapping", "x:4: word: must be a mapping or a word, is a list", "x:5: kind: must be text, is a mapping", `x:6: time: "soon" must be a time such as 2026-01-31T12:00:00Z, is text`}},
		"refused":       {"word: tall\nkind: bad\n", []string{"x:1: word: must be short", "x:2: kind: must be good"}},
		"an alias":      {"text: &a x\nlist: [*a]\n", []string{"x:2: list[0]: must not be an alias: write the value out"}},
		"a merge":       {"env: &a {A: x}\npart:\n  <<: *a\n", []string{`x:3: unknown key "<<" in part; there are `}},
		"a bomb":        {"env: &a {A: x}\nlist: &b [*a, *a]\nparts: [*b, *b]\n", []string{"x:2: list[0]: must not be an alias: write the value out", "x:2: list[1]: must not be an alias: write the value out", "x:3: parts[0]: must not be an alias: write the value out", "x:3: parts[1]: must not be an alias: write the value out"}},
		"a tag":         {"text: !!binary aGk=\n", []string{`x:1: text: must not have a tag such as "!!binary"`}},
		"keys":          {"1: a\n[a]: b\nenv: {~: x}\n", []string{"x:1: has a key that is not text", "x:2: has a key that is not text", "x:3: env: has a key that is not text"}},
		"odd keys":      {"\"a\\e[1m\": 1\n", []string{`x:1: unknown key "a\x1b[1m"; there are count`}},
		"a list":        {"- a\n", []string{"x:1: must be a mapping of keys to values"}},
		"nothing":       {"# empty\n", []string{"x: must be a mapping of keys to values, is empty"}},
		"two documents": {"text: a\n---\ntext: b\n", []string{"x:2: must be one document, has more"}},
		"no YAML":       {"a: b: c\n", []string{"x: mapping values are not allowed in this context"}},
		"no YAML below": {"a: b\nb: c\n d: [\n", []string{"x:3: "}},
		"no UTF-8":      {"text: \xff\n", []string{"x: is not UTF-8"}},
		"JSON, lines":   {"{\n\"text\":\n5,\n\"list\": [\n1]}", []string{"x:3: text: 5 must be text", "x:5: list[0]: 1 must be text"}},
		"JSON, twice":   {"{\"text\": \"a\",\n\"text\": \"b\"}", []string{"x:2: text: is given twice, first in line 1"}},
		"half a pair":   {`{"text": "\ud83d"}`, []string{"x:1: has an escape that is not a character"}},
		"many":          {"list: [" + strings.Repeat("a,", maxNodes) + "]", []string{"x: has more than 100000 keys and values"}},
		"many of JSON":  {`{"list": [""` + strings.Repeat(`,""`, maxNodes) + "]}", []string{"x:1: has more than 100000 keys and values"}},
		"deep":          {`{"text": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", []string{"x:1: is nested too deep"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, told := decodeSample(test.text, Options{})
			require.Len(t, told, len(test.wants), told)
			for i, want := range test.wants {
				require.True(t, strings.HasPrefix(told[i], want), "%q, want %q", told[i], want)
			}
		})
	}
}

func TestDecodeOptions(t *testing.T) {
	got, told := decodeSample("text: 3.10\nmaybe: ~\npart: ~\nkind: good\n", Options{Lenient: true})
	require.Empty(t, told)
	require.Equal(t, "3.10", got.Text)
	require.Nil(t, got.Maybe)

	_, told = decodeSample("maybe: ~\ntext: ~\n", Options{Nullable: []string{"maybe"}})
	require.Equal(t, []string{"x:2: text: must not be null: give a value or leave the key out"}, told)

	// Another version has keys of its own.
	for text, want := range map[string]string{
		"schema: v2\nother: 1\n": `x:1: schema: want "v1", have "v2"`,
		"text: a\n":              `x: schema: want "v1", have ""`,
		"":                       `x: schema: want "v1", have ""`,
	} {
		_, told = decodeSample(text, Options{Schema: "v1"})
		require.Equal(t, []string{want}, told)
	}
	_, told = decodeSample("text: a\n", Options{Schema: "v1", SchemaOptional: true})
	require.Empty(t, told)

	lines := map[string]int{}
	_, _ = decodeSample("part:\n  x: 1\nlist:\n- a\n- b\n", Options{Lines: lines})
	require.Equal(t, map[string]int{"": 1, "part": 2, "list": 4, "list[0]": 4, "list[1]": 5}, lines)
}

// TestProblemsAreBounded: a document of a stranger does not fill the screen.
func TestProblemsAreBounded(t *testing.T) {
	_, told := decodeSample("list: ["+strings.Repeat("1,", 5000)+"]\n", Options{})
	require.Len(t, told, MaxProblems+1)
	require.Equal(t, "x: has 4900 problems more", told[MaxProblems])
	_, told = decodeSample(`{"`+strings.Repeat("é", 5000)+`": "`+strings.Repeat("é", 5000)+`"}`, Options{})
	require.Len(t, told, 1)
	require.Less(t, len(told[0]), 1000)
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"text: a\nlist: [1]\n", `{"env": {"A": "\ud83d\ude00"}}`, "a: &a [*a]\n", "? [a]\n: b\n", "text: !!str |\n a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		var s sample
		problems := Decode(text, &s, Options{Tag: "json"})
		require.LessOrEqual(t, len(problems), MaxProblems+1)
		for _, p := range problems {
			require.Less(t, len(p.At("x")), 2000, "%q", text)
		}
		if len(problems) > 0 {
			return
		}
		// What is accepted comes back from its JSON.
		again, err := json.Marshal(s.Env)
		require.NoError(t, err)
		var env map[string]string
		require.NoError(t, json.Unmarshal(again, &env))
	})
}
