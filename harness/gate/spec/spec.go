// Package spec holds the wish: the document of a person that says what a gate is to prove.
//
// [Parse] turns a wish into a [Spec], in which every default is filled in, so that wishes with
// one meaning become the same bytes (RT-01, RT-10). [Seal] adds what its names stand for on
// this machine, and a hash over all of it; [ParseLock] finds later changes. The hash is not a
// signature: it finds changes, not forgers. [Build] is node 1: it decides what is run.
package spec

import (
	_ "embed" // for the schemas
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
)

// SchemaV1 names the wire form of a wish. A breaking change gets a new name.
const SchemaV1 = "evalbox/wish/v1"

// SchemaJSON and LockSchemaJSON are the JSON Schemas (draft 2020-12) of a wish as people write
// it and of [Lock], for readers and writers in other languages. A schema describes the form
// only: [Parse] checks more. Do not change them at run time.
var (
	//go:embed wish.schema.json
	SchemaJSON []byte
	//go:embed wish.lock.schema.json
	LockSchemaJSON []byte
)

// Spec is a wish in its normal form: every default filled in, every path clean with forward
// slashes, every size in bytes and every time in milliseconds. Lists keep their order. Nothing
// in it is nil.
type Spec struct {
	Schema string `json:"schema"` // [SchemaV1]
	Name   string `json:"name"`   // for people, and part of the names of runs
	// GateCommands are run in this order. A wish without any can be sealed; node 1 refuses it
	// (RT-10).
	GateCommands []evidence.Command `json:"gate_commands"`
	// IOBoundary is the workspace, relative to the directory of the wish; "." is that
	// directory.
	IOBoundary string            `json:"io_boundary"`
	Network    evidence.Egress   `json:"network"` // its level is "offline" if the wish is
	Image      string            `json:"image"`   // a catalog name, a reference or an ID; empty is the default image
	Python     string            `json:"python"`  // the pinned version, such as "3.11" or "3.11.2"; empty pins none
	Env        map[string]string `json:"env"`     // added to the environment of every gate; see policy.CheckEnv
	Limits     evidence.Caps     `json:"limits"`  // of each gate; 0 is the limit of the machine's policy
	evidence.Paths
	evidence.Flags
	Toolchain     []Tool          `json:"toolchain"`      // read-only directories of the host
	Normalize     []evidence.Rule `json:"normalize"`      // further rules for logs
	AllowSuspects []string        `json:"allow_suspects"` // patterns (RE2) of leftovers and of refusals in the output that are harmless
}

// Tool is a directory of the host, an absolute path, and the path where gates find it.
type Tool struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Asked is what a caller can say about one command without a wish; zero values are the defaults.
type Asked struct {
	Env             map[string]string
	Limits          evidence.Caps
	Network         *evidence.Egress
	AllowUnobserved bool
}

// FromCommand is the wish for one command, as in `gate run -- CMD…`. The arguments reach the
// program unchanged.
func FromCommand(argv []string, asked Asked) (Spec, error) {
	cmd, err := join(argv)
	if err != nil {
		return Spec{}, err
	}
	d := newDocument()
	d.Name, d.GateCommands, d.AllowUnobserved = "command", []command{{Cmd: cmd}}, asked.AllowUnobserved
	maps.Copy(d.Env, asked.Env)
	if n := asked.Network; n != nil {
		d.Network = &network{Level: n.Level, Allow: n.Allow, Deny: n.Deny}
	}
	s := d.normal()
	s.Limits = asked.Limits
	c := checker{source: "command line"}
	c.spec(s)
	return s, c.err()
}

// ErrOutside means that the boundary leads out of the directory of the wish.
var ErrOutside = errors.New("leads out of the directory of the wish")

// Workspace is the boundary below dir, the directory of the wish, with every link resolved. An
// error is [fs.ErrNotExist] if it does not exist, and [ErrOutside] if a link leads out of dir.
func (s Spec) Workspace(dir string) (string, error) {
	if !isLocal(s.IOBoundary) {
		return "", fmt.Errorf("io_boundary %q: %w", s.IOBoundary, ErrOutside)
	}
	outer, err := filepath.Abs(dir)
	if err == nil {
		outer, err = filepath.EvalSymlinks(outer)
	}
	inner := ""
	if err == nil {
		inner, err = filepath.EvalSymlinks(filepath.Join(outer, filepath.FromSlash(s.IOBoundary)))
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("io_boundary: %w", err)
	case !fsx.Within(inner, outer):
		return "", fmt.Errorf("io_boundary %q: %w", s.IOBoundary, ErrOutside)
	case !fsx.IsDir(inner):
		return "", fmt.Errorf("io_boundary %q: is not a directory", s.IOBoundary)
	}
	return inner, nil
}

// Match reports whether a path matches a pattern of artifacts. Both are relative, with forward
// slashes. Each segment of the pattern is one of [path.Match]; the segment ** stands for any
// number of directories, also none. [Parse] accepts no malformed pattern.
func Match(pattern, name string) bool {
	names := strings.Split(name, "/")
	// taken[i] says that the segments so far can match the first i names. The time is bounded
	// by the product of both lengths, however many ** there are.
	taken := make([]bool, len(names)+1)
	taken[0] = true
	for segment := range strings.SplitSeq(pattern, "/") {
		next := make([]bool, len(names)+1)
		for i := range taken {
			switch {
			case segment == "**":
				next[i] = taken[i] || i > 0 && next[i-1]
			case i > 0 && taken[i-1]:
				ok, err := path.Match(segment, names[i-1])
				next[i] = ok && err == nil
			}
		}
		taken = next
	}
	return taken[len(names)]
}
