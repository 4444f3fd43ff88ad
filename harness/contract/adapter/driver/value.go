package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/strict"
)

// maxDepth bounds how deep a parameter is nested.
const maxDepth = 64

// number matches numbers as JSON has them.
var number = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\z`)
})

// valueChecks returns a function that refuses the values that cannot be given to a language. own
// is the rule of the language that a value breaks, empty for none; it sees no value that no
// language has.
func valueChecks(own func(value any) string) func(parameters map[string]any) error {
	return func(parameters map[string]any) error { return checkMap("", parameters, own, 0) }
}

func checkMap(path string, values map[string]any, own func(value any) string, depth int) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at := strict.Path(path, key)
		if !utf8.ValidString(key) {
			errs = append(errs, fmt.Errorf("parameter %s has a name that is not UTF-8", at))
		}
		errs = append(errs, checkValue(at, values[key], own, depth))
	}
	return errors.Join(errs...)
}

func checkValue(path string, value any, own func(value any) string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("parameter %.200s is nested too deep; at most %d levels", path, maxDepth)
	}
	rule := ruleOf(value)
	if rule == "" {
		rule = own(value)
	}
	if rule != "" {
		return fmt.Errorf("parameter %s %s", path, rule)
	}
	var errs []error
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			errs = append(errs, checkValue(fmt.Sprintf("%s[%d]", path, i), item, own, depth+1))
		}
	case map[string]any:
		errs = append(errs, checkMap(path, value, own, depth+1))
	}
	return errors.Join(errs...)
}

// ruleOf is the rule that a value breaks in every language, empty for none.
func ruleOf(value any) string {
	switch value := value.(type) {
	case nil, bool, int64, []any, map[string]any:
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return "must be a finite number"
		}
	case json.Number:
		if !number().MatchString(value.String()) {
			return "must be a number as JSON has it"
		}
	case string:
		if !utf8.ValidString(value) {
			return "must be UTF-8"
		}
	default:
		return fmt.Sprintf("is of type %T, which JSON does not have", value)
	}
	return ""
}

// anyValue is the rule of a language that has all values.
func anyValue(any) string { return "" }

// isWhole reports whether a number has neither a point nor an exponent.
func isWhole(n json.Number) bool { return !strings.ContainsAny(n.String(), ".eE") }

// withPoint is a floating-point number that is not taken for a whole one.
func withPoint(value float64) json.Number {
	text := strconv.FormatFloat(value, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.Number(text)
}

// arguments are the values of the positional parameters in their order. It is never nil.
func arguments(c Call, f function) []any {
	values := make([]any, len(f.parameters))
	for i, p := range f.parameters {
		values[i] = c.Parameters[p.name]
	}
	return values
}

// keywords are all parameters. It is never nil.
func keywords(c Call) map[string]any {
	if c.Parameters == nil {
		return map[string]any{}
	}
	return c.Parameters
}
