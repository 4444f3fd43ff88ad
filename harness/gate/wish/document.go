package wish

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// document is the wire form of a wish, as people write it. Pointers tell what is said
// from what is left out.
type document struct {
	Schema         string            `json:"schema,omitempty"`
	Name           string            `json:"name,omitempty"`
	GateCommands   []command         `json:"gate_commands,omitempty"`
	IOBoundary     string            `json:"io_boundary,omitempty"`
	Offline        *bool             `json:"offline,omitempty"`
	Network        *network          `json:"network,omitempty"`
	Image          string            `json:"image,omitempty"`
	Python         string            `json:"python,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Limits         limits            `json:"limits,omitzero"`
	ArtifactPaths  []string          `json:"artifact_paths,omitempty"`
	ProtectedPaths []string          `json:"protected_paths,omitempty"`
	ReadOnlyPaths  []string          `json:"read_only_paths,omitempty"`
	Exclude        []string          `json:"exclude,omitempty"`
	Toolchain      []tool            `json:"toolchain,omitempty"`
	ClaimGrade     *bool             `json:"claim_grade,omitempty"`
	Strict         bool              `json:"strict,omitempty"`
	// AllowUnobserved is checked with the wish: strict demands full observation.
	AllowUnobserved bool     `json:"allow_unobserved,omitempty"`
	Normalize       []rule   `json:"normalize,omitempty"`
	AllowSuspects   []string `json:"allow_suspects,omitempty"`
}

// command is one gate; a document may have its cmd alone.
type command struct {
	Cmd        string            `json:"cmd"`
	ExpectExit int               `json:"expect_exit,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Report     string            `json:"report,omitempty"`
	ReportPath string            `json:"report_path,omitempty"`
	Timeout    duration          `json:"timeout,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
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

type tool struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

type rule struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
	Replace string `json:"replace"`
}

// duration is a time in milliseconds, written such as 90s.
type duration int64

// maxTime bounds every time limit; the policy of a machine has ceilings of its own.
const maxTime = 7 * 24 * time.Hour

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

// maxCPUs is what policy.Limits takes.
const maxCPUs = 4096

// milliCPUs is a number of processors in thousandths.
func milliCPUs(cpus float64) (int64, error) {
	milli := math.Round(cpus * 1000)
	if math.IsNaN(cpus) || cpus < 0.01 || cpus > maxCPUs || math.Abs(milli-cpus*1000) > 1e-6 {
		return 0, errors.New("must be between 0.01 and 4096, with at most three digits after the point")
	}
	return int64(milli), nil
}
