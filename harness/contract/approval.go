package contract

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// ApprovalSchemaV1 names the wire form of [Approval].
const ApprovalSchemaV1 = "evalbox/approval/v1"

// Approval is a person's consent to one execution of one contract at a level that needs it:
// elevated files, the open network.
type Approval struct {
	// Schema is [ApprovalSchemaV1].
	Schema string `json:"schema"`
	// ID makes the approval single-use.
	ID string `json:"id"`
	// ContractSHA256 is the approved contract; see [Contract.SHA256].
	ContractSHA256 string `json:"contract_sha256"`
	// Root is the host directory that its paths are relative to, links resolved, and Image
	// the image as it was asked for; empty is the default one.
	Root  string `json:"root"`
	Image string `json:"image"`
	// ApprovedBy is a name, Reason a sentence; neither may be empty.
	ApprovedBy string `json:"approved_by"`
	Reason     string `json:"reason"`
	// ApprovedAt and ExpiresAt are RFC 3339 times, at most [MaxApproval] apart.
	ApprovedAt string `json:"approved_at"`
	ExpiresAt  string `json:"expires_at"`
	// Levels are [NeedElevated] and [NeedOpen].
	Levels []string `json:"levels"`
}

// Approver is a person who consents.
type Approver struct{ Name, Reason string }

// MaxApproval bounds the validity of an approval.
const MaxApproval = 7 * 24 * time.Hour

// onTheSpot is the validity of an approval that is given with the execution: it only has to
// last until the program starts.
const onTheSpot = 10 * time.Minute

// NewApproval approves everything that a contract needs, for an execution in a root and an
// image.
func NewApproval(e Effective, root, image string, by Approver, now time.Time, valid time.Duration) Approval {
	if real := realPaths([]string{root}); len(real) == 1 {
		root = real[0]
	}
	return Approval{
		Schema: ApprovalSchemaV1, ID: uuid.NewString(), ContractSHA256: e.ContractSHA256, Root: root, Image: image,
		ApprovedBy: by.Name, Reason: by.Reason, Levels: e.Needs,
		ApprovedAt: now.UTC().Format(time.RFC3339), ExpiresAt: now.Add(valid).UTC().Format(time.RFC3339),
	}
}

// YAML returns the approval as a document.
func (a Approval) YAML() ([]byte, error) { return encodeYAML(a) }

// ParseApproval reads an approval in YAML or JSON. Source is its name in messages. An error of
// type [*RefusedError] lists every problem with the form of the document. [CheckApproval] and
// [Approvals.Check] say whether the approval permits an execution.
func ParseApproval(text []byte, source string) (Approval, error) {
	var a Approval
	if violations := decode(text, &a, strict.Options{Schema: ApprovalSchemaV1}); len(violations) > 0 {
		return Approval{}, &RefusedError{source, violations}
	}
	return a, nil
}

// CheckApproval says why an approval does not permit an execution; want is the approval that
// it needs, of [NewApproval]. [Approvals] knows whether it was granted and used.
func CheckApproval(a, want Approval, now time.Time) (violations []Violation) {
	check := func(ok bool, field, value, rule string) {
		if !ok {
			violations = append(violations, Violation{Code: "CK-01", Field: "approval." + field, Value: quoted(value), Rule: rule})
		}
	}
	from, fromErr := time.Parse(time.RFC3339, a.ApprovedAt)
	until, untilErr := time.Parse(time.RFC3339, a.ExpiresAt)
	check(strings.TrimSpace(a.ApprovedBy) != "", "approved_by", a.ApprovedBy, "must not be empty")
	check(strings.TrimSpace(a.Reason) != "", "reason", a.Reason, "must not be empty")
	check(fromErr == nil && untilErr == nil, "approved_at", a.ApprovedAt, "both times must be of RFC 3339, such as 2026-01-31T12:00:00Z")
	if fromErr == nil && untilErr == nil {
		check(!now.Before(from), "approved_at", a.ApprovedAt, "the approval is not valid yet")
		check(now.Before(until), "expires_at", a.ExpiresAt, "the approval has expired")
		check(until.Sub(from) <= MaxApproval, "expires_at", a.ExpiresAt, "is more than 7 days after approved_at")
	}
	check(a.ContractSHA256 == want.ContractSHA256, "contract_sha256", a.ContractSHA256, "the approval is for another contract: this one is "+want.ContractSHA256)
	check(a.Root == want.Root, "root", a.Root, "the approval is for another root: this one is "+want.Root)
	check(a.Image == want.Image, "image", a.Image, "the approval is for another image: this one is "+cmp.Or(want.Image, "the default"))
	for _, level := range want.Levels {
		check(slices.Contains(a.Levels, level), "levels", "", "the approval does not name "+level)
	}
	return violations
}

