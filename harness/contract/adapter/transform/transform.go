// Package transform changes the parameters of a tool before its call, and the answer of the
// tool after it, as an adapter says (AR-06). The transforms are pure functions: they read no
// file, open no connection, start no program, and give the same result for the same value.
//
// Adapters and answers are not trusted. So each transform is bounded in the size of
// its input, in its work and in the size of its result. What exceeds a bound is an error.
package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
)

// Types of input transforms.
const (
	Rename   = "rename"
	Map      = "map"
	Default  = "default"
	Validate = "validate"
)

// Types of output transforms.
const (
	Parse   = "parse"
	Extract = "extract"
	Format  = "format"
)

const (
	// maxSteps bounds the steps of a chain.
	maxSteps = 50
	// maxElements bounds the elements of one list that a parse or an extract makes.
	maxElements = 100_000
	// maxValues bounds all values of a result, also nested ones.
	maxValues = 1_000_000
	// maxDepth bounds how deep lists and mappings are nested.
	maxDepth = 64
	// maxText bounds the text that a parse reads, in bytes.
	maxText = 64 << 20
	// maxRule bounds the reason of a library in a message, in characters.
	maxRule = 400
	// maxListed bounds the words that a message lists.
	maxListed = 10
)

// Step is one transform of an adapter.
type Step struct {
	Type string `json:"type"`
	// Spec is nil, bool, int64, float64, string, []any or map[string]any, as package strict
	// decodes a value of any form.
	Spec any `json:"spec"`
}

// StepError says which step of a chain failed, and why.
type StepError struct {
	// Index is the place of the step in its list, from 0.
	Index int
	// Type is the type of the step, such as "extract".
	Type string
	Err  error

	direction string // input or output
}

// Error names the step by its number, from 1.
func (e *StepError) Error() string {
	return fmt.Sprintf("%s transform %d (%s): %v", e.direction, e.Index+1, e.Type, e.Err)
}

// Unwrap returns the reason.
func (e *StepError) Unwrap() error { return e.Err }

// A chain is a list of compiled steps. V is the form of the value that goes through it.
type chain[V any] struct {
	direction string
	types     []string
	steps     []func(V) (V, error)
}

// apply gives a value to each step in turn.
func (c *chain[V]) apply(value V) (V, error) {
	for i, step := range c.steps {
		next, err := step(value)
		if err != nil {
			var none V
			return none, &StepError{Index: i, Type: c.types[i], Err: err, direction: c.direction}
		}
		value = next
	}
	return value, nil
}

// A report takes the problems of one spec. Field is the place within the spec, such as
// ".regex"; empty for the spec itself.
type report func(field, value, rule string)

// A compiler makes the function of a step from its spec. What it returns after a problem is
// not used.
type compiler[V any] func(spec any, report report) func(V) (V, error)

