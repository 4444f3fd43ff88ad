package transform_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract/adapter/transform"
	"github.com/evalbox/evalbox/internal/strict"
)

type (
	object = map[string]any
	list   = []any
)

// decode reads steps as an adapter has them.
func decode(t testing.TB, yaml string) []transform.Step {
	t.Helper()
	var document struct {
		Steps []transform.Step `json:"steps"`
	}
	require.Empty(t, strict.Decode([]byte(yaml), &document, strict.Options{Tag: "json"}))
	return document.Steps
}

func input(t testing.TB, yaml string) *transform.Input {
	t.Helper()
	in, problems := transform.CompileInput(decode(t, yaml), nil)
	require.Empty(t, problems)
	return in
}

func output(t testing.TB, steps ...transform.Step) *transform.Output {
	t.Helper()
	out, problems := transform.CompileOutput(steps)
	require.Empty(t, problems)
	return out
}

func step(kind string, spec any) transform.Step { return transform.Step{Type: kind, Spec: spec} }

// listed are problems, one a line.
func listed(problems []strict.Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = strings.Join(strings.Fields(p.Path+": "+p.Value+" "+p.Rule), " ")
	}
	return strings.Join(lines, "\n")
}

func TestInput(t *testing.T) {
	for name, test := range map[string]struct {
		steps     string
		have      object
		want      object
		wantError string
	}{
		"no steps": {steps: "steps: []", have: object{"a": int64(1)}, want: object{"a": int64(1)}},
		"rename":   {steps: "steps: [{type: rename, spec: {a: b}}]", have: object{"a": nil, "c": true}, want: object{"b": nil, "c": true}},
		"rename what is absent": {
			steps: "steps: [{type: rename, spec: {a: b}}]", have: object{"b": "x"}, want: object{"b": "x"},
		},
		"swap":   {steps: "steps: [{type: rename, spec: {a: b, b: a}}]", have: object{"a": "1", "b": "2"}, want: object{"a": "2", "b": "1"}},
		"circle": {steps: "steps: [{type: rename, spec: {a: b, b: c}}]", have: object{"a": "1", "b": "2"}, want: object{"b": "1", "c": "2"}},
		"rename to a name that is given": {
			steps: "steps: [{type: rename, spec: {a: b}}]", have: object{"a": "1", "b": "2"},
			wantError: `input transform 1 (rename): "a" cannot become "b": there is such a parameter already`,
		},
		"map": {
			steps: `steps: [{type: map, spec: {a: {"true": 1, "3": x, "2.5": y, "null": z, x: {k: [v]}}, b: {"true": 1}, c: {"3": x}, d: {"2.5": y}, e: {"null": z}, f: {g: h}}}]`,
			have:  object{"a": "x", "b": true, "c": int64(3), "d": 2.5, "e": nil},
			want:  object{"a": object{"k": list{"v"}}, "b": int64(1), "c": "x", "d": "y", "e": "z"},
		},
		"map, whole float": {steps: `steps: [{type: map, spec: {a: {"3": x}}}]`, have: object{"a": 3.0}, want: object{"a": "x"}},
		"map, unknown value": {
			steps: "steps: [{type: map, spec: {a: {z: 1, b: 2}}}]", have: object{"a": "c\x1b"},
			wantError: `input transform 1 (map): a: "c\x1b" must be one of "b", "z"`,
		},
		"map, list": {
			steps: "steps: [{type: map, spec: {a: {z: 1}}}]", have: object{"a": list{}},
			wantError: "input transform 1 (map): a: must be text, a number, true, false or null, is a list",
		},
		"default": {
			steps: "steps: [{type: default, spec: {a: 1, b: 2, c: {d: []}}}]", have: object{"b": nil},
			want: object{"a": int64(1), "b": nil, "c": object{"d": list{}}},
		},
		"in the order of the list": {
			steps: "steps: [{type: default, spec: {a: x}}, {type: map, spec: {a: {x: y}}}, {type: rename, spec: {a: b}}]",
			have:  object{}, want: object{"b": "y"},
		},
		"names of a failed step": {
			steps: "steps: [{type: rename, spec: {a: b}}, {type: map, spec: {b: {x: y}}}]", have: object{"a": "z"},
			wantError: `input transform 2 (map): b: "z" must be one of "x"`,
		},
		"numbers of encoding/json": {steps: "steps: []", have: object{"a": json.Number("7"), "b": 7}, want: object{"a": int64(7), "b": int64(7)}},
		"not plain": {
			steps: "steps: []", have: object{"a": list{func() {}}},
			wantError: "input of the transforms: has a value of the type func(), which is not plain data",
		},
		"not a number": {
			steps: "steps: []", have: object{"a": math.NaN()},
			wantError: "input of the transforms: has the number NaN, which JSON does not have",
		},
		"not JSON's number": {
			steps: "steps: []", have: object{"a": json.Number("0x7")},
			wantError: `input of the transforms: has "0x7", which is not a number`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.have)
			got, err := input(t, test.steps).Apply(test.have)
			require.Len(t, test.have, len(before))
			if test.wantError != "" {
				require.EqualError(t, err, test.wantError)
				require.Nil(t, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.Equal(t, before, test.have)
		})
	}
}

