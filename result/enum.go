package result

import (
	"fmt"
	"slices"
)

// enum is a small set of named numbers whose wire form is the name.
type enum interface {
	~uint8
	fmt.Stringer
}

// marshalName is MarshalText for an enum; all holds its valid values.
func marshalName[E enum](kind string, v E, all []E) ([]byte, error) {
	if !slices.Contains(all, v) {
		return nil, fmt.Errorf("result: invalid %s %d", kind, uint8(v))
	}
	return []byte(v.String()), nil
}

// unmarshalName is UnmarshalText for an enum; v stays as it is on an error.
func unmarshalName[E enum](kind string, v *E, all []E, text []byte) error {
	for _, e := range all {
		if e.String() == string(text) {
			*v = e
			return nil
		}
	}
	return fmt.Errorf("result: unknown %s %q", kind, text)
}
