package policy

import (
	"encoding/json"
	"math"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
)

// limitsWire is the wire form of [Limits], with times in seconds.
type limitsWire struct {
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`
	GraceSeconds   float64 `json:"grace_seconds,omitzero"`
	*limitsFields
}

type limitsFields Limits

// MarshalJSON writes times in seconds and sizes as text, and leaves out zero fields.
func (l Limits) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitsWire{l.Timeout.Seconds(), l.Grace.Seconds(), (*limitsFields)(&l)})
}

// UnmarshalJSON refuses unknown fields.
func (l *Limits) UnmarshalJSON(text []byte) error {
	wire := limitsWire{limitsFields: (*limitsFields)(l)}
	err := strict.JSON(text, &wire)
	l.Timeout, l.Grace = Seconds(wire.TimeoutSeconds), Seconds(wire.GraceSeconds)
	return err
}

// egressLimitsWire is the wire form of [EgressLimits], with times in seconds.
type egressLimitsWire struct {
	ConnectionTimeSeconds float64 `json:"connection_time_seconds,omitzero"`
	*egressLimitsFields
}

type egressLimitsFields EgressLimits

// MarshalJSON writes times in seconds and sizes as text, and leaves out zero fields.
func (l EgressLimits) MarshalJSON() ([]byte, error) {
	return json.Marshal(egressLimitsWire{l.ConnectionTime.Seconds(), (*egressLimitsFields)(&l)})
}

// UnmarshalJSON refuses unknown fields.
func (l *EgressLimits) UnmarshalJSON(text []byte) error {
	wire := egressLimitsWire{egressLimitsFields: (*egressLimitsFields)(l)}
	err := strict.JSON(text, &wire)
	l.ConnectionTime = Seconds(wire.ConnectionTimeSeconds)
	return err
}

// Seconds is a duration of s seconds, to the nanosecond.
func Seconds(s float64) time.Duration {
	return time.Duration(math.Round(s * float64(time.Second)))
}
