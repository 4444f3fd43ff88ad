package transform

import (
	"fmt"
	"maps"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalbox/evalbox/internal/strict"
)

// jsonSchema is the word that stands for the schema of the adapter.
const jsonSchema = "json_schema"

// Input is a compiled chain of input transforms. It is safe for concurrent use. The zero
// value has no steps.
type Input struct {
	chain chain[map[string]any]
}

// CompileInput compiles the input transforms of an adapter (AR-06). schema is the schema that
// the word json_schema names; nil if the adapter has none. It must not change afterwards. The
// problems are all problems of the list; if there are any, the chain is nil.
//
//   - rename: a mapping of parameters to their new names. An absent parameter stays absent.
//   - map: a mapping of parameters to tables. A table maps the text form of a value to the
//     new value. A present value must be in the table.
//   - default: a mapping of parameters to the values that they have if they are absent. A
//     parameter that is null is present.
//   - validate: a JSON Schema (draft 2020-12), or the word json_schema.
func CompileInput(steps []Step, schema *jsonschema.Schema) (*Input, []strict.Problem) {
	c, problems := compile("input", steps, map[string]compiler[map[string]any]{
		Rename:  compileRename,
		Map:     compileMap,
		Default: compileDefault,
		Validate: func(spec any, report report) func(map[string]any) (map[string]any, error) {
			return compileValidate(spec, schema, report)
		},
	}, []string{Parse, Extract, Format})
	if c == nil {
		return nil, problems
	}
	return &Input{chain: *c}, nil
}

// Apply returns the parameters after all steps. It does not change its argument, and the
// result shares nothing with it. Parameters must be plain data, as package strict or
// encoding/json decodes it. The error is a [*StepError], except for parameters that are not
// plain data.
func (in *Input) Apply(parameters map[string]any) (map[string]any, error) {
	own, err := new(counter).plainMapping(parameters, 0)
	if err != nil {
		return nil, fmt.Errorf("input of the transforms: %w", err)
	}
	return in.chain.apply(own)
}

// compileRename compiles new names. All names change at once, so two parameters can swap
// their names.
func compileRename(spec any, report report) func(map[string]any) (map[string]any, error) {
	all, ok := mapping(spec, report)
	if !ok {
		return nil
	}
	names, sources := map[string]string{}, map[string]string{}
	for _, from := range sorted(all) {
		to, ok := all[from].(string)
		field := "." + strict.Path("", from)
		switch {
		case !ok:
			report(field, shown(all[from]), "must be text, is "+kindOf(all[from]))
		case from == "" || to == "":
			report(field, "", "must be a mapping of a name to a name; neither may be empty")
		case sources[to] != "":
			report(field, strict.Quoted(to), "is the new name of "+strict.Quoted(sources[to])+" too")
		default:
			names[from], sources[to] = to, from
		}
	}
	return func(parameters map[string]any) (map[string]any, error) { return rename(parameters, names) }
}

func rename(parameters map[string]any, names map[string]string) (map[string]any, error) {
	out := maps.Clone(parameters)
	for from := range names {
		delete(out, from)
	}
	for _, from := range sorted(names) {
		value, present := parameters[from]
		if !present {
			continue
		}
		if _, taken := out[names[from]]; taken {
			return nil, fmt.Errorf("%s cannot become %s: there is such a parameter already",
				strict.Quoted(from), strict.Quoted(names[from]))
		}
		out[names[from]] = value
	}
	return out, nil
}

// compileMap compiles tables of values.
func compileMap(spec any, report report) func(map[string]any) (map[string]any, error) {
	all, ok := mapping(spec, report)
	if !ok {
		return nil
	}
	tables := map[string]map[string]any{}
	for _, parameter := range sorted(all) {
		field := "." + strict.Path("", parameter)
		table, ok := mapping(all[parameter], func(at, value, rule string) { report(field+at, value, rule) })
		if ok {
			tables[parameter] = copyOf(table, field, report)
		}
	}
	return func(parameters map[string]any) (map[string]any, error) { return mapValues(parameters, tables) }
}

func mapValues(parameters map[string]any, tables map[string]map[string]any) (map[string]any, error) {
	out := maps.Clone(parameters)
	for _, parameter := range sorted(tables) {
		value, present := parameters[parameter]
		if !present {
			continue
		}
		key, ok := textOf(value)
		if !ok {
			return nil, parameterError(parameter, "", "must be text, a number, true, false or null, is "+kindOf(value))
		}
		mapped, known := tables[parameter][key]
		if !known {
			return nil, parameterError(parameter, strict.Quoted(key), "must be one of "+listed(sorted(tables[parameter])))
		}
		var err error
		if out[parameter], err = plain(mapped); err != nil { // the caller may change it
			return nil, parameterError(parameter, "", err.Error())
		}
	}
	return out, nil
}

// compileDefault compiles values of absent parameters.
func compileDefault(spec any, report report) func(map[string]any) (map[string]any, error) {
	all, ok := mapping(spec, report)
	if !ok {
		return nil
	}
	defaults := copyOf(all, "", report)
	return func(parameters map[string]any) (map[string]any, error) {
		out := maps.Clone(parameters)
		for _, parameter := range sorted(defaults) {
			if _, present := out[parameter]; present {
				continue
			}
			var err error
			if out[parameter], err = plain(defaults[parameter]); err != nil { // the caller may change it
				return nil, parameterError(parameter, "", err.Error())
			}
		}
		return out, nil
	}
}

// copyOf copies a mapping of a spec, which its owner may change later.
func copyOf(all map[string]any, field string, report report) map[string]any {
	own, err := new(counter).plainMapping(all, 0)
	if err != nil {
		report(field, "", err.Error())
	}
	return own
}

// compileValidate compiles a check of all parameters. It changes none.
func compileValidate(spec any, schema *jsonschema.Schema, report report) func(map[string]any) (map[string]any, error) {
	switch spec := spec.(type) {
	case string:
		if spec != jsonSchema {
			report("", strict.Quoted(spec), "must be json_schema, or a mapping that is a JSON Schema")
			return nil
		}
		if schema == nil {
			report("", strict.Quoted(spec), "names the schema of the adapter, which has none")
			return nil
		}
	case map[string]any:
		var err error
		if schema, err = readSchema(spec); err != nil {
			report("", "", "must be a JSON Schema: "+reason(err))
			return nil
		}
	default:
		report("", shown(spec), "must be json_schema, or a mapping that is a JSON Schema, is "+kindOf(spec))
		return nil
	}
	checker, err := newChecker(schema)
	if err != nil {
		report("", "", "must be a JSON Schema: "+reason(err))
		return nil
	}
	return func(parameters map[string]any) (map[string]any, error) {
		if err := checker.check(parameters); err != nil {
			return nil, fmt.Errorf("the parameters do not fit the schema: %s", strings.TrimPrefix(reason(err), "validating root: "))
		}
		return parameters, nil
	}
}
