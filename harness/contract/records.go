package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Files in the record of a run, beside those of the run itself.
const (
	OutcomeFile = "outcome.json"
	// ContractFile is the contract as it was executed, with defaults filled in.
	ContractFile = "contract.yaml"
)

// maxOutcome bounds an outcome that is read, in bytes: streams and artifacts as escaped text.
const maxOutcome = 64 << 20

// writeContract records the contract before the program starts. The command line of an adapter is
// left out, so that the same contract makes the same call again.
func (run *execution) writeContract() error {
	c := run.Effective.Contract
	if run.Effective.Adapted != nil {
		effective := c.Inputs
		c.Inputs = run.asked.Inputs
		c.Inputs.Operation, c.Inputs.WorkingDirectory = effective.Operation, effective.WorkingDirectory
		c.Inputs.Environment = maps.Clone(c.Inputs.Environment)
		maps.DeleteFunc(c.Inputs.Environment, func(name, _ string) bool { _, kept := effective.Environment[name]; return !kept })
	}
	c.ExecutionID = run.outcome.ExecutionID
	return write(run.record, ContractFile, c.ExecutionID, c.YAML)
}

// write writes a document of an execution into the directory of its record.
func write(dir, name, execution string, encode func() ([]byte, error)) error {
	text, err := encode()
	if err == nil {
		err = fsx.WriteFile(filepath.Join(dir, name), text, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", name, execution, err)
	}
	return nil
}

// ReadOutcome reads the outcome in the record of a run. It returns fs.ErrNotExist for a run
// that was not a contract.
func ReadOutcome(each record.Record) (Outcome, error) {
	text, err := fsx.Read(filepath.Join(each.Dir, OutcomeFile), maxOutcome)
	if err != nil {
		return Outcome{}, err
	}
	var o Outcome
	if err := json.Unmarshal(text, &o); err != nil {
		return Outcome{}, fmt.Errorf("%s: %w", OutcomeFile, err)
	}
	if o.Schema != OutcomeSchemaV1 {
		return Outcome{}, fmt.Errorf("%s: schema %q is not known", OutcomeFile, o.Schema)
	}
	return o, nil
}

// Recorded is the contract behind the record of a run.
type Recorded struct {
	Contract Contract
	// Outcome is nil while the run goes on, and if its controller died.
	Outcome *Outcome
	// Dir is the record; Unread are errors of its files.
	Dir    string
	Unread []error
}

// OfRecord reads the contract behind a record. It is nil for a run without one.
func OfRecord(each record.Record) *Recorded {
	if _, ok := each.Spec.Job.Labels[labelExecution]; !ok {
		return nil
	}
	parsed, contractErr := Load(filepath.Join(each.Dir, ContractFile))
	o, outcomeErr := ReadOutcome(each)
	c := &Recorded{Contract: parsed, Dir: each.Dir}
	if outcomeErr == nil {
		c.Outcome = &o
	}
	for i, err := range []error{contractErr, outcomeErr} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.Unread = append(c.Unread, fmt.Errorf("%s: %w", []string{"contract", "outcome"}[i], err))
		}
	}
	return c
}

// Command is the command line of the contract, or of the run if there is no contract. It may
// be called on nil.
func (c *Recorded) Command(each record.Record) []string {
	if c == nil || c.Contract.Inputs.Command == "" {
		return each.Command()
	}
	return append([]string{c.Contract.Inputs.Command}, c.Contract.Inputs.Arguments...)
}

// Succeeded reports whether the contract succeeded; without an outcome, whether its run did. It may
// be called on nil.
func (c *Recorded) Succeeded(each record.Record) bool {
	if c == nil || c.Outcome == nil {
		return each.Succeeded()
	}
	return each.Result != nil && c.Outcome.Success
}

// Failures are the differences that failed the contract, except for the exit code. There must
// be an outcome.
func (c *Recorded) Failures() (failed []string) {
	for _, d := range c.Outcome.failures() {
		if d.What != "exit_code" {
			failed = append(failed, d.String())
		}
	}
	return failed
}

