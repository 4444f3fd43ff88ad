package execute

import (
	"errors"
	"io/fs"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// A FindingError is something that speaks against a pass, and no failure of ours: the
// gates cannot be run as the manifest says, or what they ran on changed meanwhile. The
// judge has to hear of it.
type FindingError struct {
	Finding evidence.Finding
	// Err is the cause, if there is one.
	Err error
}

func (e *FindingError) Error() string {
	if e.Finding.Subject == "" {
		return e.Finding.Detail
	}
	return e.Finding.Subject + ": " + e.Finding.Detail
}

func (e *FindingError) Unwrap() error { return e.Err }

// refuse makes a finding.
func refuse(reason evidence.StopReason, gate int, subject, detail string, cause error) *FindingError {
	return &FindingError{evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: detail}, cause}
}

// refusal tells what the sandbox refuses from what it fails at: the first is a finding,
// the second stays the error that it is. It is pure.
func refusal(err error, gate int) error {
	var unlocked *lock.UnlockedError
	var missing *images.NotFoundError
	var place *sandbox.PathError
	var field *policy.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unlocked):
		return refuse(evidence.ReasonUnpinned, gate, unlocked.Name, err.Error(), err)
	case errors.As(err, &missing):
		return refuse(evidence.ReasonMissingDependency, gate, missing.Ref, err.Error(), err)
	case errors.As(err, &place) && place.Field == "state folder":
		return err
	case errors.As(err, &place):
		reason := evidence.ReasonIncomplete
		if errors.Is(place, fs.ErrNotExist) {
			reason = evidence.ReasonMissingDependency
			if place.Field == "tree" {
				reason = evidence.ReasonNoWorkspace
			}
		}
		return refuse(reason, gate, place.Field, "the sandbox refuses: "+err.Error(), err)
	case errors.As(err, &field):
		return refuse(evidence.ReasonIncomplete, gate, field.Field, "the sandbox refuses: "+err.Error(), err)
	}
	return err
}

// Split parts an error of [Run] into findings for the judge and what is a failure of
// ours, nil if there is none.
func Split(err error) (findings []evidence.Finding, failure error) {
	var one *FindingError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range joined.Unwrap() {
			found, failed := Split(part)
			findings, failure = append(findings, found...), errors.Join(failure, failed)
		}
		return findings, failure
	}
	if errors.As(err, &one) {
		return []evidence.Finding{one.Finding}, nil
	}
	return nil, err
}
