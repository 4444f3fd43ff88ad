package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/result"
)

// labelContract is the label that the runs of contracts have and no others.
const labelContract = "contract.execution_id"

// recordedContract is what the record of a run says about the contract behind it.
type recordedContract struct {
	contract contract.Contract
	// outcome is nil as long as there is none: the run goes on, or its owner died.
	outcome *contract.Outcome
	// dir is the record; unread are files in it that cannot be read.
	dir    string
	unread []error
}

// contractOf reads the contract behind a record; nil for a run that was none.
func contractOf(record record.Record) *recordedContract {
	if _, ok := record.Spec.Job.Labels[labelContract]; !ok {
		return nil
	}
	c := &recordedContract{dir: record.Dir}
	note := func(what string, err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.unread = append(c.unread, fmt.Errorf("%s: %w", what, err))
		}
	}
	text, err := fsx.Read(filepath.Join(record.Dir, contract.ContractFile), contract.MaxDocument)
	if err == nil {
		c.contract, err = contract.Parse(text, contract.ContractFile)
	}
	note("contract", err)
	c.outcome, err = contract.ReadOutcome(record)
	note("outcome", err)
	return c
}

// command is the command line of the contract, not the one that it became, or that of
// the run where there is no contract to be read.
func (c *recordedContract) command(record record.Record) []string {
	if c == nil || c.contract.Inputs.Command == "" {
		return record.Spec.Job.Command
	}
	return append([]string{c.contract.Inputs.Command}, c.contract.Inputs.Arguments...)
}

// status is how the contract came out: the first thing that failed it, or how its run
// ended.
func (c *recordedContract) status(record record.Record) string {
	ended := recordStatus(record)
	switch {
	case c == nil || c.outcome == nil || c.outcome.Status == result.StatusCanceled.String():
		return ended
	case c.outcome.Success:
		return "success: " + ended
	}
	if failed := c.failures(); len(failed) > 0 {
		return "failed: " + failed[0]
	}
	return "failed: " + ended
}

// failures are what came out otherwise than the contract wants, beside the exit code.
func (c *recordedContract) failures() (failed []string) {
	for _, d := range c.outcome.Differences {
		if d.Problem != "extra" && d.What != "exit_code" {
			failed = append(failed, d.String())
		}
	}
	return failed
}

// listedContract is the contract of one run as `ls --json` prints it.
type listedContract struct {
	ExecutionID string `json:"execution_id"`
	ToolID      string `json:"tool_id"`
	// Success is null without an outcome.
	Success *bool  `json:"success"`
	Error   string `json:"error"`
	// Outcome is the file; empty without one.
	Outcome string `json:"outcome"`
}

func (c *recordedContract) listed() *listedContract {
	if c == nil {
		return nil
	}
	l := &listedContract{ExecutionID: c.contract.ExecutionID, ToolID: c.contract.ToolID}
	if o := c.outcome; o != nil {
		l.ExecutionID, l.ToolID, l.Success, l.Error = o.ExecutionID, o.ToolID, &o.Success, o.Error
		l.Outcome = filepath.Join(c.dir, contract.OutcomeFile)
	}
	return l
}

// describe tells the contract to people, by rows of a name and a text.
func (c *recordedContract) describe(finished bool, row func(name, text string)) {
	if c == nil {
		return
	}
	row("tool", c.contract.ToolID)
	for _, err := range c.unread {
		row("warning", err.Error())
	}
	o := c.outcome
	if o == nil && finished {
		row("contract", "has no outcome: whoever ran it ended first; what the program changed may have been carried over in part")
	}
	if o == nil {
		return
	}
	switch {
	case o.Success:
		row("contract", "success")
	case o.Error != "" && len(c.failures()) == 0:
		row("contract", "failed: "+o.Error)
	}
	for i, failed := range c.failures() {
		name := ""
		if i == 0 {
			name, failed = "contract", "failed: "+failed
		}
		row(name, failed)
	}
	for _, line := range notWrittenLines(o.Folders) {
		row("", line)
	}
	if a := o.Approval; a != nil {
		row("approval", fmt.Sprintf("%s, by %s: %s", strings.Join(slices.Sorted(slices.Values(a.Levels)), ", "), a.ApprovedBy, a.Reason))
	}
	row("outcome", filepath.Join(c.dir, contract.OutcomeFile))
}

// lostText is what it means that a run is lost.
func lostText(each record.Record, c *recordedContract) []string {
	if each.State != record.Lost {
		return nil
	}
	lines := []string{
		"whoever ran it ended before the program did: how the program ended is not known",
		"what it printed up to then is kept: sandbox logs " + each.ID,
	}
	if c != nil && c.outcome == nil {
		lines = append(lines, "no folder of this machine was changed, and there is no outcome")
	}
	return append(lines, "its container, if there still is one, is removed by: sandbox gc")
}
