// Package mlestar holds the data model of an MLE-STAR search that evaluations know: its
// configuration, its solutions, and the prompts about subsampling.
//
// Identifiers such as EX-017 and DM-009 are those of docs/requirements.md.
package mlestar

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// PipelineConfig holds the numbers that steer a search (DM-001). All are at least 1. The
// zero value is invalid; start from [DefaultPipelineConfig].
type PipelineConfig struct {
	NumRetrievedModels   int `json:"num_retrieved_models"`
	OuterLoopSteps       int `json:"outer_loop_steps"`
	InnerLoopSteps       int `json:"inner_loop_steps"`
	NumParallelSolutions int `json:"num_parallel_solutions"`
	EnsembleRounds       int `json:"ensemble_rounds"`
	// TimeLimitSeconds bounds one run, unless the call has another limit (EX-046).
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

// fields returns the numbers by their wire names.
func (c *PipelineConfig) fields() map[string]*int {
	return map[string]*int{
		"num_retrieved_models": &c.NumRetrievedModels, "outer_loop_steps": &c.OuterLoopSteps, "inner_loop_steps": &c.InnerLoopSteps,
		"num_parallel_solutions": &c.NumParallelSolutions, "ensemble_rounds": &c.EnsembleRounds, "time_limit_seconds": &c.TimeLimitSeconds,
		"subsample_limit": &c.SubsampleLimit, "max_debug_attempts": &c.MaxDebugAttempts,
	}
}

// Validate reports every number below 1 (DM-002) as a [*policy.FieldError], joined.
func (c PipelineConfig) Validate() error {
	var errs []error
	fields := c.fields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if n := *fields[name]; n < 1 {
			errs = append(errs, &policy.FieldError{Field: name, Value: strconv.Itoa(n), Rule: "must be at least 1"})
		}
	}
	return errors.Join(errs...)
}

// UnmarshalJSON reads an object; a missing field gets its default (DM-003). It reports,
// joined, every unknown field and every value that is not a whole number of at least 1, and
// then leaves c unchanged. 60.0 is a whole number; "60" and true are not numbers.
func (c *PipelineConfig) UnmarshalJSON(data []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil || members == nil {
		return errors.New("pipeline config: must be a JSON object")
	}
	read := DefaultPipelineConfig()
	fields := read.fields()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(members)) {
		target, known := fields[name]
		var number *float64
		switch {
		case !known:
			errs = append(errs, &policy.FieldError{Field: text.Quote(name, 80), Rule: "is not a field of a pipeline config"})
		case json.Unmarshal(members[name], &number) != nil || number == nil || *number != math.Trunc(*number) || math.Abs(*number) > 1<<53:
			// Above 2^53 a float is not exact.
			errs = append(errs, &policy.FieldError{Field: name, Value: text.Short(string(members[name]), 80), Rule: "must be a whole number of at most 2^53"})
		default:
			*target = int(*number)
		}
	}
	if err := errors.Join(append(errs, read.Validate())...); err != nil {
		return err
	}
	*c = read
	return nil
}
