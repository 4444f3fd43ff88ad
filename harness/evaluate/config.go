package evaluate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// PipelineConfig holds the numbers that steer a search over scripts (DM-001). All
// are at least 1. Start from [DefaultPipelineConfig]: the zero value is invalid.
type PipelineConfig struct {
	NumRetrievedModels   int `json:"num_retrieved_models"`
	OuterLoopSteps       int `json:"outer_loop_steps"`
	InnerLoopSteps       int `json:"inner_loop_steps"`
	NumParallelSolutions int `json:"num_parallel_solutions"`
	EnsembleRounds       int `json:"ensemble_rounds"`
	// TimeLimitSeconds bounds one run, unless the call says otherwise (EX-046).
	TimeLimitSeconds int `json:"time_limit_seconds"`
	// SubsampleLimit is the number of training samples of a fast run (EX-018).
	SubsampleLimit int `json:"subsample_limit"`
	// MaxDebugAttempts bounds the repairs of one script (EX-021).
	MaxDebugAttempts int `json:"max_debug_attempts"`
}

// DefaultPipelineConfig returns the defaults of DM-001.
func DefaultPipelineConfig() PipelineConfig {
	return PipelineConfig{
		NumRetrievedModels: 4, OuterLoopSteps: 4, InnerLoopSteps: 4, NumParallelSolutions: 2, EnsembleRounds: 5,
		TimeLimitSeconds: 86400, SubsampleLimit: 30000, MaxDebugAttempts: 3,
	}
}

// fields are the numbers by their wire names, in the order of the struct.
func (c *PipelineConfig) fields() []configField {
	return []configField{
		{"num_retrieved_models", &c.NumRetrievedModels}, {"outer_loop_steps", &c.OuterLoopSteps},
		{"inner_loop_steps", &c.InnerLoopSteps}, {"num_parallel_solutions", &c.NumParallelSolutions},
		{"ensemble_rounds", &c.EnsembleRounds}, {"time_limit_seconds", &c.TimeLimitSeconds},
		{"subsample_limit", &c.SubsampleLimit}, {"max_debug_attempts", &c.MaxDebugAttempts},
	}
}

type configField struct {
	name   string
	target *int
}

// Validate reports every number below 1 (DM-002), one [*policy.FieldError] each,
// joined.
func (c PipelineConfig) Validate() error {
	var errs []error
	for _, f := range c.fields() {
		if *f.target < 1 {
			errs = append(errs, &policy.FieldError{Field: f.name, Value: strconv.Itoa(*f.target), Rule: "must be at least 1"})
		}
	}
	return errors.Join(errs...)
}

// UnmarshalJSON reads an object whose missing fields are the defaults (DM-003). It
// reports, joined, every field that it does not know, that is not a whole number,
// or that is below 1, and then leaves c as it was. 60.0 is a whole number; "60" and
// true are not numbers.
func (c *PipelineConfig) UnmarshalJSON(data []byte) error {
	members, err := objectMembers(data)
	if err != nil {
		return fmt.Errorf("pipeline config: %w", err)
	}
	read := DefaultPipelineConfig()
	known := map[string]*int{}
	for _, f := range read.fields() {
		known[f.name] = f.target
	}
	var errs []error
	for _, m := range members {
		target, ok := known[m.name]
		if !ok {
			errs = append(errs, &policy.FieldError{Field: shown(m.name), Rule: "is no field of a pipeline config"})
			continue
		}
		n, err := wholeNumber(m.value)
		switch {
		case err != nil:
			errs = append(errs, &policy.FieldError{Field: m.name, Value: text.Short(string(m.value), maxShown), Rule: err.Error()})
		case n < 1:
			errs = append(errs, &policy.FieldError{Field: m.name, Value: strconv.Itoa(n), Rule: "must be at least 1"})
		default:
			*target = n
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	*c = read
	return nil
}

type member struct {
	name  string
	value json.RawMessage
}

// objectMembers takes a JSON object apart in the order of its text.
func objectMembers(data []byte) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	open, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, errors.New("must be a JSON object")
	}
	var members []member
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(name)}
		if err := decoder.Decode(&m.value); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := decoder.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return members, nil
}

// wholeNumber reads a JSON number without a fraction.
func wholeNumber(text json.RawMessage) (int, error) {
	var number float64
	if string(text) == "null" || json.Unmarshal(text, &number) != nil {
		return 0, errors.New("must be a whole number")
	}
	// Above 2^53 a float is no longer exact, and no such number makes sense here.
	if number != math.Trunc(number) || math.Abs(number) > 1<<53 {
		return 0, errors.New("must be a whole number of at most 2^53")
	}
	return int(number), nil
}
