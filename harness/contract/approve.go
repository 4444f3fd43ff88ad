package contract

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

// ParseApproval reads an approval, which is YAML or JSON. Source is its name in
// messages. The format is strict; an error of type [RefusedError] says everything that is
// wrong with the text. Whether it permits anything says [CheckApproval].
func ParseApproval(text []byte, source string) (Approval, error) {
	var a Approval
	lines := map[string]int{}
	violations := decode(text, &a, strict.Options{Schema: ApprovalSchemaV1, Lines: lines})
	if len(violations) == 0 {
		violations = a.problems()
	}
	for i := range violations {
		if violations[i].Line == 0 {
			violations[i].Line = lineOf(lines, violations[i].Field)
		}
	}
	if len(violations) > 0 {
		return Approval{}, &RefusedError{source, violations}
	}
	return a, nil
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}\z`)

// problems are what is wrong with an approval whatever it is for.
func (a Approval) problems() []Violation {
	k := &checker{}
	report := k.as("CK-01")
	if a.Schema != ApprovalSchemaV1 {
		report("schema", strict.Quoted(a.Schema), fmt.Sprintf("want %q", ApprovalSchemaV1))
	}
	if err := policy.CheckName("id", a.ID); err != nil {
		report("id", strict.Quoted(a.ID), fieldRule(err))
	}
	if !sha256Pattern.MatchString(a.ContractSHA256) {
		report("contract_sha256", strict.Quoted(a.ContractSHA256), "must be 64 lower-case hexadecimal digits")
	}
	for _, f := range []struct{ field, value string }{{"approved_by", a.ApprovedBy}, {"reason", a.Reason}} {
		rule := textRule(f.value, maxPurpose)
		if strings.TrimSpace(f.value) == "" {
			rule = "must not be empty"
		}
		if rule != "" {
			report(f.field, strict.Quoted(f.value), rule)
		}
	}
	if !filepath.IsAbs(a.Root) || textRule(a.Root, maxPath) != "" {
		report("root", strict.Quoted(a.Root), "must be the absolute path of a folder")
	}
	if rule := textRule(a.Image, maxMetadata); rule != "" {
		report("image", strict.Quoted(a.Image), rule)
	}
	var times []time.Time
	for _, f := range []struct{ field, value string }{{"approved_at", a.ApprovedAt}, {"expires_at", a.ExpiresAt}} {
		t, err := time.Parse(time.RFC3339, f.value)
		if err != nil {
			report(f.field, strict.Quoted(f.value), "must be a time of RFC 3339, such as 2026-01-31T12:00:00Z")
			continue
		}
		times = append(times, t)
	}
	if len(times) == 2 && !times[1].After(times[0]) {
		report("expires_at", strict.Quoted(a.ExpiresAt), "is not after approved_at")
	}
	if len(times) == 2 && times[1].Sub(times[0]) > MaxApproval {
		report("expires_at", strict.Quoted(a.ExpiresAt), "is more than 7 days after approved_at")
	}
	if len(a.Levels) == 0 {
		report("levels", "", "must name what is approved: "+needElevated+", "+needOpen)
	}
	for i, level := range a.Levels {
		oneOf(report, fmt.Sprintf("levels[%d]", i), level, []string{needElevated, needOpen})
	}
	return bounded(k.violations)
}

// Approvable is what an approval is for: one contract, where it is carried out.
type Approvable struct {
	// ContractSHA256 is [Effective.ContractSHA256], Needs are the levels of
	// [Effective.Needs].
	ContractSHA256 string
	Needs          []string
	// Root and Image are those of [Approval].
	Root, Image string
}

// NewApprovable is what is approved of a contract that is carried out in a root, which
// need not be the real path, and in an image.
func NewApprovable(e Effective, root, image string) Approvable {
	if real := realPaths([]string{root}); len(real) == 1 {
		root = real[0]
	}
	return Approvable{ContractSHA256: e.ContractSHA256, Needs: e.Needs, Root: root, Image: image}
}

// MaxApproval is how long an approval can be used at most.
const MaxApproval = 7 * 24 * time.Hour

// CheckApproval says why an approval does not permit an execution: nil if it does.
// That it was made here says [ApprovalLedger.Check], and that it serves once sees to
// [ApprovalLedger.Use].
func CheckApproval(a Approval, of Approvable, now time.Time) []Violation {
	k := &checker{violations: a.problems()}
	report := k.as("CK-01")
	if len(k.violations) == 0 {
		from, _ := time.Parse(time.RFC3339, a.ApprovedAt) // parsed before
		until, _ := time.Parse(time.RFC3339, a.ExpiresAt)
		if now.Before(from) {
			report("approved_at", strict.Quoted(a.ApprovedAt), "the approval is not valid yet")
		}
		if !now.Before(until) {
			report("expires_at", strict.Quoted(a.ExpiresAt), "the approval has expired")
		}
		if a.ContractSHA256 != of.ContractSHA256 {
			report("contract_sha256", strict.Quoted(a.ContractSHA256), "the approval is for another contract: this one is "+of.ContractSHA256)
		}
		if a.Root != of.Root {
			report("root", strict.Quoted(a.Root), "the approval is for another root: this one is "+of.Root)
		}
		if a.Image != of.Image {
			report("image", strict.Quoted(a.Image), "the approval is for another image: this one is "+cmp.Or(of.Image, "the default"))
		}
	}
	for _, level := range of.Needs {
		if !slices.Contains(a.Levels, level) {
			report("levels", "", "the approval does not name "+level)
		}
	}
	for i := range k.violations {
		k.violations[i].Field = "approval." + k.violations[i].Field
	}
	return k.violations
}
