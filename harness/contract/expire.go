package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"
)

// Expired is the record of an execution that is older than it need be kept.
type Expired struct {
	RunID       string    `json:"run_id"`
	ExecutionID string    `json:"execution_id"`
	Retention   string    `json:"retention"`
	Created     time.Time `json:"created"`
}

// FindExpired lists the records of one class of retention (CX-05) that were made before
// a time, oldest first. Records of runs that were no contracts are of no class, and
// whoever runs still is left alone. What cannot be read is named in the error; the
// others are listed all the same.
func FindExpired(store *record.Store, class string, before time.Time) ([]Expired, error) {
	records, err := store.ListBrief()
	errs := []error{err}
	expired := []Expired{}
	for _, each := range records {
		if each.State == record.Running || !each.Created.Before(before) {
			continue
		}
		o, err := readOutcome(filepath.Join(each.Dir, OutcomeFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record %s: %w", each.ID, err))
			continue
		}
		if o.Evidence.Retention == class {
			expired = append(expired, Expired{RunID: each.ID, ExecutionID: o.ExecutionID, Retention: class, Created: each.Created})
		}
	}
	return expired, errors.Join(errs...)
}

// ReadOutcome reads the outcome in the record of a run; there is none (fs.ErrNotExist)
// in that of a run that was no contract.
func ReadOutcome(each record.Record) (*Outcome, error) {
	return readOutcome(filepath.Join(each.Dir, OutcomeFile))
}

// maxOutcome bounds an outcome that is read: streams and artifacts as text, escaped.
const maxOutcome = 64 << 20

func readOutcome(path string) (*Outcome, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxOutcome {
		return nil, fmt.Errorf("%s: is not an outcome", filepath.Base(path))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var o Outcome
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if o.Schema != OutcomeSchemaV1 {
		return nil, fmt.Errorf("%s: schema %q is not known", filepath.Base(path), o.Schema)
	}
	return &o, nil
}