// approve looks for the consent that the contract needs (CK-01).
func (run *execution) approve() ([]Violation, error) {
	e, now := run.Effective, time.Now()
	if len(e.Needs) == 0 {
		return nil, nil
	}
	want := NewApproval(e, run.Root, run.Request.Image, run.job.Approver, now, onTheSpot)
	if run.approval = run.job.Approval; run.approval != nil {
		unusable, err := run.Approvals.Check(*run.approval)
		return append(CheckApproval(*run.approval, want, now), unusable...), err
	}
	if run.job.Approver != (Approver{}) {
		run.approval = &want
		return CheckApproval(want, want, now), nil
	}
	var missing []Violation
	for _, level := range e.Needs {
		missing = append(missing, Violation{Code: "CK-01", Field: "approval", Value: level, Rule: "needs an approval, and there is none", Hint: hintNoApproval})
	}
	return missing, nil
}

// Approvals records approvals in a directory of the state directory. Processes may share it.
//
//	ID.json   an approval that was granted: one that was changed, or made elsewhere, is refused
//	ID.used   the execution that used it
type Approvals struct{ Dir string }

// usedApproval is the content of ID.used.
type usedApproval struct {
	Approval    Approval `json:"approval"`
	ExecutionID string   `json:"execution_id"`
	UsedAt      string   `json:"used_at"`
}

// Grant records an approval, so that [Approvals.Check] accepts it. An ID is granted once.
func (s Approvals) Grant(a Approval) error { return s.write("granting", a.ID, ".json", a) }

// write creates a file of an approval that must not exist, and makes it durable.
func (s Approvals) write(doing, id, suffix string, value any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s approval %s: %w", doing, quoted(id), err)
		}
	}()
	content, err := json.MarshalIndent(value, "", "  ")
	if err = errors.Join(err, policy.CheckName("approval.id", id)); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.Dir, id+suffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// read returns fs.ErrNotExist for a file that does not exist.
func (s Approvals) read(id, suffix string, into any) error {
	if err := policy.CheckName("approval.id", id); err != nil {
		return err
	}
	content, err := fsx.Read(filepath.Join(s.Dir, id+suffix), MaxDocument)
	if err != nil {
		return err
	}
	return strict.JSON(content, into)
}

// Check says why an approval cannot be used: it was not granted here, was changed, or was
// used. It changes nothing.
func (s Approvals) Check(a Approval) ([]Violation, error) {
	var granted Approval
	err := s.read(a.ID, ".json", &granted)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !reflect.DeepEqual(a, granted) {
		return []Violation{{Code: "CK-01", Field: "approval.id", Value: quoted(a.ID), Rule: "the approval was not made here, or was changed"}}, nil
	}
	if err == nil {
		if _, err = os.Lstat(filepath.Join(s.Dir, a.ID+".used")); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("checking approval %s: %w", quoted(a.ID), err)
	}
	return []Violation{s.used(a.ID).violation()}, nil
}

// Use marks an approval as used by an execution. A second use, by any process, is an
// [*ApprovalUsedError]. An approval stays used if the execution fails, and if the mark could
// not be completed.
func (s Approvals) Use(a Approval, executionID string, now time.Time) error {
	err := s.write("marking as used", a.ID, ".used", usedApproval{a, executionID, now.UTC().Format(time.RFC3339)})
	if errors.Is(err, fs.ErrExist) {
		return s.used(a.ID)
	}
	return err
}

// used describes the earlier use of an approval, as far as its mark was completed.
func (s Approvals) used(id string) *ApprovalUsedError {
	var mark usedApproval
	_ = s.read(id, ".used", &mark)
	return &ApprovalUsedError{ID: id, By: mark.ExecutionID, At: mark.UsedAt}
}

// An ApprovalUsedError is an approval that was used before.
type ApprovalUsedError struct {
	ID string
	// By and At are the earlier execution and its time; empty if they are not known.
	By, At string
}

func (e *ApprovalUsedError) Error() string { return "approval " + e.ID + " " + e.rule() }

func (e *ApprovalUsedError) rule() string {
	if e.By == "" {
		return "was used before"
	}
	return fmt.Sprintf("was used before, by execution %q at %q", e.By, e.At)
}

func (e *ApprovalUsedError) violation() Violation {
	return Violation{Code: "CK-01", Field: "approval", Value: quoted(e.ID), Rule: e.rule()}
}
