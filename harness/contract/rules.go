package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// Rules are the checks of the text of a contract; the files of the host are checked later.
// The zero value refuses every contract.
type Rules struct {
	// Registry has the tools; it may be empty with OpenAllowlist.
	Registry registry.Registry
	// Profiles are the limits; the contract names one of them.
	Profiles policy.Profiles
	// Strict blocks the characters of IV-02 in the command and its arguments, and refuses
	// contracts with variables that would be stripped.
	Strict bool
	// OpenAllowlist permits commands of no registered tool (resolution 12). A contract that
	// names a registered tool must still comply with it.
	OpenAllowlist bool
	// Adapters carry out contracts that name an adapter; nil refuses these.
	Adapters Adapters
	// ApprovedEnv, if not nil, are the only variables that reach the program: names, or
	// prefixes that end with '*'. All others are stripped.
	ApprovedEnv []string
}

// Effective is a contract with its defaults, in units of Go.
type Effective struct {
	// Contract has defaults filled in, and no stripped variables.
	Contract Contract
	// ContractSHA256 is [Contract.SHA256] of the contract as it was read. With an adapter it covers
	// the contract as it is carried out, and the document of the adapter.
	ContractSHA256 string
	// Tool is nil for an unregistered tool.
	Tool *registry.Tool
	// Adapted is how the adapter of the contract carries it out; nil without one.
	Adapted *Adapted
	Profile string

	Timeout time.Duration
	Memory  policy.Size
	// CPUs is the number of processors, and MaxChildren the number of processes and threads
	// beside the program itself.
	CPUs, MaxChildren int64
	AllowFork         bool

	FilesystemLevel policy.FilesystemLevel
	NetworkLevel    policy.NetworkLevel

	// Stdout, Stderr, OutputFiles and Artifacts bound what is captured (CX-05).
	Stdout, Stderr, OutputFiles, Artifacts policy.Size

	// Clock is the time that the program sees at its start; zero is the real one.
	Clock time.Time
	// Needs are the levels that need an approval, as in [Approval.Levels].
	Needs    []string
	Warnings []string
}

// Validate checks the text of a contract: inputs (IV-01 to IV-05), limits (CX-02), levels
// (CX-03, CX-04), outputs (CX-05) and the rest. It returns all violations in this order, at
// most a hundred, and the variables that are stripped. If there are violations, only the
// hash of Effective is valid.
// A contract with an adapter is checked as its adapter carries it out.
func (r Rules) Validate(c Contract) (e Effective, violations, stripped []Violation) {
	if _, err := json.Marshal(c.Inputs.Parameters); err != nil { // of a caller in Go
		return e, []Violation{{Code: "CX-01", Field: "inputs.parameters", Rule: "must be plain data: " + err.Error()}}, nil
	}
	adapted, refused := r.adapt(c)
	var warnings []string
	if adapted != nil {
		c, warnings = adapted.Contract, adapted.Warnings
	}
	k := &checker{rules: r, given: c, c: c.WithDefaults(r.Profiles), adapted: adapted, unadapted: refused, warnings: slices.Clone(warnings)}
	for _, check := range []struct {
		code string
		do   func()
	}{
		{"IV-01", k.tool}, {"IV-02", k.arguments}, {"IV-03", k.paths}, {"IV-04", k.environment}, {"IV-05", k.stdin},
		{"CX-02", k.limits}, {"CX-03", k.filesystem}, {"CX-04", k.network}, {"CX-05", k.outputs}, {"DT-01", k.determinism},
		{"CK-01", k.adapter}, {"CX-01", k.identity},
	} {
		k.code = check.code
		check.do()
	}
	e = k.effective()
	e.ContractSHA256 = c.SHA256(r.Profiles)
	if adapted != nil { // an approval is for this version of the adapter
		e.ContractSHA256 = sha256Of(e.ContractSHA256 + " " + adapted.Digest)
	}
	return e, bounded(k.violations), bounded(k.stripped)
}

// Examination is the result of the check of a document.
type Examination struct {
	Contract  Contract
	Effective Effective
	// Violations are all broken rules, Stripped the variables that the program does not get.
	Violations, Stripped []Violation

	lines map[string]int
}

// Examine parses a document and validates the part of it that could be read. Problems with
// the form come first, and a field that could not be read is reported once.
func (r Rules) Examine(text []byte) Examination {
	c, lines, form := parse(text)
	if len(lines) == 0 {
		return Examination{Contract: c, Violations: form} // nothing could be read
	}
	e, broken, stripped := r.Validate(c)
	all := slices.Clone(form)
	for _, v := range broken {
		if !violates(form, v.Field) {
			all = append(all, v)
		}
	}
	addLines(all, lines)
	addLines(stripped, lines)
	return Examination{c, e, bounded(all), stripped, lines}
}

// A checker collects the violations of a contract.
type checker struct {
	rules Rules
	code  string // of the check that runs
	// given is the contract as it was read, c the same with defaults filled in.
	given, c Contract
	t        *registry.Tool
	// adapted is the call of an adapter, unadapted the reasons why there is none.
	adapted              *Adapted
	unadapted            []Violation
	violations, stripped []Violation
	warnings, needs      []string
	env                  map[string]string
	clock                time.Time
}

// refuse adds a violation by a value of the contract; nil shows none.
func (k *checker) refuse(field string, value any, rule string) *Violation {
	shown := ""
	switch value := value.(type) {
	case nil:
	case string:
		shown = strict.Quoted(value)
	default:
		shown = fmt.Sprint(value)
	}
	k.violations = append(k.violations, Violation{Code: k.code, Field: field, Value: shown, Rule: rule})
	return &k.violations[len(k.violations)-1]
}

func (k *checker) effective() Effective {
	s, capture := k.c.Sandbox, k.c.Outputs.Capture
	size := func(p *int64) policy.Size { return policy.Size(valueOf(p)) }
	e := Effective{
		Contract: k.c, Tool: k.t, Adapted: k.adapted, Profile: s.Profile,
		Timeout: time.Duration(valueOf(s.TimeoutMS)) * time.Millisecond, Memory: size(s.MemoryMB) * policy.MiB,
		CPUs: valueOf(s.CPUCores), MaxChildren: valueOf(s.Processes.MaxChildren), AllowFork: *s.Processes.AllowFork,
		FilesystemLevel: policy.FilesystemLevel(s.Filesystem.Level), NetworkLevel: policy.NetworkLevel(s.Network.Level),
		Stdout: size(capture.StdoutBytes), Stderr: size(capture.StderrBytes),
		OutputFiles: size(capture.OutputFilesBytes), Artifacts: size(capture.ArtifactsBytes),
		Clock: k.clock, Needs: k.needs, Warnings: k.warnings,
	}
	e.Contract.Inputs.Environment = k.env
	return e
}

// valueOf is zero for nil, which a violation leaves.
func valueOf(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}
