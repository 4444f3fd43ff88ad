// Package strict reads documents that people and programs write, in YAML or JSON,
// into structs, and reports all problems of a document at once: every unknown key and every
// wrong value with its line, its path and the expected form.
//
// It is stricter than the format. A key that is given twice, an alias, a tag and a second
// document are problems. So each value has one place, and a small text cannot stand for a
// large value.
package strict

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// Options say how a document is read.
type Options struct {
	// Tag is the struct tag that has the names of keys: "yaml", the default, or "json".
	Tag string
	// Schema is the value that the key schema must have. A document with another one is
	// of another version: then that is its only problem. Empty checks nothing.
	Schema string
	// SchemaOptional takes a document without the key for one of this version.
	SchemaOptional bool
	// Lenient takes null for a key that was left out, and numbers for text, as readers
	// of YAML do.
	Lenient bool
	// Nullable are the paths at which null stands for a key that was left out.
	Nullable []string
	// Lines, if not nil, gets the line of every key and value by its path.
	Lines map[string]int
}

// A Word is a type for which a document may have a word in place of a mapping.
type Word interface {
	// SetWord sets the value to the meaning of the word.
	SetWord(word string) error
}

// Decode reads a document in YAML or JSON into a struct. It sets the fields that it can,
// and returns all problems in the order of the document. After [MaxProblems] problems a
// last one counts the rest.
func Decode(text []byte, into any, o Options) []Problem {
	if o.Tag == "" {
		o.Tag = "yaml"
	}
	root, problem := parse(text)
	if problem != nil {
		return []Problem{*problem}
	}
	if o.Schema != "" {
		if problem := o.version(root); problem != nil {
			return []Problem{*problem}
		}
	}
	if root == nil {
		return []Problem{{Rule: "must be a mapping of keys to values, is empty"}}
	}
	d := decoder{Options: o}
	d.value("", root, reflect.ValueOf(into).Elem(), 0)
	if d.more > 0 {
		d.problems = append(d.problems, Problem{Rule: fmt.Sprintf("has %d problems more", d.more)})
	}
	return d.problems
}

// version compares the schema of a document.
func (o Options) version(root *yaml.Node) *Problem {
	have, line := "", 0
	for i := 0; root != nil && i+1 < len(root.Content); i += 2 {
		if key, value := root.Content[i], root.Content[i+1]; key.Value == "schema" {
			have, line = value.Value, value.Line
		}
	}
	if have == o.Schema || o.SchemaOptional && have == "" {
		return nil
	}
	return &Problem{Line: line, Path: "schema", Rule: fmt.Sprintf("want %q, have %s", o.Schema, Quoted(have))}
}

type decoder struct {
	Options
	problems []Problem
	// more counts the problems that are not reported.
	more int
}

func (d *decoder) problem(n *yaml.Node, path, value, rule string, err error) {
	d.add(Problem{Line: n.Line, Path: path, Value: value, Rule: rule, Err: err})
}

func (d *decoder) add(p Problem) {
	if len(d.problems) == MaxProblems {
		d.more++
		return
	}
	d.problems = append(d.problems, p)
}

// expected reports a value of the wrong type.
func (d *decoder) expected(n *yaml.Node, path, what string) {
	rule := "must be " + what
	if kind := kindOf(n); !strings.HasPrefix(what, kind) {
		rule += ", is " + kind
	}
	d.problem(n, path, shown(n), rule, nil)
}

// value sets v to the value of a node.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value, depth int) {
	if d.Lines != nil {
		d.Lines[path] = n.Line
	}
	switch {
	case depth > maxDepth:
		d.problem(n, path, "", errDeep.Error(), nil)
		return
	case n.Kind == yaml.AliasNode:
		d.problem(n, path, "", "must not be an alias: write the value out", nil)
		return
	case n.Style&yaml.TaggedStyle != 0:
		d.problem(n, path, "", "must not have a tag such as "+Quoted(n.Tag), nil)
		return
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && v.Kind() != reflect.Interface:
		if !d.Lenient && !slices.Contains(d.Nullable, path) {
			d.problem(n, path, "", "must not be null: give a value or leave the key out", nil)
		}
		return
	}
	if v.Kind() == reflect.Pointer {
		elem := reflect.New(v.Type().Elem())
		before := len(d.problems) + d.more
		d.value(path, n, elem.Elem(), depth)
		// A value that could not be read stays absent.
		if v.Type().Elem().Kind() == reflect.Struct || len(d.problems)+d.more == before {
			v.Set(elem)
		}
		return
	}
	if d.own(path, n, v) {
		return
	}
	if pairs, ok := v.Addr().Interface().(*Pairs); ok {
		d.ordered(path, n, pairs, depth)
		return
	}
	switch v.Kind() {
	case reflect.Interface:
		d.anything(path, n, v, depth)
	case reflect.Struct:
		d.structure(path, n, v, depth)
	case reflect.Map:
		d.mapping(path, n, v, depth)
	case reflect.Slice:
		d.list(path, n, v, depth)
	default:
		d.scalar(path, n, v)
	}
}

