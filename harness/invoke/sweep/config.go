// Package sweep runs a tool over axes of values and over seeds, each combination in a
// directory of its own (MI-08 to MI-11).
//
// [NewPlan] decides everything: the order of the runs, the names of their directories, the
// spec of each one. It does no I/O and refuses runs that cannot be distinguished. [Run]
// carries a plan out on a queue of jobs, and resumes an interrupted one.
//
// No file that it writes depends on the clock or on a random number. The sweep's manifest holds
// the values, the seeds and the hashes of the tool's manifests only, so it is the same, byte for
// byte, however many runs went on at once.
package sweep

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

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// An Axis is one thing that a sweep varies.
type Axis struct {
	// Name is letters, digits and underscores, and begins with a letter.
	Name string
	// Values are texts, numbers, booleans or nil; at least one. A number is a Go integer,
	// a finite float or a [json.Number]. A float keeps its point: 1.0 is not 1.
	Values []any
}

// Config is what to sweep over (MI-08).
type Config struct {
	// Axes, of which there is at least one, have different names.
	Axes []Axis
	// Seeds, of which there is at least one, are passed to the tool in their order.
	Seeds []invoke.Seed
	// Adapter is passed to the tool, unless it is nil; it is not blank.
	Adapter *string
}

const (
	// MaxRuns bounds the runs of one sweep.
	MaxRuns = 100_000

	maxText     = 4096 // bytes of a text among the values
	maxName     = 255  // bytes of the name of a directory
	maxProblems = 20   // of one kind in an error
)

