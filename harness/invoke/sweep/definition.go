package sweep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SchemaV1 is the schema of the file that says what a sweep is.
const SchemaV1 = "evalbox/sweep/v1"

// SetupHashed begins the names of what stands in a setup as a hash: it differs or not,
// and what it is, is not told.
const SetupHashed = "env."

// definition is what a sweep is, whatever became of it.
func (p Plan) definition(setup map[string]string) ([]byte, error) {
	sum, err := p.base.SHA256()
	if err != nil {
		return nil, err
	}
	return indentedJSON(map[string]any{
		"schema": SchemaV1, "axes": p.axes(), "seeds": p.seeds(), "adapter": orNull(p.config.Adapter),
		"base_spec_sha256": sum, "setup": toAny(setup),
	})
}

func orNull(text *string) any {
	if text == nil {
		return nil
	}
	return *text
}

func toAny(texts map[string]string) map[string]any {
	all := map[string]any{}
	for key, text := range texts {
		all[key] = text
	}
	return all
}

// differences says what differs between two definitions, the first of which may be
// anything.
func differences(there, wanted []byte) string {
	a, b := members(there), members(wanted)
	all := maps.Clone(b)
	maps.Copy(all, a)
	var told []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if text := difference(name, a[name], b[name]); text != "" {
			told = append(told, text)
		}
	}
	switch more := len(told) - maxTold; {
	case len(a) == 0, len(told) == 0:
		return DefinitionName + " is not as it was written"
	case more > 0:
		told = append(told[:maxTold], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(told, "; ")
}

// difference is one, with the values if they are short; empty for none.
func difference(name string, was, is json.RawMessage) string {
	const most = 80
	hashed := strings.HasPrefix(name, SetupHashed) || name == baseSpec
	switch {
	case bytes.Equal(was, is):
		return ""
	case was == nil:
		return name + " is new"
	case is == nil:
		return name + " is not given any more"
	case hashed || len(was) > most || len(is) > most:
		return name + " is another"
	}
	return fmt.Sprintf("%s was %s and is %s", name, was, is)
}

// baseSpec is what a message calls the hash of the base spec.
const baseSpec = "base spec"

// members are the parts of a definition, those of the setup by their own names, without
// space; none if it is no definition.
func members(definition []byte) map[string]json.RawMessage {
	var outer, setup map[string]json.RawMessage
	if json.Unmarshal(definition, &outer) != nil || json.Unmarshal(outer["setup"], &setup) != nil {
		return nil
	}
	delete(outer, "setup")
	if sum, has := outer["base_spec_sha256"]; has {
		outer[baseSpec] = sum
		delete(outer, "base_spec_sha256")
	}
	all := map[string]json.RawMessage{}
	for _, from := range []map[string]json.RawMessage{outer, setup} {
		for name, value := range from {
			var short bytes.Buffer
			if json.Compact(&short, value) == nil {
				all[name] = short.Bytes()
			}
		}
	}
	return all
}