// compile makes a chain. elsewhere are the types of the other direction. The chain is nil if
// there are problems.
func compile[V any](direction string, steps []Step, compilers map[string]compiler[V], elsewhere []string) (*chain[V], []strict.Problem) {
	if len(steps) > maxSteps {
		return nil, []strict.Problem{{Rule: fmt.Sprintf("has %d steps; at most %d", len(steps), maxSteps)}}
	}
	var problems []strict.Problem
	c := &chain[V]{direction: direction}
	for i, step := range steps {
		prepare, known := compilers[step.Type]
		if !known {
			problems = append(problems, strict.Problem{Path: fmt.Sprintf("[%d].type", i), Value: strict.Quoted(step.Type),
				Rule: typeRule(step.Type, direction, slices.Sorted(maps.Keys(compilers)), elsewhere)})
			continue
		}
		c.types = append(c.types, step.Type)
		c.steps = append(c.steps, prepare(step.Spec, func(field, value, rule string) {
			problems = append(problems, strict.Problem{Path: fmt.Sprintf("[%d].spec%s", i, field), Value: value, Rule: rule})
		}))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return c, nil
}

// typeRule says which types a list may have.
func typeRule(given, direction string, here, elsewhere []string) string {
	rule := "must be one of " + text.List(here)
	if slices.Contains(elsewhere, given) {
		other := map[string]string{"input": "output", "output": "input"}[direction]
		rule += fmt.Sprintf("; %s belongs in transforms.%s", given, other)
	}
	return rule
}

// mapping reads a spec that is a mapping with at least one key.
func mapping(spec any, report report) (map[string]any, bool) {
	all, ok := spec.(map[string]any)
	switch {
	case !ok:
		report("", shown(spec), "must be a mapping, is "+kindOf(spec))
	case len(all) == 0:
		report("", "", "must have at least one key")
	default:
		return all, true
	}
	return nil, false
}

// sorted are the keys of a mapping in a fixed order.
func sorted[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

// listed names words for people: the first of them in quotes, and the number of the others.
func listed(words []string) string {
	first := make([]string, 0, maxListed)
	for _, word := range words[:min(len(words), maxListed)] {
		first = append(first, strict.Quoted(word))
	}
	if more := len(words) - len(first); more > 0 {
		return fmt.Sprintf("%s and %d more", text.List(first), more)
	}
	return text.List(first)
}

// kindOf names the kind of a value, for people.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case int64, float64, json.Number:
		return "a number"
	case string:
		return "text"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return fmt.Sprintf("a %T", value)
}

// shown is the beginning of a value in a message; empty for lists and mappings.
func shown(value any) string {
	if s, ok := value.(string); ok {
		return strict.Quoted(s)
	}
	s, _ := textOf(value)
	return s
}

// textOf is the text form of a value that is not a list or a mapping.
func textOf(value any) (string, bool) {
	switch value := value.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(value), true
	case int64:
		return strconv.FormatInt(value, 10), true
	case float64:
		return text.Number(value), true
	case json.Number:
		return value.String(), true
	case string:
		return value, true
	}
	return "", false
}

// reason is the beginning of the message of a library, on one line and without control
// characters: it repeats untrusted values.
func reason(err error) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text.Short(err.Error(), 8*maxRule))
	return text.Fit(text.OneLine(printable), maxRule)
}

// A counter counts the values of a result.
type counter struct{ values int }

func (c *counter) add() error {
	if c.values++; c.values > maxValues {
		return fmt.Errorf("has more than %d values", maxValues)
	}
	return nil
}

// plain copies a value of plain data, whole. So no step changes a value that somebody else
// holds, and no template reaches a method or a function.
func plain(value any) (any, error) { return new(counter).plain(value, 0) }

func (c *counter) plain(value any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	if err := c.add(); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case nil, bool, int64, string:
		return value, nil
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("has the number %v, which JSON does not have", value)
		}
		return value, nil
	case int:
		return int64(value), nil
	case json.Number:
		if !json.Valid([]byte(value)) {
			return nil, fmt.Errorf("has %s, which is not a number", strict.Quoted(value.String()))
		}
		return number(value), nil
	case []any:
		all := make([]any, len(value))
		for i, element := range value {
			var err error
			if all[i], err = c.plain(element, depth+1); err != nil {
				return nil, err
			}
		}
		return all, nil
	case map[string]any:
		return c.plainMapping(value, depth)
	}
	return nil, fmt.Errorf("has a value of the type %T, which is not plain data", value)
}

func (c *counter) plainMapping(value map[string]any, depth int) (map[string]any, error) {
	all := make(map[string]any, len(value))
	for key, element := range value {
		var err error
		if all[key], err = c.plain(element, depth+1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// number is a number of JSON: int64 if it is whole, without fraction and exponent, and fits;
// otherwise float64. A whole number that does not fit, and one beyond float64, stay as they
// are: no digits are lost.
func number(n json.Number) any {
	if strings.ContainsAny(n.String(), ".eE") {
		if f, err := n.Float64(); err == nil {
			return f
		}
		return n
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	return n
}

// parameterError names a parameter, its value and the rule that the value breaks.
func parameterError(name, value, rule string) error {
	return errors.New(strict.Problem{Path: strict.Path("", name), Value: value, Rule: rule}.String())
}
