package contract

import (
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

// Rules are what a contract is checked against before anything else looks at it. The
// checks are of the text alone: what the host's files are is looked at later. The zero
// value refuses every contract.
type Rules struct {
	// Registry are the tools; with OpenAllowlist it may be empty.
	Registry Registry
	// Profiles are the limits; the contract names one of them.
	Profiles policy.Profiles
	// Adapters are the adapters that there are, by ID.
	Adapters []string
	// Strict blocks the characters of IV-02 in the command and its arguments, and
	// refuses contracts with variables that would be stripped.
	Strict bool
	// OpenAllowlist permits commands of no registered tool (resolution 12). A contract
	// that names a registered tool is held to it all the same.
	OpenAllowlist bool
	// ApprovedEnv, if not nil, are the only variables that a program is given: names,
	// or beginnings of names with a '*' at the end. Others are stripped.
	ApprovedEnv []string
}

// Effective is what a contract amounts to: its own values, else those of the profile,
// with units.
type Effective struct {
	// Contract is the contract with defaults filled in. Its environment is what the
	// program is given: nothing that was stripped.
	Contract Contract
	// ContractSHA256 is [Contract.SHA256] of the contract as it was read.
	ContractSHA256 string
	// Tool is the registered tool; nil if there is none and there need not be.
	Tool *Tool
	// Profile is the profile whose limits hold.
	Profile string

	Timeout time.Duration
	Memory  policy.Size
	// CPUs is the number of processors.
	CPUs int64
	// MaxChildren is the number of processes and threads beside the program itself.
	MaxChildren int64
	AllowFork   bool

	FilesystemLevel policy.FilesystemLevel
	NetworkLevel    policy.NetworkLevel

	// Stdout, Stderr, OutputFiles and Artifacts bound what is captured (CX-05).
	Stdout, Stderr, OutputFiles, Artifacts policy.Size

	// Clock is the time that the program sees at its start; zero is the real one.
	Clock time.Time
	// Needs are the levels that need an approval, as in [Approval.Levels].
	Needs []string
	// Warnings are what a careful reader should know, such as a deprecated tool.
	Warnings []string
}

// Validate checks the text of a contract: IV-01 to IV-05, then limits (CX-02), levels
// (CX-03, CX-04), outputs (CX-05) and the rest. It returns every violation, in that
// order and at most a hundred, and the variables that the program will not be given.
// Effective is for use only if there are no violations; its hash always is.
func (r Rules) Validate(c Contract) (e Effective, violations, stripped []Violation) {
	check := &checker{rules: r, given: c, c: c.WithDefaults(r.Profiles)}
	check.tool()        // IV-01
	check.arguments()   // IV-02
	check.paths()       // IV-03
	check.environment() // IV-04
	check.stdin()       // IV-05
	check.limits()      // CX-02
	check.filesystem()  // CX-03
	check.network()     // CX-04
	check.outputs()     // CX-05
	check.determinism() // DT-01
	check.adapter()     // CK-01
	check.identity()    // CX-01
	e = check.effective()
	e.ContractSHA256 = c.SHA256(r.Profiles)
	return e, bounded(check.violations), bounded(check.stripped)
}

// Examine reads a document and validates what could be read of it, so that everything
// is reported at once, with lines. What is wrong with the form of the document comes
// first, and a field that could not be read is not reported again.
func (r Rules) Examine(text []byte, source string) (c Contract, e Effective, violations, stripped []Violation) {
	c, lines, form := parse(text)
	if len(lines) == 0 {
		return c, e, form, nil // nothing could be read
	}
	e, rules, stripped := r.Validate(c)
	violations = form
	for _, v := range rules {
		if !slices.ContainsFunc(form, func(f Violation) bool { return within(v.Field, f.Field) || within(f.Field, v.Field) }) {
			violations = append(violations, v)
		}
	}
	for _, list := range [][]Violation{violations, stripped} {
		for i := range list {
			if list[i].Line == 0 {
				list[i].Line = lineOf(lines, list[i].Field)
			}
		}
	}
	return c, e, bounded(violations), stripped
}

// within says whether a field is another one or a part of it.
func within(field, of string) bool {
	rest, ok := strings.CutPrefix(field, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// lineOf is the line of a field, or of the nearest one that it is a part of.
func lineOf(lines map[string]int, field string) int {
	for field != "" {
		if line, ok := lines[field]; ok {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return 0
}

// A checker collects what is wrong with a contract.
type checker struct {
	rules Rules
	// given is the contract as it was read, c that with defaults filled in.
	given, c             Contract
	t                    *Tool
	violations, stripped []Violation
	warnings, needs      []string
	env                  map[string]string
	clock                time.Time
}

// refuse adds a violation. A text of the contract is quoted by the caller.
func (k *checker) refuse(code, field, value, rule string) {
	k.violations = append(k.violations, Violation{Code: code, Field: field, Value: value, Rule: rule})
}

// refuseText adds a violation by a text of the contract.
func (k *checker) refuseText(code, field, text, rule string) {
	k.refuse(code, field, strict.Quoted(text), rule)
}

// as makes refuse report with one code.
func (k *checker) as(code string) func(field, value, rule string) {
	return func(field, value, rule string) { k.refuse(code, field, value, rule) }
}
