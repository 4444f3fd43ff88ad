package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

// A RefusedError is a document that breaks rules: all that were found.
type RefusedError struct {
	// Source is the document's name.
	Source     string
	Violations []Violation
}

// Error has a line for each violation. What a document holds is quoted.
func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		at := e.Source
		if v.Line > 0 {
			at = fmt.Sprintf("%s:%d", e.Source, v.Line)
		}
		lines[i] = at + ": " + v.String()
	}
	return strings.Join(lines, "\n")
}

// String is the violation without its line.
func (v Violation) String() string {
	var parts []string
	for _, part := range []string{v.Field, v.Value} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return v.Code + ": " + v.Rule
	}
	return v.Code + ": " + strings.Join(parts, " ") + ": " + v.Rule
}

// maxViolations bounds how many violations are told.
const maxViolations = strict.MaxProblems

// bounded cuts a list of violations, and says so.
func bounded(violations []Violation) []Violation {
	if len(violations) <= maxViolations {
		return violations
	}
	more := len(violations) - maxViolations
	return append(slices.Clone(violations[:maxViolations]),
		Violation{Code: "CX-01", Rule: fmt.Sprintf("%d violations more are not listed", more)})
}

// formViolations are problems with the form of a document (CX-01).
func formViolations(problems []strict.Problem) []Violation {
	var violations []Violation
	for _, p := range problems {
		violations = append(violations, Violation{Code: "CX-01", Line: p.Line, Field: p.Path, Value: p.Value, Rule: p.Rule})
	}
	return violations
}

// fieldRule is the rule of a [policy.FieldError], whose field is named already.
func fieldRule(err error) string {
	if field, ok := errors.AsType[*policy.FieldError](err); ok {
		return field.Rule
	}
	return err.Error()
}

// fieldValue is the value of a [policy.FieldError].
func fieldValue(err error) string {
	if field, ok := errors.AsType[*policy.FieldError](err); ok {
		return field.Value
	}
	return ""
}
