package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"
)

// Violation is one rule that one field of a contract breaks.
type Violation struct {
	// Code is IV-01 to IV-05 for input checks, CX-02 to CX-05 for limits, levels and
	// outputs, DT-01 for determinism, CK-01 for adapters and approvals, and CX-01 for the
	// document itself and its metadata.
	Code string `json:"code"`
	// Line is the line of the field in the document; 0 if it is not known.
	Line int `json:"line"`
	// Field is the path of the field, such as inputs.arguments[2].
	Field string `json:"field"`
	// Value is the value of the field, shortened.
	Value string `json:"value"`
	// Rule is the rule that it breaks.
	Rule string `json:"rule"`
	// Hint is a hint for this violation alone; empty if the code and the field have one. See [Hints].
	Hint string `json:"hint"`
	// Sentence replaces the usual error of the outcome (CI-02); empty for most violations.
	Sentence string `json:"sentence"`
}

// String is the violation without its line.
func (v Violation) String() string {
	what := strings.TrimSpace(v.Field + " " + v.Value)
	if what == "" {
		return v.Code + ": " + v.Rule
	}
	return v.Code + ": " + what + ": " + v.Rule
}

// maxViolations bounds the reported violations.
const maxViolations = strict.MaxProblems

// bounded cuts a list of violations, and counts the rest.
func bounded(violations []Violation) []Violation {
	more := len(violations) - maxViolations
	if more <= 0 {
		return violations
	}
	return append(slices.Clone(violations[:maxViolations]), Violation{Code: "CX-01", Rule: fmt.Sprintf("%d violations more are not listed", more)})
}

// violates reports whether a violation is about a field, a part of it, or the field that it
// is a part of.
func violates(violations []Violation, field string) bool {
	return slices.ContainsFunc(violations, func(v Violation) bool { return strict.Within(v.Field, field) || strict.Within(field, v.Field) })
}

// addLines sets the missing lines of violations: that of the field, or of the nearest field
// that it is a part of.
func addLines(violations []Violation, lines map[string]int) {
	for i := range violations {
		v := &violations[i]
		for field := v.Field; field != "" && v.Line == 0; field = field[:max(0, strings.LastIndexAny(field, ".["))] {
			v.Line = lines[field]
		}
	}
}

// A RefusedError is a document that breaks rules.
type RefusedError struct {
	// Source is the document's name.
	Source     string
	Violations []Violation
}

// Error has a line for each violation.
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

// Hints of single violations.
const (
	hintNoApproval   = "let somebody approve it: --approve NAME --reason TEXT, or --approval FILE of: sandbox contract approve"
	hintNoClock      = "leave the clock out, or choose an image that has libfaketime"
	hintPassAsFile   = "no argument may be that long or hold a NUL byte; pass it as a file or on stdin"
	hintDependencies = "if it may be read, name it or a directory above it with --dependency or contract_dependencies in the user's configuration"
	hintPaths        = "paths are of this machine, relative to the root, which --root names"
	hintLevels       = "see what each level opens with: sandbox contract new"
	hintProfile      = "a profile with other limits is named with sandbox.profile; profiles of your own with --profiles"
	hintMachine      = "ask for less, or name an engine that has more with --host or --context"
	hintRemote       = "name the hosts in sandbox_override.network of the adapter, with enabled and allow; or in sandbox.network of the contract, with level api and allow"
	hintPrivate      = "permit such addresses with SANDBOX_ALLOW_PRIVATE_EGRESS=true or allow_private_egress in the user's configuration"
	hintEgress       = "permit the level with SANDBOX_ALLOW_EGRESS or allow_egress in the user's configuration"
)

// hints are the hints of other violations, by their code and field; the first one that fits
// counts.
var hints = []struct{ code, field, hint string }{
	{"CK-01", "approval", "an approval is for one execution of one contract: make another with: sandbox contract approve"},
	{"CX-01", "inputs.parameters", "see the parameters with: sandbox adapter show ID --level L3"},
	{"CK-01", "inputs.operation", "see the operations with: sandbox adapter show ID"},
	{"CK-01", "adapter_id", "see the adapters with: sandbox adapter list"},
	{"CX-03", "root", "choose another directory with --root"},
	{"IV-01", "", "see the tools and their commands with: sandbox contract tools; a registry of your own is named with --registry"},
	{"IV-02", "", "without --strict arguments are passed on as they are: there is no shell"},
	{"IV-03", "", hintPaths},
	{"IV-05", "inputs.input_files", "input files are relative to the working directory"},
	{"CX-03", "", hintPaths},
	{"DT-01", "determinism.clock", "give a time such as 2030-01-31T12:00:00Z"},
}

// Hints say what to try about violations, each once and in their order. root is the root of
// the contract; empty if it is not known.
func Hints(violations []Violation, root string) []string {
	var hints []string
	for _, v := range violations {
		if hint := v.hintIn(root); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	if len(hints) == 0 {
		hints = append(hints, "see the fields of a contract, with comments: sandbox contract new")
	}
	return hints
}

func (v Violation) hintIn(root string) string {
	if v.Hint != "" {
		return v.Hint
	}
	for _, h := range hints {
		if h.code != v.Code || h.field != "" && !strict.Within(v.Field, h.field) {
			continue
		}
		if h.hint == hintPaths && root != "" {
			return "paths are of this machine, relative to the root " + root + "; another is named with --root"
		}
		return h.hint
	}
	return ""
}
