package sweep

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// A Spec is the base configuration: every run gets it with its own values. It is a JSON
// object.
type Spec struct{ fields map[string]any }

// MaxSpec bounds the file of a spec, in bytes.
const MaxSpec = 16 << 20

// LoadSpec reads the file of a base spec, which must be a regular one.
func LoadSpec(path string) (Spec, error) {
	text, err := fsx.Read(path, MaxSpec)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("not found")
	}
	var fields map[string]any
	if err == nil {
		fields, err = readObject(text)
	}
	if err != nil {
		return Spec{}, fmt.Errorf("base spec %q: %w", path, fsx.Cause(err))
	}
	return Spec{fields}, nil
}

// At is the spec of one run (MI-10): perturbations and seed replace those of the base.
// Everything else is that of the base, numbers in their spelling. Keys are sorted, a level
// is two spaces, and there is no newline at the end. s is not changed.
func (s Spec) At(point Point) ([]byte, error) {
	fields := map[string]any{}
	maps.Copy(fields, s.fields)
	fields["perturbations"], fields["seed"] = point.Values, point.Seed
	return indentedJSON(fields)
}

// A Plan is a sweep with everything decided: nothing of it depends on the machine.
type Plan struct {
	config Config
	base   Spec
	points []Point
	names  []string
}

// NewPlan decides a sweep, or reports all problems. Runs whose directories would have the
// same name are refused: none may overwrite another.
func NewPlan(config Config, base Spec) (Plan, error) {
	points, err := config.Points()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{config, base, points, make([]string, len(points))}
	var errs []error
	first := map[string]int{}
	for i, point := range points {
		name, err := DirName(point.Values, point.Seed)
		if err != nil {
			return Plan{}, err
		}
		p.names[i] = name
		at, twice := first[name]
		rule := ""
		switch {
		case twice:
			rule = fmt.Sprintf("is that of runs %d and %d: %s and %s; leave one out, or change a value or seed", at+1, i+1, points[at], point)
		case len(name) > maxName:
			rule = fmt.Sprintf("has %d bytes, and a name has at most %d; sweep over shorter values or fewer axes", len(name), maxName)
		}
		if !twice {
			first[name] = i
		}
		if rule != "" && len(errs) < maxProblems {
			errs = append(errs, &policy.FieldError{Field: "directory", Value: shown(name), Rule: rule})
		}
	}
	return p, errors.Join(errs...)
}

// Len is the number of runs.
func (p Plan) Len() int { return len(p.points) }

// Name is the name of the directory of a run; the first one is 0.
func (p Plan) Name(i int) string { return p.names[i] }

// Spec is the text of the spec of a run.
func (p Plan) Spec(i int) ([]byte, error) { return p.base.At(p.points[i]) }

func (p Plan) axes() map[string]any {
	axes := map[string]any{}
	for _, axis := range p.config.sorted() {
		axes[axis.Name] = axis.Values
	}
	return axes
}

// The families of manifests that a sweep may have (MI-11).
const (
	// FamilyOrchestrator is a manifest of this package.
	FamilyOrchestrator = "clarity_sweep_orchestrator_v1"
	// FamilyRichAggregate is a manifest of aggregated results, of other tools.
	FamilyRichAggregate = "clarity_rich_aggregate_v1"
	// FamilyUnknown is any other manifest.
	FamilyUnknown = "unknown"
)

const familyKey = "manifest_schema_family"

// Manifest is the text of the manifest of a sweep (MI-11). hashes has the SHA-256 of the
// tool's manifest of each run, in the order of the runs; "" stands for a run that failed,
// and null is written. Keys are sorted, a level is two spaces, and there is no newline at
// the end.
func (p Plan) Manifest(hashes []Text) ([]byte, error) {
	if len(hashes) != p.Len() {
		return nil, fmt.Errorf("sweep: %d runs but %d hashes", p.Len(), len(hashes))
	}
	runs := make([]any, p.Len())
	for i, point := range p.points {
		runs[i] = map[string]any{"axis_values": point.Values, "seed": point.Seed, "manifest_hash": hashes[i]}
	}
	return indentedJSON(map[string]any{"axes": p.axes(), "seeds": p.config.Seeds, "runs": runs, familyKey: FamilyOrchestrator})
}

// ManifestFamily returns the family of the manifest of a sweep. explicit is the family that
// it names itself, without space around it; empty for none. classified is one of the three
// constants: that family if it is known, and otherwise the family that has this shape:
// [FamilyOrchestrator] with runs and axes, [FamilyRichAggregate] with a list of results.
func ManifestFamily(manifest map[string]any) (explicit, classified string) {
	if text, ok := manifest[familyKey].(string); ok {
		explicit = strings.TrimSpace(text)
	}
	_, runs := manifest["runs"]
	_, axes := manifest["axes"]
	_, results := manifest["results"].([]any)
	switch {
	case explicit == FamilyOrchestrator || explicit == FamilyRichAggregate:
		return explicit, explicit
	case runs && axes:
		return explicit, FamilyOrchestrator
	case results:
		return explicit, FamilyRichAggregate
	}
	return explicit, FamilyUnknown
}

// SchemaV1 is the schema of the file that defines a sweep.
const SchemaV1 = "evalbox/sweep/v1"

// SetupHashed begins the names of the parts of a setup whose value is a hash: a message says
// only that it differs.
const SetupHashed = "env."

// definition is everything that the results of a sweep depend on. Spaces and the order of
// keys in the base spec do not count.
func (p Plan) definition(setup map[string]string) ([]byte, error) {
	base, err := DeterministicJSON(p.base.fields)
	if err != nil {
		return nil, err
	}
	return indentedJSON(map[string]any{
		"schema": SchemaV1, "axes": p.axes(), "seeds": p.config.Seeds, "adapter": p.config.Adapter,
		"base_spec_sha256": fmt.Sprintf("%x", sha256.Sum256(base)), "setup": setup,
	})
}

// baseSpec is the name of the hash of the base spec in a message.
const baseSpec = "base spec"

// differences says how two definitions differ, the first of which may be any text.
func differences(there, wanted []byte) string {
	a, b := members(there), members(wanted)
	all := maps.Clone(b)
	maps.Copy(all, a)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		const most = 80 // bytes of a value that is shown
		was, is := a[name], b[name]
		switch {
		case was == is:
		case was == "":
			found = append(found, name+" is new")
		case is == "":
			found = append(found, name+" is not given any more")
		case strings.HasPrefix(name, SetupHashed) || name == baseSpec || len(was) > most || len(is) > most:
			found = append(found, name+" is another")
		default:
			found = append(found, fmt.Sprintf("%s was %s and is %s", name, was, is))
		}
	}
	if len(a) == 0 || len(found) == 0 {
		return DefinitionName + " is not as it was written"
	}
	if more := len(found) - maxProblems; more > 0 {
		found = append(found[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(found, "; ")
}

// members are the parts of a definition as compact JSON, those of the setup by their own
// names; none if the text is not a definition.
func members(definition []byte) map[string]string {
	var outer, setup map[string]json.RawMessage
	if json.Unmarshal(definition, &outer) != nil || json.Unmarshal(outer["setup"], &setup) != nil {
		return nil
	}
	delete(outer, "setup")
	maps.Copy(outer, setup)
	all := map[string]string{}
	for name, value := range outer {
		if name == "base_spec_sha256" {
			name = baseSpec
		}
		var short bytes.Buffer
		if json.Compact(&short, value) == nil {
			all[name] = short.String()
		}
	}
	return all
}
