package wish

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/policy"
)

// MaxDocument bounds a wish and a lock in bytes.
const MaxDocument = 1 << 20

// Parse reads a wish, which is YAML or JSON. Name is that of the file in messages. The
// format is strict; the error joins every problem, each with its line. It looks at no
// disk.
func Parse(text []byte, name string) (Wish, error) {
	if err := small(text, name); err != nil {
		return Wish{}, err
	}
	var d document
	lines := map[string]int{}
	problems := strict.Decode(text, &d, strict.Options{Tag: "json", Schema: SchemaV1, SchemaOptional: true, Lines: lines})
	form := strict.Join(name, problems)
	if len(lines) == 0 {
		return Wish{}, form
	}
	w := normal(d)
	c := checker{source: name, lines: lines, form: problems}
	c.wire(d)
	c.wish(w)
	if err := errors.Join(form, c.err()); err != nil {
		return Wish{}, err
	}
	return w, nil
}

func small(text []byte, name string) error {
	if len(text) > MaxDocument {
		return fmt.Errorf("%s: has more than %v", name, policy.Size(MaxDocument))
	}
	return nil
}

// checked reports everything that is wrong with a wish.
func checked(w Wish, source string, lines map[string]int) error {
	c := checker{source: source, lines: lines}
	c.wish(w)
	return c.err()
}

// normal fills in defaults, and cleans what can be cleaned. What cannot is left as it
// is for [checker] to refuse.
func normal(d document) Wish {
	w := Wish{
		Schema: SchemaV1, Name: cmp.Or(d.Name, "gate"), GateCommands: []Command{}, IOBoundary: clean(cmp.Or(d.IOBoundary, ".")),
		Image: d.Image, Python: d.Python, Env: env(d.Env),
		Limits: evidence.Caps{
			TimeoutMS: int64(d.Limits.Timeout), MemoryBytes: int64(d.Limits.Memory), PIDs: d.Limits.PIDs,
			DiskBytes: int64(d.Limits.Disk), LogBytes: int64(d.Limits.Log),
		},
		ArtifactPaths: append([]string{}, d.ArtifactPaths...), ProtectedPaths: cleaned(d.ProtectedPaths), ReadOnlyPaths: cleaned(d.ReadOnlyPaths),
		Exclude: cleaned(d.Exclude), Toolchain: []Tool{}, Strict: d.Strict, AllowUnobserved: d.AllowUnobserved,
		ClaimGrade: d.ClaimGrade == nil || *d.ClaimGrade,
		Network:    evidence.Egress{Level: string(policy.Offline), Allow: []string{}, Deny: []string{}},
		Normalize:  []evidence.Rule{}, AllowSuspects: append([]string{}, d.AllowSuspects...),
	}
	w.Limits.MilliCPUs, _ = milliCPUs(d.Limits.CPUs) // checked with the document
	if d.Network != nil {
		w.Network = evidence.Egress{Level: d.Network.Level, Allow: append([]string{}, d.Network.Allow...), Deny: append([]string{}, d.Network.Deny...)}
	}
	w.Offline = w.Network.Level == string(policy.Offline)
	for _, c := range d.GateCommands {
		w.GateCommands = append(w.GateCommands, normalCommand(c))
	}
	for _, t := range d.Toolchain {
		w.Toolchain = append(w.Toolchain, Tool(t))
	}
	for _, r := range d.Normalize {
		w.Normalize = append(w.Normalize, evidence.Rule(r))
	}
	return w
}

func normalCommand(c command) Command {
	n := Command{
		Cmd: c.Cmd, ExpectExit: c.ExpectExit, Kind: evidence.GateKind(cmp.Or(c.Kind, string(evidence.KindTests))),
		Report: evidence.ReportFormat(c.Report), TimeoutMS: int64(c.Timeout), Env: env(c.Env),
	}
	if c.ReportPath != "" {
		n.ReportPath = clean(c.ReportPath)
	}
	switch {
	case n.Report != "":
	case n.ReportPath != "":
		n.Report = evidence.ReportJUnit
	case n.Kind == evidence.KindCheck:
		n.Report = evidence.ReportNone
	default:
		n.Report = evidence.ReportAuto
	}
	return n
}

// clean is path.Clean that leaves an empty path empty: it is a mistake, not ".".
func clean(name string) string {
	if name == "" {
		return ""
	}
	return path.Clean(name)
}

func cleaned(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = clean(name)
	}
	return all
}

func env(vars map[string]string) map[string]string {
	all := make(map[string]string, len(vars))
	for name, value := range vars {
		all[name] = value
	}
	return all
}

// A checker collects what is wrong with a wish.
type checker struct {
	source string
	lines  map[string]int
	// form is what is wrong already; it is not told twice.
	form []strict.Problem
	errs []error
	more int
}

func (c *checker) err() error {
	if c.more > 0 {
		c.errs = append(c.errs, fmt.Errorf("%s: has %d problems more", c.source, c.more))
	}
	return errors.Join(c.errs...)
}

// refuse adds a problem of a field; value is shown shortened, unless it is empty.
func (c *checker) refuse(field, value, rule string) {
	if slices.ContainsFunc(c.form, func(p strict.Problem) bool {
		return p.Path == field || strings.HasPrefix(field, p.Path+".") || strings.HasPrefix(field, p.Path+"[")
	}) {
		return
	}
	if len(c.errs) == strict.MaxProblems {
		c.more++
		return
	}
	if value != "" {
		value = strict.Quoted(value)
	}
	line := 0
	for at := field; line == 0 && at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		line = c.lines[at]
	}
	c.errs = append(c.errs, errors.New(strict.Problem{Line: line, Path: field, Value: value, Rule: rule}.At(c.source)))
}