func TestKnownValuesAreBounded(t *testing.T) {
	table := object{}
	for i := range 500 {
		table[fmt.Sprintf("value %03d", i)] = nil
	}
	in, problems := transform.CompileInput([]transform.Step{step("map", object{"a": table})}, nil)
	require.Empty(t, problems)
	_, err := in.Apply(object{"a": strings.Repeat("x", 5000)})
	require.ErrorContains(t, err, `"value 000", "value 001"`)
	require.ErrorContains(t, err, `"value 009" and 490 more`)
	require.NotContains(t, err.Error(), "value 010")
	require.Less(t, len(err.Error()), 500)
}

// TestNothingIsShared: a caller can change the result and the spec, and the next result is as
// the first.
func TestNothingIsShared(t *testing.T) {
	spec := object{"a": list{"x"}}
	table := object{"b": object{"1": list{"y"}}}
	in, problems := transform.CompileInput([]transform.Step{step("default", spec), step("map", table)}, nil)
	require.Empty(t, problems)
	spec["a"].(list)[0] = "changed"
	have := object{"b": int64(1), "c": list{"z"}}
	for range 2 {
		got, err := in.Apply(have)
		require.NoError(t, err)
		require.Equal(t, object{"a": list{"x"}, "b": list{"y"}, "c": list{"z"}}, got)
		for _, name := range []string{"a", "b", "c"} {
			got[name].(list)[0] = "changed"
		}
	}
	value := object{"a": list{"x"}}
	got, err := output(t, step("extract", "$.a")).Apply(value)
	require.NoError(t, err)
	got.(list)[0] = "changed"
	require.Equal(t, object{"a": list{"x"}}, value)
}

func TestValidate(t *testing.T) {
	const schema = `steps: [{type: validate, spec: {type: object, required: [a], additionalProperties: false,
		properties: {a: {type: integer, minimum: 1}, b: {$ref: "#/$defs/b~1%62"}}, $defs: {b/b: {enum: [x, y]}}}}]`
	in := input(t, schema)
	for _, good := range []object{{"a": int64(1)}, {"a": 2.0, "b": "y"}} {
		got, err := in.Apply(good)
		require.NoError(t, err)
		require.Len(t, got, len(good))
	}
	for want, bad := range map[string]object{
		`schema: required: missing properties: ["a"]`:                     {},
		"schema: validating /properties/a: minimum: 0/1 is less than 1.0": {"a": int64(0)},
		`type: 1 has type "string"`:                                       {"a": "1"},
		`unexpected additional properties ["c"]`:                          {"a": int64(1), "c": "\x1b"},
		"enum: \ufffd[1m does not equal any of":                           {"a": int64(1), "b": "\x1b[1m"},
	} {
		_, err := in.Apply(bad)
		require.ErrorContains(t, err, "input transform 1 (validate): the parameters do not fit the schema: ")
		require.ErrorContains(t, err, want)
	}
	_, err := in.Apply(object{"a": int64(1), "b": strings.Repeat("long\n", 10000)})
	require.Error(t, err)
	require.Less(t, len(err.Error()), 600)
	require.NotContains(t, err.Error(), "\n")
}

func TestValidateWord(t *testing.T) {
	word := []transform.Step{step("validate", "json_schema")}
	in, problems := transform.CompileInput(word, &jsonschema.Schema{Required: []string{"a"}})
	require.Empty(t, problems)
	_, err := in.Apply(object{"a": nil})
	require.NoError(t, err)
	_, err = in.Apply(object{})
	require.ErrorContains(t, err, "missing properties")

	in, problems = transform.CompileInput(word, nil)
	require.Nil(t, in)
	require.Equal(t, `[0].spec: "json_schema" names the schema of the adapter, which has none`, listed(problems))
	_, problems = transform.CompileInput(word, &jsonschema.Schema{Ref: "other.json"})
	require.Contains(t, listed(problems), `other.json" is outside of the document`)
}

