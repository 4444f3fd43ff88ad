package sweep

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	Seeds []int64
	// Adapter is passed to the tool, unless it is nil; it is not blank.
	Adapter *string
}

// MaxRuns bounds the runs of one sweep.
const MaxRuns = 100_000

// maxText bounds a text among the values, in bytes.
const maxText = 4096

// axisName is what an axis may be called. \z, unlike Python's $, is the end of the text.
var axisName = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9_]*\z`)

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if len(c.Axes) == 0 {
		errs = append(errs, &policy.FieldError{Field: "axes", Rule: "must not be empty"})
	}
	if len(c.Seeds) == 0 {
		errs = append(errs, &policy.FieldError{Field: "seeds", Rule: "must not be empty"})
	}
	switch a := c.Adapter; {
	case a == nil:
	case strings.TrimSpace(*a) == "":
		errs = append(errs, &policy.FieldError{Field: "sweep", Rule: "adapter must not be empty"})
	case strings.ContainsRune(*a, 0) || !utf8.ValidString(*a):
		errs = append(errs, &policy.FieldError{Field: "adapter", Value: shown(*a), Rule: "must be UTF-8 without NUL bytes"})
	}
	count, told := map[string]int{}, 0
	for _, axis := range c.Axes {
		if count[axis.Name]++; count[axis.Name] == 2 {
			errs = append(errs, &policy.FieldError{Field: "sweep", Rule: "Duplicate axis names: " + shown(axis.Name)})
		}
		for _, err := range axis.problems() {
			if told++; told <= maxTold {
				errs = append(errs, err)
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if _, err := c.totalRuns(); err != nil {
		return err
	}
	return nil
}

// maxTold bounds how many problems of the same kind an error tells.
const maxTold = 20

func (a Axis) problems() []error {
	var errs []error
	switch {
	case a.Name == "":
		errs = append(errs, &policy.FieldError{Field: "axis", Rule: "name must not be empty"})
	case !axisName.MatchString(a.Name):
		errs = append(errs, &policy.FieldError{Field: "axis", Value: shown(a.Name),
			Rule: "the name must be alphanumeric or underscores, and begin with a letter"})
	}
	if len(a.Values) == 0 {
		errs = append(errs, &policy.FieldError{Field: "axis", Value: shown(a.Name), Rule: "values must not be empty"})
	}
	for i, value := range a.Values {
		if _, err := normal(value); err != nil {
			errs = append(errs, &policy.FieldError{Field: "axis", Value: shown(a.Name), Rule: fmt.Sprintf("value %d %v", i+1, err)})
		}
	}
	return errs
}

// TotalRuns is the product of the numbers of values, times the number of seeds; 0 for a
// configuration that Validate refuses.
func (c Config) TotalRuns() int {
	if c.Validate() != nil {
		return 0
	}
	n, _ := c.totalRuns() // Validate has asked
	return n
}

func (c Config) totalRuns() (int, error) {
	factors := []int{len(c.Seeds)}
	for _, axis := range c.Axes {
		factors = append(factors, len(axis.Values))
	}
	n := 1
	for _, factor := range factors {
		if factor > MaxRuns/n {
			return 0, &policy.FieldError{Field: "axes", Rule: "make more than " + strconv.Itoa(MaxRuns) + " runs; leave out values or seeds"}
		}
		n *= factor
	}
	return n, nil
}

// A Point is one combination of values, and a seed.
type Point struct {
	// Values has the value of every axis: nil, bool, string or [json.Number].
	Values map[string]any
	Seed   int64
}

// Points are the combinations in the order of their runs (MI-09): axes by name, values
// and seeds as they were given, seeds fastest, the last axis before them.
func (c Config) Points() ([]Point, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	axes := c.sorted()
	combinations := []map[string]any{{}}
	for _, axis := range axes {
		var next []map[string]any
		for _, before := range combinations {
			for _, value := range axis.Values {
				values := maps.Clone(before)
				values[axis.Name] = value
				next = append(next, values)
			}
		}
		combinations = next
	}
	var points []Point
	for _, values := range combinations {
		for _, seed := range c.Seeds {
			points = append(points, Point{values, seed})
		}
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
			written, _ := normal(value) // Validate has asked
			axes[i].Values = append(axes[i].Values, written)
		}
	}
	slices.SortFunc(axes, func(a, b Axis) int { return strings.Compare(a.Name, b.Name) })
	return axes
}

// shown quotes the beginning of a text for a message.
func shown(name string) string { return text.Quote(name, 80) }
