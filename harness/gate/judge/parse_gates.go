package judge

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Bounds of a GATES.json.
const (
	// MaxGatesText is how long one may be, in bytes.
	MaxGatesText = 16 << 20
	maxCommands  = 1000
	maxCommand   = 64 << 10
)

// gatesDocument is [evidence.Gates] as others write it: the exit code may be left out,
// and is 0 then.
type gatesDocument struct {
	evidence.Gates
	Commands []gateDocument `json:"commands"`
}

type gateDocument struct {
	evidence.GateCommand
	ExpectExit int `json:"expect_exit,omitempty"`
}

// ParseGates reads a GATES.json that anybody may have written (RT-16). It is strict about
// what a run depends on: the boundary, whether it is offline, and at least one command
// with its words; other keys are ignored. Errors name the key and the rule, all at once
// where the types are right.
func ParseGates(text []byte) (evidence.Gates, error) {
	if len(text) > MaxGatesText {
		return evidence.Gates{}, fmt.Errorf("%s has more than %d bytes", evidence.GatesFile, MaxGatesText)
	}
	var document gatesDocument
	if err := evidence.Decode(text, &document); err != nil {
		return evidence.Gates{}, fmt.Errorf("%s: %w", evidence.GatesFile, err)
	}
	gates := document.Gates
	gates.Commands = nil
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(evidence.GatesFile+": "+format, args...))
	}
	if rule := badBoundary(gates.IOBoundary); rule != "" {
		wrong("io_boundary %q %s", gates.IOBoundary, rule)
	}
	switch n := len(document.Commands); {
	case n == 0:
		wrong("commands must have at least one command: no gate, no pass")
	case n > maxCommands:
		wrong("commands must have at most %d commands, has %d", maxCommands, n)
		document.Commands = nil
	}
	for i, c := range document.Commands {
		command := c.GateCommand
		command.ExpectExit = c.ExpectExit
		gates.Commands = append(gates.Commands, command)
		if rule := badCommand(command); rule != "" {
			wrong("commands[%d].%s", i, rule)
		}
	}
	for i, f := range gates.Artifacts {
		if !evidence.IsSHA256(f.SHA256) {
			wrong("artifacts[%d].sha256 must be 64 hexadecimal digits", i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return evidence.Gates{}, err
	}
	return gates, nil
}

// badBoundary is the rule that a boundary breaks; empty for none. It is relative to a
// folder that the reader chooses and does not lead out of it.
func badBoundary(boundary string) string {
	switch {
	case boundary == "":
		return "must name a folder"
	case path.IsAbs(boundary), len(boundary) > 1 && boundary[1] == ':':
		return "must be relative, is absolute"
	case strings.ContainsAny(boundary, "\x00\\"):
		return "must have neither a NUL nor a backslash"
	case slices.Contains(strings.Split(boundary, "/"), ".."):
		return `must not lead out of its folder with ".."`
	}
	return ""
}

func badCommand(c evidence.GateCommand) string {
	switch {
	case strings.TrimSpace(c.Cmd) == "":
		return "cmd must not be empty"
	case len(c.Cmd) > maxCommand:
		return fmt.Sprintf("cmd must have at most %d bytes", maxCommand)
	case strings.ContainsRune(c.Cmd, 0):
		return "cmd must have no NUL"
	case c.ExpectExit < 0 || c.ExpectExit > 255:
		return fmt.Sprintf("expect_exit must be 0 to 255, is %d", c.ExpectExit)
	case c.Passed < 0:
		return fmt.Sprintf("passed must not be negative, is %d", c.Passed)
	case c.LogSHA256 != "" && !evidence.IsSHA256(c.LogSHA256):
		return "log_sha256 must be 64 hexadecimal digits"
	}
	return ""
}