// TestSchemasOfAnyDepth: a schema may refer to itself for what is within a value.
func TestSchemasOfAnyDepth(t *testing.T) {
	nested := func(levels int, leaf any) any {
		for range levels {
			leaf = object{"children": list{leaf}}
		}
		return leaf
	}
	tree := input(t, `steps: [{type: validate, spec: {type: object, additionalProperties: false,
		properties: {children: {type: array, items: {$ref: "#"}}}}}]`)
	_, err := tree.Apply(nested(30, object{}).(object))
	require.NoError(t, err)
	_, err = tree.Apply(nested(30, object{"x": nil}).(object))
	require.ErrorContains(t, err, `unexpected additional properties ["x"]`)

	// Any JSON: lists and mappings do not add up.
	anything := input(t, `steps: [{type: validate, spec: {anyOf: [{type: object, additionalProperties: {$ref: "#"}},
		{type: array, items: {$ref: "#"}}, {type: [string, "null"]}]}}]`)
	_, err = anything.Apply(nested(30, "x").(object))
	require.NoError(t, err)
	_, err = anything.Apply(nested(3, true).(object))
	require.Error(t, err)

	// Each level has twice the checks of the one above it.
	double := input(t, `steps: [{type: validate, spec: {allOf: [{properties: {children: {items: {$ref: "#"}}}},
		{properties: {children: {items: {$ref: "#"}}}}]}}]`)
	_, err = double.Apply(nested(4, object{}).(object))
	require.NoError(t, err)
	_, err = double.Apply(nested(30, object{}).(object))
	require.ErrorContains(t, err, "must not be nested deeper than")
}

func TestSchemaProblems(t *testing.T) {
	for spec, want := range map[string]string{
		`{type: strnig}`:                                       `type "strnig" must be one of null, boolean,`,
		`{type: 5}`:                                            `must be a JSON Schema: `,
		`{pattern: "("}`:                                       `error parsing regexp`,
		`{properties: {a: null}}`:                              `is nil`,
		`{$ref: "other.json"}`:                                 `other.json" is outside of the document`,
		`{$ref: "file:///etc/passwd"}`:                         `"file:///etc/passwd" is outside of the document`,
		`{items: {$ref: "https://x.example/s.json#"}}`:         `"https://x.example/s.json" is outside of the document`,
		`{$ref: "#/$defs/a"}`:                                  `must be a JSON Schema: `,
		`{$ref: "#/properties/a", properties: {a: {}}}`:        `$ref "#/properties/a" must be # or #/$defs/NAME`,
		`{$ref: "#x", $anchor: x}`:                             `$ref "#x" must be # or #/$defs/NAME`,
		`{$dynamicRef: "#x", $dynamicAnchor: x}`:               `$dynamicRef "#x" must be a $ref`,
		`{items: {$id: "https://x.example/s"}}`:                `$id "https://x.example/s" must be that of the whole document`,
		`{$schema: "http://json-schema.org/draft-07/schema#"}`: `it must be https://json-schema.org/draft/2020-12/schema`,
		`{items: [{}]}`:                                        `a list of them is prefixItems`,
		`{additionalItems: {}}`:                                `additionalItems must be items`,
		`{dependencies: {a: [b]}}`:                             `dependencies must be dependentRequired`,
		`{$defs: {a: {multipleOf: 0}}}`:                        `multipleOf 0 must be above 0`,
		`{$ref: "#"}`:                                          `a schema refers to itself for the same value`,
		`{type: array, $ref: "#"}`:                             `a schema refers to itself for the same value`,
		`{properties: {a: {not: {$ref: "#/$defs/b"}}}, $defs: {b: {if: {$ref: "#/$defs/b"}}}}`: `a schema refers to itself for the same value`,
	} {
		in, problems := transform.CompileInput(decode(t, "steps: [{type: validate, spec: "+spec+"}]"), nil)
		require.Nil(t, in, spec)
		require.Len(t, problems, 1, spec)
		require.Equal(t, "[0].spec", problems[0].Path)
		require.Contains(t, problems[0].Rule, "must be a JSON Schema: ", spec)
		require.Contains(t, problems[0].Rule, want, spec)
	}

	// A small schema that checks one value 2^40 times.
	bomb := object{"$defs": object{"s40": object{}}, "$ref": "#/$defs/s0"}
	for i := range 40 {
		next := object{"$ref": fmt.Sprintf("#/$defs/s%d", i+1)}
		bomb["$defs"].(object)[fmt.Sprintf("s%d", i)] = object{"allOf": list{next, next}}
	}
	_, problems := transform.CompileInput([]transform.Step{step("validate", bomb)}, nil)
	require.Equal(t, "[0].spec: must be a JSON Schema: more than 2000 schemas check one value", listed(problems))
}

