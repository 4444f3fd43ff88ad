package record

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/result"
)

// Values of [Filter.Status] that several statuses have.
const (
	// AnySuccess picks runs that did what they were to do, AnyFailure those that ended in any
	// other way.
	AnySuccess = "succeeded"
	AnyFailure = "failed"
)

// A Filter picks runs by how they ended, by name, label and time. The zero Filter picks all.
type Filter struct {
	// Status lists [StatusNames]; a run must have one of them.
	Status []string
	// Name is a pattern of [path.Match].
	Name string
	// Labels are NAME or NAME=VALUE; a run must have all of them.
	Labels []string
	// Since and Before bound the time at which a run was created. Zero is any time.
	Since, Before time.Time
}

// StatusNames are the values of [Filter.Status]: the states of a run without a result,
// [AnySuccess], [AnyFailure], and the statuses of results.
func StatusNames() []string {
	names := []string{string(Running), string(Lost), string(Unreadable), AnySuccess, AnyFailure}
	for _, s := range result.Statuses() {
		names = append(names, s.String())
	}
	return names
}

// Check returns the first problem of a filter.
func (f Filter) Check() error {
	if _, err := path.Match(f.Name, ""); err != nil {
		return fmt.Errorf("name %q: is not a pattern", f.Name)
	}
	known := StatusNames()
	for _, status := range f.Status {
		if !slices.Contains(known, status) {
			return fmt.Errorf("status %q: must be one of %s", status, strings.Join(known, ", "))
		}
	}
	return nil
}

// Succeeded reports whether a run ended with exit code 0.
func (r Record) Succeeded() bool {
	return r.Result != nil && r.Result.Status == result.StatusExited && r.Result.ExitCode == 0
}

// Matches reports whether a run is picked. succeeded says whether it did what it was to do:
// [Record.Succeeded], unless more than the exit code decides.
func (f Filter) Matches(r Record, succeeded bool) bool {
	job := r.Spec.Job
	if !f.Since.IsZero() && r.Created.Before(f.Since) || !f.Before.IsZero() && !r.Created.Before(f.Before) {
		return false
	}
	if matched, _ := path.Match(f.Name, job.Name); f.Name != "" && !matched {
		return false
	}
	for _, label := range f.Labels {
		name, want, valued := strings.Cut(label, "=")
		if got, ok := job.Labels[name]; !ok || valued && got != want {
			return false
		}
	}
	return len(f.Status) == 0 || slices.ContainsFunc(f.Status, func(status string) bool { return r.has(status, succeeded) })
}

// has reports whether a run has one of [StatusNames].
func (r Record) has(status string, succeeded bool) bool {
	switch {
	case r.Result == nil:
		return string(r.State) == status
	case status == AnySuccess:
		return succeeded
	case status == AnyFailure:
		return !succeeded
	}
	return r.Result.Status.String() == status
}
