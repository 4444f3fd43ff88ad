package spec

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

const (
	MaxDocument = 1 << 20            // bytes of a wish or a lock
	maxTime     = 7 * 24 * time.Hour // the policy of a machine has ceilings of its own
	maxCPUs     = 4096               // the maximum of policy.Limits
)

// document is a wish as people write it: a [Spec] with other forms of some values.
type document struct {
	Spec
	GateCommands []command `json:"gate_commands"`
	Offline      *bool     `json:"offline"`
	Network      *network  `json:"network"`
	Limits       limits    `json:"limits"`
}

// newDocument has the defaults.
func newDocument() document {
	return document{Spec: Spec{
		Schema: SchemaV1, Name: "gate", IOBoundary: ".", GateCommands: []evidence.Command{},
		Network: evidence.Egress{Level: string(policy.Offline), Allow: []string{}, Deny: []string{}}, Env: map[string]string{},
		Paths: evidence.Paths{ArtifactPaths: []string{}, ProtectedPaths: []string{}, ReadOnlyPaths: []string{}, Exclude: []string{}},
		Flags: evidence.Flags{ClaimGrade: true}, Toolchain: []Tool{}, Normalize: []evidence.Rule{}, AllowSuspects: []string{},
	}}
}

// command is one gate; a document may have its cmd alone.
type command struct {
	Cmd        string                `json:"cmd"`
	ExpectExit int                   `json:"expect_exit,omitempty"`
	Kind       evidence.GateKind     `json:"kind,omitempty"`
	Report     evidence.ReportFormat `json:"report,omitempty"`
	ReportPath string                `json:"report_path,omitempty"`
	Timeout    duration              `json:"timeout,omitempty"`
	Env        map[string]string     `json:"env,omitempty"`
}

// SetWord lets a command be only a line.
func (c *command) SetWord(word string) error {
	c.Cmd = word
	return nil
}

type network struct {
	Level string   `json:"level"`
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

type limits struct {
	Timeout duration    `json:"timeout,omitempty"`
	Memory  policy.Size `json:"memory,omitempty"`
	CPUs    float64     `json:"cpus,omitempty"`
	PIDs    int64       `json:"pids,omitempty"`
	Disk    policy.Size `json:"disk,omitempty"`
	Log     policy.Size `json:"log,omitempty"`
}

// duration is a time in milliseconds, written such as 90s.
type duration int64

// UnmarshalText reads a duration.
func (d *duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	if err != nil || t < time.Millisecond || t > maxTime || t%time.Millisecond != 0 {
		return fmt.Errorf("must be a time of whole milliseconds from 1ms to %v, such as 90s or 10m", maxTime)
	}
	*d = duration(t.Milliseconds())
	return nil
}

// MarshalText writes a duration as it is read.
func (d duration) MarshalText() ([]byte, error) {
	return []byte((time.Duration(d) * time.Millisecond).String()), nil
}

// milliCPUs is a number of processors in thousandths; -1 if it has more digits or is too large.
func milliCPUs(cpus float64) int64 {
	milli := math.Round(cpus * 1000)
	if !(math.Abs(milli-cpus*1000) < 1e-6 && cpus <= maxCPUs) {
		return -1
	}
	return int64(milli)
}

// Parse reads a wish, which is YAML or JSON. name is that of the file in messages. The format
// is strict; the error joins all problems, each with its line. Parse looks at no disk.
func Parse(text []byte, name string) (Spec, error) {
	if err := small(text, name); err != nil {
		return Spec{}, err
	}
	d, lines := newDocument(), map[string]int{}
	form := strict.Decode(text, &d, strict.Options{Tag: "json", Schema: SchemaV1, SchemaOptional: true, Lines: lines})
	c := checker{source: name, lines: lines, form: form}
	if len(lines) == 0 {
		return Spec{}, c.err()
	}
	s := d.normal()
	c.document(d)
	c.spec(s)
	if err := c.err(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

func small(text []byte, name string) error {
	if len(text) > MaxDocument {
		return fmt.Errorf("%s: has more than %v", name, policy.Size(MaxDocument))
	}
	return nil
}

// normal converts values and cleans paths. A path that cannot be cleaned stays, and the
// checker refuses it.
func (d document) normal() Spec {
	s := d.Spec
	s.IOBoundary = clean(s.IOBoundary)
	for _, names := range [][]string{s.ProtectedPaths, s.ReadOnlyPaths, s.Exclude} {
		for i, name := range names {
			names[i] = clean(name)
		}
	}
	if n := d.Network; n != nil {
		s.Network = evidence.Egress{Level: n.Level, Allow: append([]string{}, n.Allow...), Deny: append([]string{}, n.Deny...)}
	}
	s.Offline = s.Network.Level == string(policy.Offline)
	s.Limits = evidence.Caps{
		TimeoutMS: int64(d.Limits.Timeout), MemoryBytes: int64(d.Limits.Memory), MilliCPUs: milliCPUs(d.Limits.CPUs),
		PIDs: d.Limits.PIDs, DiskBytes: int64(d.Limits.Disk), LogBytes: int64(d.Limits.Log),
	}
	for _, c := range d.GateCommands {
		s.GateCommands = append(s.GateCommands, c.normal())
	}
	return s
}

func (c command) normal() evidence.Command {
	n := evidence.Command{
		Cmd: c.Cmd, ExpectExit: c.ExpectExit, Kind: cmp.Or(c.Kind, evidence.KindTests), Report: c.Report, ReportPath: clean(c.ReportPath), TimeoutMS: int64(c.Timeout), Env: c.Env,
	}
	if n.Env == nil {
		n.Env = map[string]string{}
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
