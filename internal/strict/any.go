package strict

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// A Pair is a key of a mapping and its text.
type Pair struct{ Key, Value string }

// Pairs is a mapping of text to text whose keys keep the order of the document.
type Pairs []Pair

// Get returns the text of a key.
func (p Pairs) Get(key string) (string, bool) {
	for _, pair := range p {
		if pair.Key == key {
			return pair.Value, true
		}
	}
	return "", false
}

// MarshalJSON writes an object with the keys in their order.
func (p Pairs) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, pair := range p {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(pair.Key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(pair.Value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// ordered sets pairs in the order of the document.
func (d *decoder) ordered(path string, n *yaml.Node, into *Pairs, depth int) {
	if n.Kind != yaml.MappingNode {
		d.expected(n, path, "a mapping")
		return
	}
	*into = make(Pairs, 0, len(n.Content)/2)
	d.pairs(path, n, func(key *yaml.Node, at string, value *yaml.Node) {
		pair := Pair{Key: key.Value}
		d.value(at, value, reflect.ValueOf(&pair.Value).Elem(), depth+1)
		*into = append(*into, pair)
	})
}

// anything sets a value of any form: nil, bool, int64, float64, string, []any or map[string]any.
func (d *decoder) anything(path string, n *yaml.Node, v reflect.Value, depth int) {
	if n.Kind == yaml.MappingNode {
		all := map[string]any{}
		d.mapping(path, n, reflect.ValueOf(&all).Elem(), depth)
		v.Set(reflect.ValueOf(all))
		return
	}
	if n.Kind == yaml.SequenceNode {
		all := []any{}
		d.list(path, n, reflect.ValueOf(&all).Elem(), depth)
		v.Set(reflect.ValueOf(all))
		return
	}
	switch n.ShortTag() {
	case "!!null":
	case "!!bool":
		v.Set(reflect.ValueOf(strings.EqualFold(n.Value, "true")))
	case "!!int":
		if number, err := strconv.ParseInt(n.Value, 10, 64); err == nil && wholeNumber().MatchString(n.Value) {
			v.Set(reflect.ValueOf(number))
		} else {
			d.problem(n, path, shown(n), "must be a whole number in decimal digits of at most 64 bits; put it in quotes to keep its digits", nil)
		}
	case "!!float":
		if number, err := strconv.ParseFloat(n.Value, 64); err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
			v.Set(reflect.ValueOf(number))
		} else {
			d.problem(n, path, shown(n), "must be a finite number", nil)
		}
	default:
		v.Set(reflect.ValueOf(n.Value))
	}
}
