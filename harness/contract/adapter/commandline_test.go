package adapter

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/strict"
)

func pairs(all ...string) (p strict.Pairs) {
	for i := 0; i < len(all); i += 2 {
		p = append(p, strict.Pair{Key: all[i], Value: all[i+1]})
	}
	return p
}

func TestArguments(t *testing.T) {
	for name, test := range map[string]struct {
		command    CommandLine
		parameters map[string]any
		words      []string
		env        map[string]string
		err        string
	}{
		"nothing is set": {CommandLine{BaseArgs: []string{"-x"}, ArgMapping: pairs("a", "-a {a}", "b", "-b")}, nil, []string{"-x"}, nil, ""},
		"the order is that of the document": {
			CommandLine{ArgMapping: pairs("z", "-z {value}", "a", "{a}")}, map[string]any{"a": "1", "z": "2"}, []string{"-z", "2", "1"}, nil, "",
		},
		"a value stays one word":    {CommandLine{ArgMapping: pairs("n", "--name {value}")}, map[string]any{"n": "a b; 'c' \"d $HOME"}, []string{"--name", "a b; 'c' \"d $HOME"}, nil, ""},
		"an empty value":            {CommandLine{ArgMapping: pairs("n", "{n}")}, map[string]any{"n": ""}, []string{""}, nil, ""},
		"a value with a template":   {CommandLine{ArgMapping: pairs("n", "{n}", "m", "{m}")}, map[string]any{"n": "{m}", "m": "{value}"}, []string{"{m}", "{value}"}, nil, ""},
		"in a word":                 {CommandLine{ArgMapping: pairs("n", "--n={value}:{n}")}, map[string]any{"n": "-x"}, []string{"--n=-x:-x"}, nil, ""},
		"quotes of the template":    {CommandLine{ArgMapping: pairs("n", "'a b{n}'")}, map[string]any{"n": 1.5}, []string{"a b1.5"}, nil, ""},
		"null is not set":           {CommandLine{ArgMapping: pairs("n", "{n}")}, map[string]any{"n": nil}, nil, nil, ""},
		"numbers":                   {CommandLine{ArgMapping: pairs("a", "{a}", "b", "{b}", "c", "{c}")}, map[string]any{"a": int64(7), "b": json.Number("1e3"), "c": true}, []string{"7", "1e3", "true"}, nil, ""},
		"an option":                 {CommandLine{ArgMapping: pairs("i", "-i --j")}, map[string]any{"i": true}, []string{"-i", "--j"}, nil, ""},
		"an option that is off":     {CommandLine{ArgMapping: pairs("i", "-i")}, map[string]any{"i": false}, nil, nil, ""},
		"an option with a text":     {CommandLine{ArgMapping: pairs("i", "-i")}, map[string]any{"i": "yes"}, nil, nil, `parameter "i": must be true or false: it switches an option on`},
		"a list":                    {CommandLine{ArgMapping: pairs("e", "-e {value}")}, map[string]any{"e": []any{"a", int64(2)}}, []string{"-e", "a", "-e", "2"}, nil, ""},
		"a list in a list":          {CommandLine{ArgMapping: pairs("e", "-e {value}")}, map[string]any{"e": []any{[]any{"a"}}}, nil, nil, `parameter "e": must be a text, a number, true or false`},
		"a mapping":                 {CommandLine{ArgMapping: pairs("e", "-e {value}")}, map[string]any{"e": map[string]any{}}, nil, nil, `parameter "e": must be a text`},
		"a variable":                {CommandLine{EnvMapping: pairs("l", "LEVEL", "m", "MODE")}, map[string]any{"l": int64(3)}, nil, map[string]string{"LEVEL": "3"}, ""},
		"a variable with a list":    {CommandLine{EnvMapping: pairs("l", "LEVEL")}, map[string]any{"l": []any{}}, nil, nil, `parameter "l": must be a text`},
		"both":                      {CommandLine{ArgMapping: pairs("l", "-l {l}"), EnvMapping: pairs("l", "LEVEL")}, map[string]any{"l": "x"}, []string{"-l", "x"}, map[string]string{"LEVEL": "x"}, ""},
		"an unknown parameter":      {CommandLine{ArgMapping: pairs("a", "{a}"), EnvMapping: pairs("b", "B")}, map[string]any{"zzz": nil}, nil, nil, `parameter "zzz": unknown parameter; there are a, b`},
		"every problem is reported": {CommandLine{ArgMapping: pairs("a", "-a")}, map[string]any{"a": 1.0, "c": 1.0}, nil, nil, "parameter \"a\": must be true or false: it switches an option on\nparameter \"c\": unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			words, env, err := test.command.arguments(test.parameters)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, append([]string{}, test.words...), append([]string{}, words...))
			if test.env == nil {
				test.env = map[string]string{}
			}
			require.Equal(t, test.env, env)
		})
	}
}

