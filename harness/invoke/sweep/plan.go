package sweep

import (
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/policy"
)

// A Plan is a sweep with everything decided: nothing of it depends on the machine.
type Plan struct {
	config Config
	base   Spec
	points []Point
	names  []string
}

// maxName is the longest name that file systems take, in bytes.
const maxName = 255

// NewPlan decides a sweep, or says everything that is wrong with it. Runs whose folders
// would have the same name are refused: none may overwrite another.
func NewPlan(config Config, base Spec) (Plan, error) {
	points, err := config.Points()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{config: config, base: base, points: points, names: make([]string, len(points))}
	var errs []error
	first := map[string]int{}
	for i, point := range points {
		name, err := DirName(point.Values, point.Seed)
		if err != nil {
			return Plan{}, err
		}
		p.names[i] = name
		at, twice := first[name]
		switch {
		case twice && len(errs) < maxTold:
			errs = append(errs, &policy.FieldError{Field: "folder", Value: shown(name), Rule: fmt.Sprintf(
				"is that of runs %d and %d: %s and %s; leave one out, or change a value or seed", at+1, i+1, points[at], point)})
		case len(name) > maxName && len(errs) < maxTold:
			errs = append(errs, &policy.FieldError{Field: "folder", Value: shown(name),
				Rule: fmt.Sprintf("has %d bytes, and a name has at most %d; sweep over shorter values or fewer axes", len(name), maxName)})
		}
		if !twice {
			first[name] = i
		}
	}
	return p, errors.Join(errs...)
}

// String is for messages.
func (p Point) String() string {
	const most = 200
	text, err := DeterministicJSON(p.Values)
	if err != nil || len(text) > most {
		text = []byte("{…}")
	}
	return fmt.Sprintf("%s with seed %d", text, p.Seed)
}

// Len is the number of runs.
func (p Plan) Len() int { return len(p.points) }

// Point is the values and the seed of a run; the first one is 0.
func (p Plan) Point(i int) Point { return p.points[i] }

// Name is the name of the folder of a run.
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

func (p Plan) seeds() []any {
	var seeds []any
	for _, seed := range p.config.Seeds {
		seeds = append(seeds, seed)
	}
	return seeds
}
