package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// An ApprovalLedger remembers in a folder which approvals were used. Processes may share
// it.
type ApprovalLedger struct {
	// Dir is a folder of the state folder; it is made when it is first needed.
	Dir string
}

// usedApproval is the file of an approval that was used.
type usedApproval struct {
	Approval    Approval `json:"approval"`
	ExecutionID string   `json:"execution_id"`
	UsedAt      string   `json:"used_at"`
}

// Use marks an approval as used by an execution. A second use, by whatever process, is
// an [ApprovalUsedError]. An approval stays used when the execution fails, and when its
// mark could not be completed.
func (l ApprovalLedger) Use(a Approval, executionID string, now time.Time) error {
	if err := policy.CheckName("approval.id", a.ID); err != nil {
		return err
	}
	text, err := json.MarshalIndent(usedApproval{a, executionID, now.UTC().Format(time.RFC3339)}, "", "  ")
	if err != nil {
		return fmt.Errorf("marking approval %s as used: %w", a.ID, err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("marking approval %s as used: %w", a.ID, err)
	}
	path := filepath.Join(l.Dir, a.ID+".json")
	// Whoever makes the file has the approval.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return l.used(a.ID, path)
	}
	if err != nil {
		return fmt.Errorf("marking approval %s as used: %w", a.ID, err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("marking approval %s as used: %w", a.ID, err)
	}
	return nil
}

// used tells what is known of an earlier use. The file of one that was cut short says
// nothing.
func (l ApprovalLedger) used(id, path string) *ApprovalUsedError {
	known := &ApprovalUsedError{ID: id}
	file, err := os.Open(path)
	if err != nil {
		return known
	}
	defer file.Close()
	var u usedApproval
	if json.NewDecoder(io.LimitReader(file, MaxDocument)).Decode(&u) == nil {
		known.By, known.At = u.ExecutionID, u.UsedAt
	}
	return known
}

// An ApprovalUsedError is an approval that was used before.
type ApprovalUsedError struct {
	ID string
	// By and At are the execution that used it, and when; empty if that is not known.
	By, At string
}

func (e *ApprovalUsedError) Error() string {
	text := fmt.Sprintf("approval %s was used before", e.ID)
	if e.By != "" {
		text += fmt.Sprintf(", by execution %q at %q", e.By, e.At)
	}
	return text
}

// Hint says what to do about it.
func (e *ApprovalUsedError) Hint() string {
	return "an approval serves one execution; have a new one made for this one"
}

// usedViolation is the rule that an approval breaks which was used before.
func usedViolation(used *ApprovalUsedError) Violation {
	return Violation{Code: "CK-01", Field: "approval", Value: quoted(used.ID), Rule: strings.TrimPrefix(used.Error(), "approval "+used.ID+" ")}
}