// Expired is the record of an execution that need not be kept any longer.
type Expired struct {
	RunID       string    `json:"run_id"`
	ExecutionID string    `json:"execution_id"`
	Retention   string    `json:"retention"`
	Created     time.Time `json:"created"`
}

// FindExpired lists the records of one class of retention (CX-05) that were created before a
// time, oldest first. Runs that were not contracts have no class, and running ones are not
// listed. The error names the records that cannot be read; the others are listed all the same.
func FindExpired(store *record.Store, class string, before time.Time) ([]Expired, error) {
	records, err := store.ListBrief()
	errs := []error{err}
	expired := []Expired{}
	for _, each := range records {
		if each.State == record.Running || !each.Created.Before(before) {
			continue
		}
		o, err := ReadOutcome(each)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("record %s: %w", each.ID, err))
		case o.Evidence.Retention == class:
			expired = append(expired, Expired{RunID: each.ID, ExecutionID: o.ExecutionID, Retention: class, Created: each.Created})
		}
	}
	return expired, errors.Join(errs...)
}

// SettleAbandoned writes an outcome for every execution whose controller ended without one, so
// that its record has a class of retention. It returns the IDs of these runs. The error names
// the records that cannot be read or written.
func SettleAbandoned(store *record.Store) (runs []string, err error) {
	records, err := store.List()
	errs := []error{err}
	for _, each := range records {
		// A run that is still open may be adopted; its end is known then.
		over := each.State.Abandoned() && !store.IsOpen(each.ID) || each.Result != nil && each.Result.Recovered
		if _, err := os.Lstat(filepath.Join(each.Dir, OutcomeFile)); !over || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		c, err := Load(filepath.Join(each.Dir, ContractFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not a contract, or it never started
		}
		if err == nil {
			o := abandoned(each, c)
			err = write(each.Dir, OutcomeFile, o.ExecutionID, o.Encode)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record %s: %w", each.ID, err))
			continue
		}
		runs = append(runs, each.ID)
	}
	return runs, errors.Join(errs...)
}

// abandoned is the outcome of an execution whose end was not observed. Its contract was
// written right before the start, so the program may have run.
func abandoned(each record.Record, c Contract) Outcome {
	run := &execution{checks: map[string]CheckPoint{}}
	o := &run.outcome
	*o = Outcome{
		Schema: OutcomeSchemaV1, ExecutionID: c.ExecutionID, ToolID: c.ToolID, AdapterID: c.AdapterID, Metadata: c.Metadata,
		ContractSHA256: each.Spec.Job.Labels[labelHash], Started: true, Status: StatusAbandoned,
		Error:    "The controller of the execution ended before the program did: how the program ended is not known, and nothing was carried over",
		Executed: executed(c, each.Spec, Resolved{}),
		Evidence: Evidence{RunID: each.ID, Path: each.Dir, Retention: RetainSession},
	}
	if res := each.Result; res != nil {
		o.Started = res.Status != result.StatusStartFailed
		o.Error = "The controller of the execution ended before the program did: another process finished the run, " +
			"its outputs were not checked, and nothing was carried over. " + res.Explanation
	}
	level, network := policy.FilesystemLevel(c.Sandbox.Filesystem.Level), policy.NetworkLevel(c.Sandbox.Network.Level)
	if level == policy.Elevated || network == policy.Open || c.Metadata.EvidenceRef != "" {
		o.Evidence.Retention = RetainEvidence // it was approved, or somebody refers to it
	}
	for _, tree := range each.Spec.Job.Trees {
		o.Folders = append(o.Folders, Folder{Source: tree.Source, Target: tree.Target,
			NotWritten: []string{"all changes: the controller ended before it carried them over; what is left of them is in the record"}})
	}
	for _, p := range points {
		if p.list == "CK-01" {
			run.check(p.point, true, "it was checked before the start")
		}
	}
	run.check("evidence_captured", true, "run %s, kept as %s; up to the end of its controller", each.ID, o.Evidence.Retention)
	o.Checklist = run.checklist()
	run.finish()
	return *o
}
