package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
)

// draft is the version of JSON Schema.
const draft = "https://json-schema.org/draft/2020-12/schema"

// maxChecks bounds how many schemas check one value. A few schemas that each refer to the next
// one twice would check a value more often than there is time for.
const maxChecks = 2000

// A checker is a schema that is ready for checks.
type checker struct {
	resolved *jsonschema.Resolved
	// levels is how deep a value may be nested, so that maxChecks holds.
	levels int
}

// readSchema reads the schema in a spec.
func readSchema(spec map[string]any) (*jsonschema.Schema, error) {
	document, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	s := new(jsonschema.Schema)
	return s, json.Unmarshal(document, s)
}

// newChecker prepares a schema. Nothing is loaded: references stay within the schema.
func newChecker(s *jsonschema.Schema) (*checker, error) {
	if s.Schema != "" && s.Schema != draft {
		return nil, fmt.Errorf("$schema is %s; it must be %s", strict.Quoted(s.Schema), draft)
	}
	// Resolve comes first: it says whether the schemas are a tree.
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{Loader: func(at *url.URL) (*jsonschema.Schema, error) {
		return nil, fmt.Errorf("%s is outside of the document", strict.Quoted(at.String()))
	}})
	if err != nil {
		return nil, err
	}
	if err := checkKeywords(s, s); err != nil {
		return nil, err
	}
	c := &checker{resolved: resolved, levels: -1}
	w := schemaWalk{root: s, known: map[checking]int{}}
	for levels := range maxDepth + 1 {
		n, err := w.most(s, levels)
		if err != nil {
			return nil, err
		}
		if n > maxChecks {
			break
		}
		c.levels = levels
	}
	if c.levels < 1 { // the parameters are a mapping of values
		return nil, fmt.Errorf("more than %d schemas check one value", maxChecks)
	}
	return c, nil
}

// check says why a value does not fit.
func (c *checker) check(value any) error {
	if depthOf(value) > c.levels {
		return fmt.Errorf("must not be nested deeper than %d levels for this schema", c.levels)
	}
	err := c.resolved.Validate(value)
	// The library names every schema on the way. The last one is next to the reason.
	for inner := errors.Unwrap(err); inner != nil && errors.Unwrap(inner) != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

// depthOf is how many lists and mappings are within each other, without the outermost value.
func depthOf(value any) int {
	deepest := -1
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			deepest = max(deepest, depthOf(element))
		}
	case map[string]any:
		for _, element := range value {
			deepest = max(deepest, depthOf(element))
		}
	}
	return deepest + 1
}

// Types of values, as the keyword type has them.
const (
	typeObject = "object"
	typeArray  = "array"
	typeOther  = "" // any other type: nothing is below it
)

// A checking is a schema that checks a value of a type with a number of levels below it.
type checking struct {
	schema *jsonschema.Schema
	kind   string
	levels int
}

// A schemaWalk counts how many schemas check one value.
type schemaWalk struct {
	root  *jsonschema.Schema
	known map[checking]int // 0 while it is being counted
}

