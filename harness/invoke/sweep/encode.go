package sweep

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// EncodeValue is a value as it stands in the name of a folder (MI-09): as Python's str
// writes it, with p for a point and m for a hyphen, and of all else only ASCII letters,
// digits and underscores. It may be empty. Values that differ may be encoded alike;
// [NewPlan] refuses those.
func EncodeValue(value any) (string, error) {
	value, err := normal(value)
	if err != nil {
		return "", err
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
	}, str(value)), nil
}

// str is what Python's str makes of a normal value.
func str(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return "None"
}

// DirName is the name of the folder of one run (MI-09): name=value of every axis by the
// order of their names, and seed=N, with underscores between them.
func DirName(values map[string]any, seed int64) (string, error) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		encoded, err := EncodeValue(values[name])
		if err != nil {
			return "", err
		}
		parts = append(parts, name+"="+encoded)
	}
	return strings.Join(append(parts, "seed="+strconv.FormatInt(seed, 10)), "_"), nil
}