// own lets a type read its value itself.
func (d *decoder) own(path string, n *yaml.Node, v reflect.Value) bool {
	var read func(text string) error
	switch target := v.Addr().Interface().(type) {
	case *time.Time: // before its UnmarshalText: YAML has times without an hour
		if n.Kind != yaml.ScalarNode || !isText(n) || n.Decode(target) != nil {
			d.expected(n, path, "a time such as 2026-01-31T12:00:00Z")
		}
		return true
	case Word:
		if n.Kind != yaml.ScalarNode {
			return false
		}
		read = target.SetWord
	case encoding.TextUnmarshaler:
		read = func(text string) error { return target.UnmarshalText([]byte(text)) }
	default:
		return false
	}
	if n.Kind != yaml.ScalarNode || !d.Lenient && !isText(n) {
		d.expected(n, path, "text")
		return true
	}
	if err := read(n.Value); err != nil {
		d.problem(n, path, "", err.Error(), err)
	}
	return true
}

// structure sets the fields of a struct by the names of their tags.
func (d *decoder) structure(path string, n *yaml.Node, v reflect.Value, depth int) {
	if n.Kind != yaml.MappingNode {
		what := "a mapping"
		if _, ok := v.Addr().Interface().(Word); ok {
			what = "a mapping or a word"
		}
		d.expected(n, path, what)
		return
	}
	fields := map[string]reflect.Value{}
	collectFields(v, d.Tag, fields)
	d.pairs(path, n, func(key *yaml.Node, at string, value *yaml.Node) {
		field, known := fields[key.Value]
		if !known {
			d.unknown(key, path, at, fields)
			return
		}
		d.value(at, value, field, depth+1)
	})
}

// unknown reports a key that a mapping does not have.
func (d *decoder) unknown(key *yaml.Node, path, at string, fields map[string]reflect.Value) {
	where := ""
	if path != "" {
		where = " in " + path
	}
	d.add(Problem{Line: key.Line, Path: at, named: true, Rule: fmt.Sprintf("unknown key %s%s; there are %s",
		Quoted(key.Value), where, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))})
}

func collectFields(v reflect.Value, tag string, fields map[string]reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get(tag), ",")
		switch {
		case options == "inline", field.Anonymous && name == "":
			collectFields(v.Field(i), tag, fields)
		case name != "" && name != "-":
			fields[name] = v.Field(i)
		}
	}
}

// mapping sets a map with text as keys.
func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value, depth int) {
	if n.Kind != yaml.MappingNode {
		d.expected(n, path, "a mapping")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(path, n, func(key *yaml.Node, at string, value *yaml.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(at, value, elem, depth+1)
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), elem)
	})
}

// pairs visits every key once.
func (d *decoder) pairs(path string, n *yaml.Node, visit func(key *yaml.Node, at string, value *yaml.Node)) {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0 || !isText(key) && !d.Lenient {
			d.problem(key, path, "", "has a key that is not text", nil)
			continue
		}
		at := Path(path, key.Value)
		if first, twice := lines[key.Value]; twice {
			d.problem(key, at, "", fmt.Sprintf("is given twice, first in line %d", first), nil)
			continue
		}
		lines[key.Value] = key.Line
		visit(key, at, n.Content[i+1])
	}
}

var plainKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`) })

// Path is the path of a key of a mapping. Keys are untrusted text.
func Path(path, key string) string {
	if len(key) > 100 || !plainKey().MatchString(key) {
		key = Quoted(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value, depth int) {
	if n.Kind != yaml.SequenceNode {
		d.expected(n, path, "a list")
		return
	}
	// Each value keeps its place, also behind one that is wrong.
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, value := range n.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), value, v.Index(i), depth+1)
	}
}

var wholeNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`) })

func (d *decoder) scalar(path string, n *yaml.Node, v reflect.Value) {
	isScalar, tag := n.Kind == yaml.ScalarNode, n.ShortTag()
	switch v.Kind() {
	case reflect.String:
		if !isScalar || !d.Lenient && !isText(n) {
			what := "text"
			if isScalar {
				what = "text: put it in quotes"
			}
			d.expected(n, path, what)
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if !isScalar || tag != "!!bool" {
			d.expected(n, path, "true or false")
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int, reflect.Int64:
		if !isScalar || tag != "!!int" || !wholeNumber().MatchString(n.Value) {
			d.expected(n, path, "a whole number in decimal digits")
			return
		}
		number, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		if err != nil {
			d.problem(n, path, shown(n), "is out of range", nil)
			return
		}
		v.SetInt(number)
	case reflect.Float64:
		number, err := strconv.ParseFloat(n.Value, 64)
		if !isScalar || tag != "!!int" && tag != "!!float" || err != nil {
			d.expected(n, path, "a number")
			return
		}
		v.SetFloat(number)
	default:
		panic("strict: no rule for " + v.Type().String())
	}
}