// A value does not become an option of the command.
func TestArgumentsAreNoOptions(t *testing.T) {
	const refused = `must not begin with "-"`
	for name, test := range map[string]struct {
		base       []string
		mapping    strict.Pairs
		parameters map[string]any
		want       []string // nil is refused
	}{
		"a value":                       {nil, pairs("a", "{a}"), map[string]any{"a": "-rf"}, nil},
		"one dash":                      {nil, pairs("a", "{a}"), map[string]any{"a": "-"}, nil},
		"a negative number":             {nil, pairs("a", "{a}"), map[string]any{"a": int64(-1)}, nil},
		"one of a list":                 {nil, pairs("a", "{a}"), map[string]any{"a": []any{"x", "--y"}}, nil},
		"at the beginning of a word":    {nil, pairs("a", "{a}.txt"), map[string]any{"a": "-rf"}, nil},
		"two values in a word":          {nil, pairs("a", "{a}{a}"), map[string]any{"a": "-"}, nil},
		"an empty value before a dash":  {nil, pairs("a", "{a}-x"), map[string]any{"a": ""}, nil},
		"behind an option":              {nil, pairs("a", "-m {a}"), map[string]any{"a": "-1"}, []string{"-m", "-1"}},
		"behind an option with a value": {nil, pairs("a", "--m=1 {a}"), map[string]any{"a": "-1"}, nil},
		"behind an option that has it":  {nil, pairs("a", "-m{a} {a}"), map[string]any{"a": "-1"}, nil},
		"behind stdin":                  {nil, pairs("a", "- {a}"), map[string]any{"a": "-1"}, nil},
		"behind the option of another":  {nil, pairs("i", "-i", "a", "{a}"), map[string]any{"i": true, "a": "-1"}, nil},
		"behind an option of the base":  {[]string{"-i"}, pairs("a", "{a}"), map[string]any{"a": "-1"}, nil},
		"behind -- of the base":         {[]string{"--"}, pairs("a", "{a}"), map[string]any{"a": "-1"}, []string{"--", "-1"}},
		"behind -- of the template":     {nil, pairs("a", "-- {a}", "b", "{b}"), map[string]any{"a": "-1", "b": "-2"}, []string{"--", "-1", "-2"}},
		"before --":                     {nil, pairs("b", "{b}", "a", "-- {a}"), map[string]any{"a": "-1", "b": "-2"}, nil},
		"behind -- that is not set":     {nil, pairs("a", "-- {a}", "b", "{b}"), map[string]any{"b": "-2"}, nil},
		"behind -- that is a value":     {nil, pairs("a", "-e {a}", "b", "{b}"), map[string]any{"a": "--", "b": "-2"}, nil},
		"behind -- that is an option":   {nil, pairs("i", "--", "b", "{b}"), map[string]any{"i": true, "b": "-2"}, []string{"--", "-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			words, _, err := (&CommandLine{BaseArgs: test.base, ArgMapping: test.mapping}).arguments(test.parameters)
			if test.want == nil {
				require.ErrorContains(t, err, refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, words)
		})
	}
}

func TestTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"":             "must not be empty",
		"  ":           "must not be empty",
		"{":            "has a { without a }",
		"-a {p":        "has a { without a }",
		"}":            "has a } without a {",
		"{p}}":         "has a } without a {",
		"{}":           "has the unknown name {}: the value is {value} or {p}",
		"{other}":      "has the unknown name {other}: the value is {value} or {p}",
		"{{p}}":        "has the unknown name {{p}",
		"'open":        "has a quote that does not end",
		"{p} {VALUE}":  "has the unknown name {VALUE}",
		"-m {value}":   "",
		"{p}{value}":   "",
		"--a='{p} b'x": "",
	} {
		_, err := parseTemplate("p", template)
		if want == "" {
			require.NoError(t, err, template)
		} else {
			require.ErrorContains(t, err, want, template)
		}
	}
}

// FuzzArguments: whatever a value is, it is one word of the command line.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"a", "a b", "-x", "--", "'", "{value}", "$(x)", "\n", ""} {
		f.Add(seed)
	}
	c := CommandLine{BaseArgs: []string{"b"}, ArgMapping: pairs("x", "{x}", "y", "--y={y}", "z", "-z {value}")}
	f.Fuzz(func(t *testing.T, value string) {
		words, _, err := c.arguments(map[string]any{"x": value, "y": value, "z": value})
		if err != nil {
			require.Equal(t, byte('-'), value[0])
			return
		}
		require.Equal(t, []string{"b", value, "--y=" + value, "-z", value}, words)
	})
}