func TestProblems(t *testing.T) {
	for steps, want := range map[string]string{
		"[{type: rename, spec: x}]":                         `[0].spec: "x" must be a mapping, is text`,
		"[{type: rename, spec: {}}]":                        `[0].spec: must have at least one key`,
		`[{type: rename, spec: {a: 1, b: "", "": c}}]`:      "[0].spec.\"\": must be a mapping of a name to a name; neither may be empty\n[0].spec.a: 1 must be text, is a number\n[0].spec.b: must be a mapping of a name to a name; neither may be empty",
		"[{type: rename, spec: {a: c, b: c}}]":              `[0].spec.b: "c" is the new name of "a" too`,
		"[{type: map, spec: [a]}]":                          `[0].spec: must be a mapping, is a list`,
		"[{type: map, spec: {a: x, b: {}, c: {d: e}}}]":     "[0].spec.a: \"x\" must be a mapping, is text\n[0].spec.b: must have at least one key",
		"[{type: default, spec: true}]":                     `[0].spec: true must be a mapping, is true or false`,
		"[{type: validate, spec: yaml}]":                    `[0].spec: "yaml" must be json_schema, or a mapping that is a JSON Schema`,
		"[{type: validate, spec: [a]}]":                     `[0].spec: must be json_schema, or a mapping that is a JSON Schema, is a list`,
		"[{type: parse, spec: json}]":                       `[0].type: "parse" must be one of default, map, rename, validate; parse belongs in transforms.output`,
		"[{type: default, spec: {a: 1}}, {type: x}, {}]":    "[1].type: \"x\" must be one of default, map, rename, validate\n[2].type: \"\" must be one of default, map, rename, validate",
		"[{type: rename, spec: {\"a\\e\": 1}}]":             `[0].spec."a\x1b": 1 must be text, is a number`,
		"[{type: rename}, {type: default}]":                 "[0].spec: null must be a mapping, is nothing\n[1].spec: null must be a mapping, is nothing",
		"[" + strings.Repeat("{type: default}, ", 51) + "]": ": has 51 steps; at most 50",
	} {
		in, problems := transform.CompileInput(decode(t, "steps: "+steps), nil)
		require.Nil(t, in, steps)
		require.Equal(t, want, listed(problems))
	}
	for steps, want := range map[string]string{
		"[{type: rename, spec: {a: b}}]":                                                `[0].type: "rename" must be one of extract, format, parse; rename belongs in transforms.input`,
		"[{type: parse, spec: xml}]":                                                    `[0].spec: "xml" must be one of csv, json, json_lines, lines, or a mapping {regex: PATTERN}`,
		"[{type: parse, spec: 1.5}]":                                                    `[0].spec: 1.5 must be one of csv, json, json_lines, lines, or a mapping {regex: PATTERN}, is a number`,
		"[{type: parse, spec: {regex: a, b: c}}]":                                       `[0].spec: must have the key regex and no other; it has "b", "regex"`,
		"[{type: parse, spec: {regex: 1}}]":                                             `[0].spec.regex: 1 must be text, is a number`,
		`[{type: parse, spec: {regex: ""}}]`:                                            `[0].spec.regex: "" must have 1 to 1000 bytes`,
		`[{type: parse, spec: {regex: "("}}]`:                                           "[0].spec.regex: \"(\" must be a regular expression (RE2): error parsing regexp: missing closing ): `(`",
		"[{type: extract, spec: {a: b}}]":                                               `[0].spec: must be text with a JSONPath, is a mapping`,
		"[{type: extract, spec: " + strings.Repeat("x", 1001) + "}]":                    `[0].spec: "` + strings.Repeat("x", 100) + `"… has 1001 bytes; at most 1000`,
		"[{type: format, spec: 1}]":                                                     `[0].spec: 1 must be text with a template, is a number`,
		`[{type: format, spec: ""}]`:                                                    `[0].spec: "" must be a template, is empty`,
		"[{type: format, spec: " + strings.Repeat("x", 16<<10+1) + "}]":                 `[0].spec: has 16 KiB; at most 16 KiB`,
		`[{type: format, spec: "{{template \"x\"}}"}]`:                                  `[0].spec: must be a template: there is no template "x"`,
		`[{type: format, spec: "{{range .}}{{if .}}{{template \"x\"}}{{end}}{{end}}"}]`: `[0].spec: must be a template: there is no template "x"`,
	} {
		out, problems := transform.CompileOutput(decode(t, "steps: "+steps))
		require.Nil(t, out, steps)
		require.Equal(t, want, listed(problems))
	}
	for spec, want := range map[string]string{
		"a.b": "must be a JSONPath (RFC 9535): ", "$[": "must be a JSONPath (RFC 9535): ", "": "must be a JSONPath (RFC 9535): ",
		"$[?@.a == $.b]":                 "a filter may use only @ with names and indexes",
		"$[?count(@..*) > 1]":            "a filter may use only @ with names and indexes",
		"$[?@.*]":                        "a filter may use only @ with names and indexes",
		"$[?@[0:2]]":                     "a filter may use only @ with names and indexes",
		"$[?@['a','b']]":                 "a filter may use only @ with names and indexes",
		"$[?@[?@.a]]":                    "a filter may use only @ with names and indexes",
		"$" + strings.Repeat("[*,*]", 6): "combined in at most 50 ways",
	} {
		_, problems := transform.CompileOutput([]transform.Step{step("extract", spec)})
		require.Len(t, problems, 1, spec)
		require.Contains(t, problems[0].Rule, want, spec)
	}
	for spec, want := range map[string]string{
		"{{": "unclosed action", "{{readFile `x`}}": `function "readFile" not defined`,
		"{{_leave}}": `function "_leave" not defined`, "{{_work 1}}": `function "_work" not defined`,
	} {
		_, problems := transform.CompileOutput([]transform.Step{step("format", spec)})
		require.Len(t, problems, 1, spec)
		require.Contains(t, problems[0].Rule, want, spec)
	}
}

