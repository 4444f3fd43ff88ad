// Package metrics measures a run while it goes on, and keeps the points in the file metrics.jsonl
// of its record. It does not know containers.
package metrics

import (
	_ "embed" // for the schema
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// SchemaV1 names the wire form of [Point], a line of the file.
const SchemaV1 = "evalbox/metrics/v1"

// SchemaJSON is the JSON Schema (draft 2020-12) of [Point], for readers in other languages.
//
//go:embed schema.json
var SchemaJSON []byte

// File is the name of the file in the record of a run.
const File = "metrics.jsonl"

// MaxPoints bounds the points of a run: that many measurements, and as many points of metrics that
// the program printed. Beyond it every second point is left out, and new ones come half as often.
const MaxPoints = 3600

// A Point is one measurement, or one line of metrics that the program printed.
type Point struct {
	Schema string `json:"schema"`
	// Seconds is the time since the start of the program, by a monotonic clock.
	Seconds float64 `json:"seconds"`
	// Usage is a measurement of the machine; nil for metrics of the program.
	Usage *Usage `json:"usage,omitempty"`
	// Index counts the lines of metrics that the program printed, from 1; 0 for a measurement.
	Index int64 `json:"index,omitempty"`
	// Step is the program's own count of its steps; nil if it printed none.
	Step *float64 `json:"step,omitempty"`
	// Values are the program's metrics by their names.
	Values map[string]Number `json:"values,omitempty"`
}

// Usage is the use of the machine at one moment. A field that could not be measured is nil.
type Usage struct {
	// CPUs is the number of processors in use, on average since the last measurement.
	CPUs        *float64 `json:"cpus,omitempty"`
	MemoryBytes *int64   `json:"memory_bytes,omitempty"`
	// Processes counts processes and threads.
	Processes *int64 `json:"processes,omitempty"`
	// DiskBytes is the size of ./final.
	DiskBytes *int64 `json:"disk_bytes,omitempty"`
	GPUs      []GPU  `json:"gpus,omitempty"`
}

// GPU is the use of one GPU at one moment.
type GPU struct {
	ID string `json:"id"`
	// Utilization is between 0 and 1.
	Utilization float64 `json:"utilization"`
	MemoryBytes int64   `json:"memory_bytes"`
}

// A Number is a float64 that may be NaN or infinite. JSON has no such numbers: they are the strings
// "NaN", "Infinity" and "-Infinity".
type Number float64

// MarshalJSON implements [json.Marshaler].
func (n Number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(f)
	}
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *Number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*n = Number(math.NaN())
	case `"Infinity"`:
		*n = Number(math.Inf(1))
	case `"-Infinity"`:
		*n = Number(math.Inf(-1))
	default:
		f, err := strconv.ParseFloat(string(text), 64) // text is valid JSON
		if err != nil {
			return fmt.Errorf("metrics: not a number: %w", err)
		}
		*n = Number(f)
	}
	return nil
}
