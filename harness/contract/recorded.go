package contract

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Recorded is the contract behind the record of a run.
type Recorded struct {
	Contract Contract
	// Outcome is nil as long as there is none: the run goes on, or its owner died.
	Outcome *Outcome
	// Dir is the record; Unread are files in it that cannot be read.
	Dir    string
	Unread []error
}

// OfRecord reads the contract behind a record; nil for a run without one. Methods of nil
// are allowed.
func OfRecord(record record.Record) *Recorded {
	if _, ok := record.Spec.Job.Labels[labelExecution]; !ok {
		return nil
	}
	c := &Recorded{Dir: record.Dir}
	note := func(what string, err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.Unread = append(c.Unread, fmt.Errorf("%s: %w", what, err))
		}
	}
	text, err := fsx.Read(filepath.Join(record.Dir, ContractFile), MaxDocument)
	if err == nil {
		c.Contract, err = Parse(text, ContractFile)
	}
	note("contract", err)
	c.Outcome, err = ReadOutcome(record)
	note("outcome", err)
	return c
}

// Command is the command line of the contract. Where there is no contract to be read, it is
// that of the run, which the contract became.
func (c *Recorded) Command(record record.Record) []string {
	if c == nil || c.Contract.Inputs.Command == "" {
		return record.Spec.Job.Command
	}
	return append([]string{c.Contract.Inputs.Command}, c.Contract.Inputs.Arguments...)
}

// Failures are the differences from what the contract wants, beside the exit code. There
// must be an outcome.
func (c *Recorded) Failures() (failed []string) {
	for _, d := range c.Outcome.Differences {
		if d.Problem != "extra" && d.What != "exit_code" {
			failed = append(failed, d.String())
		}
	}
	return failed
}
