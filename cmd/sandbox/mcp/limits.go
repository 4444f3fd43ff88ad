package mcp

import (
	"fmt"
	"time"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// bounded returns settings whose limits are ceilings: a request may ask for less, and is refused
// with the name of the limit if it asks for more. A limit that follows from another one, such as
// the size of /tmp, still does.
func bounded(s settings.Settings) (settings.Settings, error) {
	most, err := s.Policy().Apply(s.Limits)
	if err != nil {
		return s, cli.WithHint(err, settings.LimitsAdvice)
	}
	for _, row := range policy.LimitTable() {
		setIfGiven(row.Field(&s.Defaults), row.Field(&s.Limits))
	}
	s.Max, s.Limits = most, policy.Limits{}
	return s, nil
}

// setIfGiven sets a limit to another one of its kind, unless that is zero.
func setIfGiven(target, from any) {
	switch from := from.(type) {
	case *time.Duration:
		set(target, *from)
	case *policy.Size:
		set(target, *from)
	case *float64:
		set(target, *from)
	case *int64:
		set(target, *from)
	case *int:
		set(target, *from)
	}
}

func set[T comparable](target any, value T) {
	var none T
	if to, ok := target.(*T); ok && value != none {
		*to = value
	}
}

// limits are the limits that a client may lower.
type limits struct {
	TimeoutSeconds *float64     `json:"timeout_seconds,omitempty"`
	Memory         *policy.Size `json:"memory,omitempty"`
	CPUs           *float64     `json:"cpus,omitempty"`
}

// apply sets the limits that were given. Zero is not a limit; the rest is checked with the plan.
func (l limits) apply(req *sandbox.Request) error {
	refuse := func(field string, value any) error {
		return &policy.FieldError{Field: field, Value: fmt.Sprint(value), Rule: "must be more than 0", Hint: "leave it out for the limit of this server"}
	}
	if t := l.TimeoutSeconds; t != nil {
		if !(*t > 0) || *t > (366*24*time.Hour).Seconds() {
			return refuse("timeout_seconds", *t)
		}
		req.Limits.Timeout = max(policy.Seconds(*t), time.Nanosecond) // 0 would be the default
	}
	if m := l.Memory; m != nil {
		if *m <= 0 {
			return refuse("memory", *m)
		}
		req.Limits.Memory = *m
	}
	if c := l.CPUs; c != nil {
		if !(*c > 0) {
			return refuse("cpus", *c)
		}
		req.Limits.CPUs = *c
	}
	return nil
}