func TestParse(t *testing.T) {
	regex := func(pattern string) object { return object{"regex": pattern} }
	for name, test := range map[string]struct {
		spec      any
		have      any
		want      any
		wantError string
	}{
		"json":              {spec: "json", have: ` {"a": [1, -2, 2.5, 1e2, null, true, "x"]} `, want: object{"a": list{int64(1), int64(-2), 2.5, 100.0, nil, true, "x"}}},
		"json, one number":  {spec: "json", have: "7", want: int64(7)},
		"json, big numbers": {spec: "json", have: "[9223372036854775807, 9223372036854775808, 1e400]", want: list{int64(math.MaxInt64), json.Number("9223372036854775808"), json.Number("1e400")}},
		"json, two":         {spec: "json", have: "{} {}", wantError: "is not JSON at byte 4: invalid character '{' after top-level value"},
		"json, empty":       {spec: "json", have: "", wantError: "is not JSON at byte 0: unexpected end of JSON input"},
		"json, comma":       {spec: "json", have: "[1,]", wantError: "is not JSON at byte 4: invalid character ']' looking for beginning of value"},
		"json, key twice":   {spec: "json", have: `{"a": 1, "a": 2}`, wantError: `the key "a" is given twice in one object`},
		"json, deep":        {spec: "json", have: strings.Repeat("[", 66) + strings.Repeat("]", 66), wantError: "is nested deeper than 64 levels"},
		"json, very deep":   {spec: "json", have: strings.Repeat("[", 1<<20), wantError: "is not JSON at byte 10001: invalid character '[' exceeded max depth"},
		"json, long list":   {spec: "json", have: "[1" + strings.Repeat(",1", 100_000) + "]", wantError: "a list has more than 100000 elements"},
		"json, many values": {spec: "json", have: "[" + strings.Repeat("[1,1,1,1,1,1,1,1,1,1,1,1],", 80_000) + "1]", wantError: "has more than 1000000 values"},
		"json, a list":      {spec: "json", have: list{}, wantError: "must be text, is a list"},
		"json, nothing":     {spec: "json", have: nil, wantError: "must be text, is nothing"},

		"json_lines":             {spec: "json_lines", have: "{\"a\": 1}\r\n\n  \n2\n\"x\"", want: list{object{"a": int64(1)}, int64(2), "x"}},
		"json_lines, empty":      {spec: "json_lines", have: "\n", want: list{}},
		"json_lines, bad":        {spec: "json_lines", have: "1\n\n{]\n", wantError: "line 3: is not JSON at byte 2: invalid character ']' looking for beginning of object key string"},
		"json_lines, two":        {spec: "json_lines", have: "1 2\n", wantError: "line 1: is not JSON at byte 3: invalid character '2' after top-level value"},
		"json_lines, many":       {spec: "json_lines", have: strings.Repeat("1\n", 100_001), wantError: "line 100001: a list has more than 100000 elements"},
		"json_lines, just right": {spec: "json_lines", have: strings.Repeat("\n\n", 100_001) + "1", want: list{int64(1)}},

		"csv":               {spec: "csv", have: "a,b\r\n1,\"x\ny\"\n\n,2", want: list{object{"a": "1", "b": "x\ny"}, object{"a": "", "b": "2"}}},
		"csv, mark":         {spec: "csv", have: "\ufeffa\n1\n", want: list{object{"a": "1"}}},
		"csv, header only":  {spec: "csv", have: "a,b\n", want: list{}},
		"csv, empty":        {spec: "csv", have: "\n", wantError: "must have a first line with the names of the columns"},
		"csv, ragged":       {spec: "csv", have: "a,b\n1,2\n1\n", wantError: "line 3: has 1 column, the first line has 2"},
		"csv, too wide":     {spec: "csv", have: "a,b\n\n1,2,3\n", wantError: "line 3: has 3 columns, the first line has 2"},
		"csv, twice":        {spec: "csv", have: "\na,b,a\n", wantError: `line 2: column "a" is given twice`},
		"csv, no name":      {spec: "csv", have: "a,,b\n", wantError: "line 1: column 2 must have a name"},
		"csv, quote":        {spec: "csv", have: "a\n1\n\"x\" y\n", wantError: "line 3: extraneous or missing \" in quoted-field"},
		"csv, quote above":  {spec: "csv", have: "a\"\n", wantError: "line 1: bare \" in non-quoted-field"},
		"csv, many columns": {spec: "csv", have: columns(1001) + "\n", wantError: "line 1: has more than 1000 columns"},
		"csv, many rows":    {spec: "csv", have: "a\n" + strings.Repeat("1\n", 100_001), wantError: "a list has more than 100000 elements"},
		"csv, many values":  {spec: "csv", have: columns(1000) + "\n" + strings.Repeat(strings.Repeat(",", 999)+"\n", 1001), wantError: "has more than 1000000 values"},

		"lines":            {spec: "lines", have: "a\r\n\n b\rc", want: list{"a", "", " b\rc"}},
		"lines, ended":     {spec: "lines", have: "a\n\n", want: list{"a", ""}},
		"lines, empty":     {spec: "lines", have: "", want: list{}},
		"lines, many":      {spec: "lines", have: strings.Repeat("\n", 100_001), wantError: "a list has more than 100000 elements"},
		"lines, very long": {spec: "lines", have: strings.Repeat("x", 64<<20+1), wantError: "has 64 MiB; at most 64 MiB"},

		"regex":               {spec: regex(`[a-z]+\d`), have: "ab1 c d2", want: list{"ab1", "d2"}},
		"regex, unnamed":      {spec: regex(`([a-z]+)\d`), have: "ab1", want: list{"ab1"}},
		"regex, named":        {spec: regex(`(?P<name>\w+)=(?:(?<number>\d+)|(x))`), have: "a=1 b=x", want: list{object{"name": "a", "number": "1"}, object{"name": "b", "number": nil}}},
		"regex, empty group":  {spec: regex(`a(?P<b>b*)`), have: "a", want: list{object{"b": ""}}},
		"regex, no match":     {spec: regex("x"), have: "y", want: list{}},
		"regex, many":         {spec: regex("x"), have: strings.Repeat("x", 100_001), wantError: "a list has more than 100000 elements"},
		"regex, not text":     {spec: regex("x"), have: object{}, wantError: "must be text, is a mapping"},
		"regex, wrong number": {spec: regex("x"), have: int64(1), wantError: "must be text, is a number"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := output(t, step("parse", test.spec)).Apply(test.have)
			if test.wantError != "" {
				require.EqualError(t, err, "output transform 1 (parse): "+test.wantError)
				require.Nil(t, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

// columns is the first line of a table.
func columns(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	return strings.Join(names, ",")
}

func TestExtract(t *testing.T) {
	value := object{
		"data": list{object{"a": int64(1), "b": "x"}, object{"a": int64(2), "b": "y?$..*"}, object{"b": nil}},
		"z":    "last", "m": "middle",
	}
	for path, want := range map[string]any{
		"$":                                  value,
		"$.data[0].a":                        int64(1),
		"$['data'][-2]['b']":                 "y?$..*",
		"$.data[2].b":                        nil,
		"$.data[*].a":                        list{int64(1), int64(2)},
		"$.data[1,0].a":                      list{int64(2), int64(1)},
		"$.data[:2].a":                       list{int64(1), int64(2)},
		"$.data[0,0].a":                      list{int64(1), int64(1)},
		"$..a":                               list{int64(1), int64(2)},
		"$.*":                                list{value["data"], "middle", "last"},
		"$..*":                               list{value["data"], "middle", "last", value["data"].(list)[0], value["data"].(list)[1], value["data"].(list)[2], int64(1), "x", int64(2), "y?$..*", nil},
		"$.none[*]":                          list{},
		"$.data[?@.a == 2].b":                list{"y?$..*"},
		"$.data[?@.b == 'y?$..*'].a":         list{int64(2)},
		"$.data[?@['a'] >= 1 && !(@.a > 1)]": list{value["data"].(list)[0]},
		"$.data[?search(@.b, '[xy]'), 0].a":  list{int64(1), int64(2), int64(1)},
		"$[?length(@) == 6]":                 list{"middle"},
		"$..[?@.a].a":                        list{int64(1), int64(2)},
	} {
		t.Run(path, func(t *testing.T) {
			out := output(t, step("extract", path))
			for range 5 { // never in the random order of a map
				got, err := out.Apply(value)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		})
	}
	for path, want := range map[string]string{
		"$.none":       `output transform 1 (extract): there is no value at "$.none"`,
		"$.data[9].b":  `output transform 1 (extract): there is no value at "$.data[9].b"`,
		"$.z.a":        `output transform 1 (extract): there is no value at "$.z.a"`,
		"$['\\u001b']": `output transform 1 (extract): there is no value at "$['\\u001b']"`,
	} {
		got, err := output(t, step("extract", path)).Apply(value)
		require.EqualError(t, err, want)
		require.Nil(t, got)
	}
}

func TestExtractIsBounded(t *testing.T) {
	long := make(list, 60_000)
	_, err := output(t, step("extract", "$[*,*]")).Apply(long)
	require.EqualError(t, err, "output transform 1 (extract): the query finds more than 100000 values")
	var deep any = long
	for range 60 {
		deep = list{deep}
	}
	_, err = output(t, step("extract", "$..[*]..[?@ == 'x']")).Apply(deep)
	require.EqualError(t, err, "output transform 1 (extract): the query looks at more than 2000000 values")
	_, err = output(t, step("extract", "$")).Apply(list{list{deep, list{list{list{list{deep}}}}}})
	require.EqualError(t, err, "input of the transforms: is nested deeper than 64 levels")
}

func TestFormat(t *testing.T) {
	value := object{"n": int64(3), "f": 2.5, "s": "<a>", "l": list{"x", int64(1)}, "o": object{"k": true}, "nil": nil,
		"big": json.Number("9223372036854775808"), "tree": list{list{list{}, list{}}}}
	for source, want := range map[string]string{
		"plain":                         "plain",
		"{{.n}} {{.f}} {{.s}} {{.o.k}}": "3 2.5 <a> true",
		"{{.big}} {{json .big}}":        "9223372036854775808 9223372036854775808",
		"{{json .}}":                    `{"big":9223372036854775808,"f":2.5,"l":["x",1],"n":3,"nil":null,"o":{"k":true},"s":"<a>","tree":[[[],[]]]}`,
		"{{range $i, $e := .l}}{{$i}}{{$e}},{{else}}none{{end}}":                           "0x,11,",
		"{{range $k, $v := .o}}{{$k}}={{$v}}{{end}}":                                       "k=true",
		"{{range 3}}{{if eq . 1}}{{continue}}{{end}}{{.}}{{end}}":                          "02",
		"{{range 9}}{{if eq . 2}}{{break}}{{end}}{{.}}{{end}}":                             "01",
		"{{if .nil}}yes{{else}}no{{end}}":                                                  "no",
		"{{with .o}}{{json .k}}{{end}}":                                                    "true",
		`{{define "a"}}[{{.}}]{{end}}{{template "a" .n}}`:                                  "[3]",
		`{{block "a" .s}}({{.}}){{end}}`:                                                   "(<a>)",
		`{{printf "%05.1f|%q|%d" .f .s (index .l 1)}}`:                                     "002.5|\"<a>\"|1",
		"{{html .s}} {{js .s}} {{urlquery .s}}":                                            `&lt;a&gt; \u003Ca\u003E %3Ca%3E`,
		"{{print 1 2}}{{println .s}}":                                                      "1 2<a>\n",
		"{{len .l}} {{slice .s 1 2}} {{and .n .f}} {{or .nil 1}} {{not .nil}} {{lt .n 4}}": "2 a 2.5 1 true true",
		// A template that calls itself to its end.
		`{{define "t"}}{{range .}}({{template "t" .}}){{end}}{{end}}{{template "t" .tree}}`: "(()())",
	} {
		got, err := output(t, step("format", source)).Apply(value)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
	for source, want := range map[string]string{
		"{{.none}}":           `map has no entry for key "none"`,
		"{{.o.none}}":         `map has no entry for key "none"`,
		"{{.nil.x}}":          `nil`,
		"{{.s.x}}":            `can't evaluate field x in type`,
		"{{json}}":            `wrong number of args for json`,
		"{{call .s}}":         `call`,
		`{{index .l 9}}`:      `index out of range`,
		"{{range .s}}{{end}}": `range can't iterate over <a>`,
	} {
		out, problems := transform.CompileOutput([]transform.Step{step("format", source)})
		require.Empty(t, problems)
		got, err := out.Apply(value)
		require.ErrorContains(t, err, "output transform 1 (format): ")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "_work")
		require.Nil(t, got)
	}
}

// TestTemplatesEnd: no template runs without end, and none fills the memory.
func TestTemplatesEnd(t *testing.T) {
	t.Parallel()
	many := make(list, 1000)
	for i := range many {
		many[i] = int64(i)
	}
	value := object{"many": many, "layout": strings.Repeat("%[1]1000000d", 10), "text": strings.Repeat("x", 600_000), "angles": strings.Repeat("<", 400_000)}
	const long, deep, large = "the template runs too long", "templates call each other more than 100 deep", "the result has more than 1 MiB"
	for source, want := range map[string]string{
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`:                                                                              deep,
		`{{define "a"}}{{template "b" .}}{{end}}{{define "b"}}{{template "a" .}}{{end}}{{template "b" .}}`:                                       deep,
		"{{range 9000000000000000000}}{{continue}}{{end}}":                                                                                       long,
		"{{range $.none}}{{else}}x{{end}}":                                                                                                       `map has no entry for key "none"`,
		`{{define "a"}}{{if true}}{{with 1}}{{range 0}}{{else}}{{range 9000000000000000000}}{{end}}{{end}}{{end}}{{end}}{{end}}{{template "a"}}`: long,
		"{{range .many}}{{range $.many}}{{range $.many}}{{end}}{{end}}{{end}}":                                                                   long,
		"{{range 9000000000000000000}}a line{{end}}":                                                                                             large,
		"{{range .many}}{{range $.many}}{{json $.many}}{{end}}{{end}}":                                                                           large,
		"{{.text}}{{.text}}": large,
		"{{$x := .text}}{{range 9}}{{$x = html $x}}{{$x = print $x $x}}{{end}}": "the values of a function have more than 1 MiB",
		"{{$x := html .angles}}":                        large,
		"{{range 9000000}}{{$x := json $.text}}{{end}}": long,
		"{{printf .layout 1}}":                          "the first argument of printf must have at most 1000 bytes, no *, no [ and no number above 999",
		`{{printf "%1000d" 1}}`:                         "the first argument of printf must have",
		`{{printf "%*d" 999999 1}}`:                     "the first argument of printf must have",
		doubling(60):                                    long,
	} {
		t.Run(source[:min(len(source), 60)], func(t *testing.T) {
			t.Parallel()
			got, err := output(t, step("format", source)).Apply(value)
			require.ErrorContains(t, err, "output transform 1 (format): ")
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "_work")
			require.Nil(t, got)
		})
	}
	got, err := output(t, step("format", "{{range 100}}{{range 100}}{{range 20}}x{{end}}{{end}}{{end}}")).Apply(nil)
	require.NoError(t, err)
	require.Len(t, got, 200_000)
}

// doubling is a template that calls 2^n templates and writes nothing.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{{define "t%d"}}{{template "t%d"}}{{template "t%d"}}{{end}}`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `{{define "t%d"}}{{$x := 1}}{{end}}{{template "t0"}}`, n)
	return b.String()
}

func TestChainOfOutputs(t *testing.T) {
	out := output(t, decode(t, `
steps:
- {type: parse, spec: json_lines}
- {type: extract, spec: "$[?@.ok == true].name"}
- {type: format, spec: "{{range .}}- {{.}}\n{{end}}"}
- {type: parse, spec: lines}
`)...)
	have := "{\"name\": \"a\", \"ok\": true}\n{\"name\": \"b\", \"ok\": false}\n{\"name\": \"c\", \"ok\": true}\n"
	var group sync.WaitGroup
	for range 4 { // one chain serves many calls at once
		group.Go(func() {
			got, err := out.Apply(have)
			if err != nil || fmt.Sprint(got) != "[- a - c]" {
				t.Errorf("have %v, %v", got, err)
			}
		})
	}
	group.Wait()

	got, err := new(transform.Output).Apply([]any{1})
	require.NoError(t, err)
	require.Equal(t, list{int64(1)}, got)
}

func TestStepError(t *testing.T) {
	_, err := output(t, step("parse", "json"), step("extract", "$.data")).Apply("{}")
	require.EqualError(t, err, `output transform 2 (extract): there is no value at "$.data"`)
	var failed *transform.StepError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Index)
	require.Equal(t, "extract", failed.Type)
	require.EqualError(t, errors.Unwrap(err), `there is no value at "$.data"`)
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "{\"a\": [1, 2.5]}\n\nnull\n", "a,b\n1,\"x\ny\"\n", "a,a\n", "\ufeffa\r\n\"", "[[[", "{\"a\":1e999}", "1\n{]"} {
		f.Add(seed)
	}
	lines, table := output(f, step("parse", "json_lines")), output(f, step("parse", "csv"))
	f.Fuzz(func(t *testing.T, whole string) {
		for _, out := range []*transform.Output{lines, table} {
			got, err := out.Apply(whole)
			if err != nil {
				require.Nil(t, got)
				require.Less(t, len(err.Error()), 1000)
				continue
			}
			require.IsType(t, list{}, got)
			// The result is plain data: it goes through a chain unchanged, and has a JSON text.
			again, err := new(transform.Output).Apply(got)
			require.NoError(t, err)
			require.Equal(t, got, again)
			_, err = json.Marshal(got)
			require.NoError(t, err)
		}
	})
}

func FuzzExtract(f *testing.F) {
	for _, seed := range []string{"$.a[0]", "$..b[?@.c > 1]", "$[?match(@.a, '[a')]", "$[?value(@.a) < @.b]", "$[?!@[0]]", "$[-1:0:-1]"} {
		f.Add(seed, `{"a": [1, {"b": {"c": 2}}], "b": [{"c": "x"}, null]}`)
	}
	f.Fuzz(func(t *testing.T, path, document string) {
		out, problems := transform.CompileOutput([]transform.Step{step("parse", "json"), step("extract", path)})
		if len(problems) > 0 {
			require.Nil(t, out)
			return
		}
		got, err := out.Apply(document)
		if err != nil {
			return
		}
		again, err := out.Apply(document)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