// axisName is the form of the name of an axis. \z, unlike Python's $, is the end of the text.
var axisName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9_]*\z`) })

// shown quotes the beginning of a text for a message.
func shown(name string) string { return text.Quote(name, 80) }

// Validate reports all problems.
func (c Config) Validate() error {
	_, err := c.check()
	return err
}

// TotalRuns is the product of the numbers of values, times the number of seeds; 0 for a
// configuration that Validate refuses.
func (c Config) TotalRuns() int {
	n, _ := c.check()
	return n
}

func (c Config) check() (runs int, err error) {
	var errs []error
	refuse := func(field, value, rule string) {
		errs = append(errs, &policy.FieldError{Field: field, Value: value, Rule: rule})
	}
	if len(c.Axes) == 0 {
		refuse("axes", "", "must not be empty")
	}
	if len(c.Seeds) == 0 {
		refuse("seeds", "", "must not be empty")
	}
	switch a := c.Adapter; {
	case a == nil:
	case strings.TrimSpace(*a) == "":
		refuse("sweep", "", "adapter must not be empty")
	case strings.ContainsRune(*a, 0) || !utf8.ValidString(*a):
		refuse("adapter", shown(*a), "must be UTF-8 without NUL bytes")
	}
	count := map[string]int{}
	before := len(errs)
	for _, axis := range c.Axes {
		if count[axis.Name]++; count[axis.Name] == 2 {
			refuse("sweep", "", "Duplicate axis names: "+shown(axis.Name))
		}
		switch {
		case axis.Name == "":
			refuse("axis", "", "name must not be empty")
		case !axisName().MatchString(axis.Name):
			refuse("axis", shown(axis.Name), "the name must be alphanumeric or underscores, and begin with a letter")
		}
		if len(axis.Values) == 0 {
			refuse("axis", shown(axis.Name), "values must not be empty")
		}
		for i, value := range axis.Values {
			if _, err := normal(value); err != nil {
				refuse("axis", shown(axis.Name), fmt.Sprintf("value %d %v", i+1, err))
			}
		}
	}
	if len(errs) > 0 {
		return 0, errors.Join(errs[:min(len(errs), before+maxProblems)]...)
	}
	runs = len(c.Seeds)
	for _, axis := range c.Axes {
		if runs *= len(axis.Values); runs > MaxRuns {
			return 0, &policy.FieldError{Field: "axes", Rule: fmt.Sprintf("make more than %d runs; leave out values or seeds", MaxRuns)}
		}
	}
	return runs, nil
}

// A Point is one combination of values, and a seed.
type Point struct {
	// Values has the value of every axis: nil, bool, string or [json.Number].
	Values map[string]any `json:"axis_values"`
	Seed   invoke.Seed    `json:"seed"`
}

// String is for messages.
func (p Point) String() string {
	const most = 200
	text, err := DeterministicJSON(p.Values)
	if err != nil || len(text) > most {
		text = []byte("{…}")
	}
	return fmt.Sprintf("%s with seed %v", text, p.Seed)
}

// Points are the combinations in the order of their runs (MI-09): axes by name, values
// and seeds as they were given, seeds fastest, the last axis before them.
func (c Config) Points() ([]Point, error) {
	runs, err := c.check()
	if err != nil {
		return nil, err
	}
	points, axes := make([]Point, runs), c.sorted()
	for i := range points {
		values, rest := map[string]any{}, i/len(c.Seeds)
		for _, axis := range slices.Backward(axes) {
			values[axis.Name] = axis.Values[rest%len(axis.Values)]
			rest /= len(axis.Values)
		}
		points[i] = Point{values, c.Seeds[i%len(c.Seeds)]}
	}
	return points, nil
}

// sorted are the axes by the code points of their names, with their values in the form
// that is written. c is valid.
func (c Config) sorted() []Axis {
	axes := make([]Axis, len(c.Axes))
	for i, axis := range c.Axes {
		axes[i].Name = axis.Name
		for _, value := range axis.Values {
			written, _ := normal(value) // cannot fail: c is valid
			axes[i].Values = append(axes[i].Values, written)
		}
	}
	slices.SortFunc(axes, func(a, b Axis) int { return strings.Compare(a.Name, b.Name) })
	return axes
}

// normal is a value in the form that is written: nil, bool, string, or a json.Number that
// is spelled as Python spells it.
func normal(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool:
		return v, nil
	case string:
		if len(v) > maxText {
			return nil, fmt.Errorf("has more than %d bytes", maxText)
		}
		if !utf8.ValidString(v) {
			return nil, errors.New("is not UTF-8")
		}
		return v, nil
	case int, int64, uint64:
		return json.Number(fmt.Sprint(v)), nil
	case float64:
		return floatNumber(v)
	case json.Number:
		return normalNumber(v)
	}
	kind := fmt.Sprintf("of type %T", value)
	switch value.(type) {
	case []any:
		kind = "a list"
	case map[string]any:
		kind = "an object"
	}
	return nil, fmt.Errorf("is %s; a value is a text, a number, true, false or null", kind)
}

// normalNumber reads a number as Python's json does: with a point or an exponent it is a
// float.
func normalNumber(n json.Number) (any, error) {
	switch {
	case len(n) > maxText || !isNumber(n):
		return nil, fmt.Errorf("%s is not a number", shown(string(n)))
	case strings.ContainsAny(string(n), ".eE"):
		f, err := n.Float64()
		if err != nil {
			return nil, fmt.Errorf("%s does not fit into a float", shown(string(n)))
		}
		return floatNumber(f)
	case n == "-0":
		return json.Number("0"), nil
	}
	return n, nil
}

// floatNumber is a finite float as Python's repr has it: the shortest digits that read back
// as the same float, with a point or an exponent.
func floatNumber(f float64) (json.Number, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return "", errors.New("is not finite")
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, _ := strings.Cut(scientific, "e")
	if e, err := strconv.Atoi(exponent); err == nil && (e < -4 || e >= 16) {
		return json.Number(scientific), nil
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.Number(text), nil
}

// EncodeValue is a value as it stands in the name of a directory (MI-09): as Python's str
// writes it, with p for a point and m for a hyphen, and otherwise only ASCII letters,
// digits and underscores. It may be empty. Different values may be encoded alike;
// [NewPlan] refuses those.
func EncodeValue(value any) (string, error) {
	value, err := normal(value)
	if err != nil {
		return "", err
	}
	text := fmt.Sprint(value)
	switch value {
	case nil:
		text = "None"
	case true:
		text = "True"
	case false:
		text = "False"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '.':
			return 'p'
		case r == '-':
			return 'm'
		case r == '_', '0' <= r && r <= '9', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			return r
		}
		return -1
	}, text), nil
}

// DirName is the name of the directory of one run (MI-09): name=value of every axis by the
// order of their names, and seed=N, with underscores between them.
func DirName(values map[string]any, seed invoke.Seed) (string, error) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		encoded, err := EncodeValue(values[name])
		if err != nil {
			return "", err
		}
		parts = append(parts, name+"="+encoded)
	}
	return strings.Join(append(parts, "seed="+seed.String()), "_"), nil
}
