package transform

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"

	"github.com/evalbox/evalbox/internal/strict"
)

const (
	// maxSelectors bounds the product of the numbers of selectors in the segments of a path.
	// It is how often a query can find the same value without descendants.
	maxSelectors = 50
	// maxVisits bounds how many values one segment of a path looks at.
	maxVisits = 2_000_000
)

// compileExtract compiles a query.
func compileExtract(value any, report report) func(any) (any, error) {
	path, ok := value.(string)
	switch {
	case !ok:
		report("", shown(value), "must be text with a JSONPath, is "+kindOf(value))
		return nil
	case len(path) > maxPattern:
		report("", strict.Quoted(path), fmt.Sprintf("has %d bytes; at most %d", len(path), maxPattern))
		return nil
	}
	parsed, err := jsonpath.Parse(path)
	if err == nil {
		err = checkCost(parsed.Query())
	}
	if err != nil {
		report("", strict.Quoted(path), "must be a JSONPath (RFC 9535): "+reason(err))
		return nil
	}
	query, one := parsed.Query(), parsed.Query().Singular() != nil
	return func(value any) (any, error) {
		nodes, err := find(query, value)
		switch {
		case err != nil:
			return nil, err
		case one && len(nodes) == 0:
			return nil, fmt.Errorf("there is no value at %s", strict.Quoted(path))
		case one:
			return nodes[0], nil
		}
		return plain(nodes) // a query may find a value twice, or within another one
	}
}

var quoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"`) })

// checkCost refuses queries whose work grows faster than their value. A filter looks at each
// value; so each look must be short.
func checkCost(query *spec.PathQuery) error {
	times := 1
	for _, segment := range query.Segments() {
		if times *= len(segment.Selectors()); times > maxSelectors {
			return fmt.Errorf("the selectors of all segments may be combined in at most %d ways", maxSelectors)
		}
		for _, selector := range segment.Selectors() {
			filter, ok := selector.(*spec.FilterSelector)
			if !ok {
				continue
			}
			// The text of the library has all names and texts in double quotes.
			words := strings.TrimPrefix(quoted().ReplaceAllString(filter.String(), `""`), "?")
			if strings.ContainsAny(words, "$*?:") || strings.Contains(words, "..") || severalNames().MatchString(words) {
				return errors.New("a filter may use only @ with names and indexes, such as @.a[0]")
			}
		}
	}
	return nil
}

// severalNames matches a segment with more than one selector.
var severalNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[[^\[\]]*,`) })

// find runs a query. The library would visit the values of an object in random order; here
// they are in the order of their keys.
func find(query *spec.PathQuery, root any) ([]any, error) {
	nodes := []any{root}
	for _, segment := range query.Segments() {
		f := finder{segment: segment, root: root}
		for _, node := range nodes {
			if err := f.visit(node); err != nil {
				return nil, err
			}
		}
		nodes = f.found
	}
	if nodes == nil {
		nodes = []any{}
	}
	return nodes, nil
}

// A finder runs one segment of a query.
type finder struct {
	segment *spec.Segment
	root    any
	found   []any
	visits  int
}

func (f *finder) visit(node any) error {
	below := elements(node)
	for _, selector := range f.segment.Selectors() {
		from := node
		switch selector.(type) {
		case spec.WildcardSelector, *spec.FilterSelector:
			from = below
			f.visits += len(below)
		}
		if f.visits++; f.visits > maxVisits {
			return fmt.Errorf("the query looks at more than %d values", maxVisits)
		}
		f.found = append(f.found, selector.Select(from, f.root)...)
		if len(f.found) > maxElements {
			return fmt.Errorf("the query finds more than %d values", maxElements)
		}
	}
	if !f.segment.IsDescendant() {
		return nil
	}
	for _, child := range below {
		if err := f.visit(child); err != nil {
			return err
		}
	}
	return nil
}

// elements are the values directly within a value, in a fixed order.
func elements(node any) []any {
	switch node := node.(type) {
	case []any:
		return node
	case map[string]any:
		all := make([]any, 0, len(node))
		for _, key := range sorted(node) {
			all = append(all, node[key])
		}
		return all
	}
	return nil
}
