package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// Encode returns the wire form of r: JSON with two spaces of indent and a
// newline at its end. It fills in [SchemaV1] when Schema is empty, and writes
// empty lists and maps where r has nil ones, so that a reader never meets null
// for them. r itself does not change.
//
// It refuses another schema, an invalid status or fault, and any number that
// is not finite; the error names the field.
func (r Result) Encode() ([]byte, error) {
	if r.Schema == "" {
		r.Schema = SchemaV1
	}
	if r.Schema != SchemaV1 {
		return nil, fmt.Errorf("result: encoding schema %q: want %q", r.Schema, SchemaV1)
	}
	if err := r.checkNumbers(); err != nil {
		return nil, err
	}
	r.fillEmpty()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // output is full of < and >, and this is not a web page
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("result: encoding: %w", err)
	}
	return buf.Bytes(), nil
}

// Decode reads the wire form of a result. It refuses any schema but [SchemaV1]
// and a result without status or fault. Fields that it does not know are left
// out: a later version may add some under the same schema.
func Decode(data []byte) (Result, error) {
	var r Result
	err := json.Unmarshal(data, &r)
	head := struct {
		Schema string `json:"schema"`
	}{r.Schema}
	if err != nil && json.Unmarshal(data, &head) != nil {
		return Result{}, fmt.Errorf("result: decoding: %w", err)
	}
	// First the schema: an error about a field of another schema misleads.
	if head.Schema != SchemaV1 {
		return Result{}, fmt.Errorf("result: decoding: schema is %q, want %q", head.Schema, SchemaV1)
	}
	if err != nil {
		return Result{}, fmt.Errorf("result: decoding: %w", err)
	}
	if r.Status == 0 {
		return Result{}, fmt.Errorf("result: decoding: no status")
	}
	if r.Fault == 0 {
		return Result{}, fmt.Errorf("result: decoding: no fault")
	}
	r.fillEmpty()
	return r, nil
}

// checkNumbers refuses NaN and infinities: the JSON encoder does too, but does
// not say where, and the whole result would be lost without a hint.
func (r *Result) checkNumbers() error {
	score := 0.0
	if r.Score != nil {
		score = *r.Score
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"duration_seconds", r.DurationSeconds},
		{"setup_seconds", r.SetupSeconds},
		{"teardown_seconds", r.TeardownSeconds},
		{"score", score},
		{"enforced.timeout_seconds", r.Enforced.TimeoutSeconds},
		{"enforced.soft_timeout_seconds", r.Enforced.SoftTimeoutSeconds},
		{"enforced.grace_seconds", r.Enforced.GraceSeconds},
		{"enforced.cpus", r.Enforced.CPUs},
		{"resources.cpu_seconds", r.Resources.CPUSeconds},
	} {
		if math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			return fmt.Errorf("result: encoding: %s is %v, which JSON cannot carry", f.name, f.value)
		}
	}
	return nil
}

// fillEmpty replaces nil slices and maps by empty ones.
func (r *Result) fillEmpty() {
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	notNil(&r.Enforced.CapDrop)
	notNil(&r.Enforced.Ulimits)
	notNil(&r.Enforced.Mounts)
	notNil(&r.Enforced.GPUs)
	notNil(&r.Enforced.Isolation.Missing)
	if r.Network != nil {
		network := *r.Network
		notNil(&network.Allow)
		notNil(&network.Deny)
		r.Network = &network
	}
	if r.Observed != nil {
		observed := *r.Observed
		notNil(&observed.Watched)
		notNil(&observed.Opened)
		r.Observed = &observed
	}
	notNil(&r.Outputs)
	notNil(&r.OutputsSkipped)
	notNil(&r.Trees)
	// The list is the caller's.
	r.Trees = append([]Tree{}, r.Trees...)
	for i := range r.Trees {
		t := &r.Trees[i]
		notNil(&t.NotCopied)
		notNil(&t.Created)
		notNil(&t.Changed)
		notNil(&t.Deleted)
		notNil(&t.Skipped)
	}
	notNil(&r.Warnings)
}

// notNil makes a nil slice empty.
func notNil[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}