// most counts the schemas that check a value, and those that check one value within it. It is
// an upper bound, and maxChecks+1 for all above maxChecks.
func (w *schemaWalk) most(s *jsonschema.Schema, levels int) (int, error) {
	most := 0
	for _, kind := range []string{typeObject, typeArray, typeOther} {
		n, err := w.count(checking{s, kind, levels})
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// count is most for a value of one type.
func (w *schemaWalk) count(at checking) (int, error) {
	if at.schema == nil || at.levels < 0 {
		return 0, nil
	}
	switch n, visited := w.known[at]; {
	case visited && n == 0:
		return 0, errors.New("a schema refers to itself for the same value")
	case visited:
		return n, nil
	}
	w.known[at] = 0
	total := 1
	same, err := w.same(at)
	if err != nil {
		return 0, err
	}
	for _, other := range same {
		n, err := w.count(checking{other, at.kind, at.levels})
		if err != nil {
			return 0, err
		}
		total += n
	}
	if permits(at.schema, at.kind) {
		n, err := w.below(at)
		if err != nil {
			return 0, err
		}
		total += n
	}
	total = min(total, maxChecks+1)
	w.known[at] = total
	return total, nil
}

// same are the schemas that check the same value. A value of a wrong type is checked by the
// reference only, which comes before the type.
func (w *schemaWalk) same(at checking) ([]*jsonschema.Schema, error) {
	s, all := at.schema, []*jsonschema.Schema(nil)
	if s.Ref != "" {
		target, err := target(w.root, s.Ref)
		if err != nil {
			return nil, err
		}
		all = append(all, target)
	}
	if permits(s, at.kind) {
		all = slices.Concat(all, applied(s))
	}
	return all, nil
}

// applied are the schemas within s that check the same value.
func applied(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*jsonschema.Schema{s.Not, s.If, s.Then, s.Else})
	return slices.AppendSeq(all, maps.Values(s.DependentSchemas))
}

// permits says whether the keyword type of a schema permits a type.
func permits(s *jsonschema.Schema, kind string) bool {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	other := func(name string) bool { return name != typeObject && name != typeArray }
	return len(types) == 0 || slices.Contains(types, kind) || kind == typeOther && slices.ContainsFunc(types, other)
}

// below counts the schemas that check one value within a list or mapping.
func (w *schemaWalk) below(at checking) (int, error) {
	total, err := 0, error(nil)
	// most of some schemas, because a value within meets one of them
	most := func(schemas ...*jsonschema.Schema) int {
		n := 0
		for _, s := range schemas {
			one, fault := 0, error(nil)
			if s != nil && at.levels > 0 {
				one, fault = w.most(s, at.levels-1)
			}
			n, err = max(n, one), errors.Join(err, fault)
		}
		return n
	}
	s := at.schema
	switch at.kind {
	case typeArray:
		total = most(append(slices.Clone(s.PrefixItems), s.Items)...) + most(s.Contains) + most(s.UnevaluatedItems)
	case typeObject:
		total = most(slices.Collect(maps.Values(s.Properties))...)
		for child := range maps.Values(s.PatternProperties) { // a name may match several patterns
			total += most(child)
		}
		total = max(total, most(s.AdditionalProperties), most(s.PropertyNames)) + most(s.UnevaluatedProperties)
	}
	return total, err
}

// target is the schema that a reference names. Only two forms are permitted: their meaning does
// not depend on the place of the reference.
func target(root *jsonschema.Schema, ref string) (*jsonschema.Schema, error) {
	if ref == "#" {
		return root, nil
	}
	collection, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/"), "/")
	schemas := map[string]map[string]*jsonschema.Schema{"$defs": root.Defs, "definitions": root.Definitions}[collection]
	name, err := url.PathUnescape(name)
	s := schemas[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	if s == nil || err != nil || strings.Contains(name, "/") || !strings.HasPrefix(ref, "#/") {
		return nil, fmt.Errorf("$ref %s must be # or #/$defs/NAME, with a name of the document", strict.Quoted(ref))
	}
	return s, nil
}

// schemaTypes are the values of the keyword type.
func schemaTypes() []string {
	return []string{"null", "boolean", "integer", "number", "string", typeArray, typeObject}
}

// checkKeywords refuses keywords that the library passes over, and those that change the
// meaning of references.
func checkKeywords(s, root *jsonschema.Schema) error {
	for _, name := range append(slices.Clone(s.Types), s.Type) {
		if name != "" && !slices.Contains(schemaTypes(), name) {
			return fmt.Errorf("type %s must be one of %s", strict.Quoted(name), text.List(schemaTypes()))
		}
	}
	if s.Ref != "" {
		if _, err := target(root, s.Ref); err != nil {
			return err
		}
	}
	switch {
	case s.ID != "" && s != root:
		return fmt.Errorf("$id %s must be that of the whole document", strict.Quoted(s.ID))
	case s.DynamicRef != "":
		return fmt.Errorf("$dynamicRef %s must be a $ref", strict.Quoted(s.DynamicRef))
	case s.ItemsArray != nil:
		return errors.New("items must be one schema; a list of them is prefixItems")
	case len(s.DependencySchemas)+len(s.DependencyStrings) > 0:
		return errors.New("dependencies must be dependentRequired or dependentSchemas")
	case s.AdditionalItems != nil:
		return errors.New("additionalItems must be items, behind prefixItems")
	case s.MultipleOf != nil && *s.MultipleOf <= 0:
		return fmt.Errorf("multipleOf %s must be above 0", text.Number(*s.MultipleOf))
	}
	for _, child := range children(s) {
		if err := checkKeywords(child, root); err != nil {
			return err
		}
	}
	return nil
}

// children are all schemas directly within a schema.
func children(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(applied(s), s.PrefixItems, []*jsonschema.Schema{s.Items, s.Contains, s.UnevaluatedItems,
		s.AdditionalProperties, s.PropertyNames, s.UnevaluatedProperties})
	for _, named := range []map[string]*jsonschema.Schema{s.Defs, s.Definitions, s.Properties, s.PatternProperties} {
		for _, name := range sorted(named) {
			all = append(all, named[name])
		}
	}
	return slices.DeleteFunc(all, func(s *jsonschema.Schema) bool { return s == nil })
}
