package judge

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Gates is GATES.json (RT-16): the exact commands, their environment, and the expected
// signals. It is pure and total, as [Judge].
func Gates(in Input) evidence.Gates {
	m := in.Manifest
	g := evidence.Gates{
		IOBoundary:   m.IOBoundary,
		Offline:      m.Mode.Offline || m.Egress == nil,
		Commands:     []evidence.GateCommand{},
		Image:        m.Toolchain.Image,
		ImageID:      in.Env.ImageID,
		Commit:       m.Repo.Commit,
		Workspace:    in.Env.Workspace,
		WishSHA256:   m.WishSHA256,
		BehaviorHash: in.BehaviorHash,
	}
	results := map[int]evidence.CommandTests{}
	for _, r := range slices.Backward(in.Tests.Commands) {
		results[r.Index] = r // the first one, if there are more
	}
	for _, gate := range m.Gates {
		command := evidence.GateCommand{Cmd: gate.Cmd, ExpectExit: gate.ExpectExit}
		if r, ran := results[gate.Index]; ran {
			command.Ending, command.Passed, command.LogSHA256 = r.Ending, r.Counts.Value().Passed, r.LogSHA256
		}
		g.Commands = append(g.Commands, command)
	}
	for _, f := range in.Artifacts.Artifacts {
		if strings.HasPrefix(f.FilePath, evidence.OutputsDir+"/") {
			g.Artifacts = append(g.Artifacts, f)
		}
	}
	return g
}

// MaxGatesText bounds a GATES.json, in bytes.
const MaxGatesText = 16 << 20

// ParseGates reads an untrusted GATES.json (RT-16). A run depends on the boundary, on whether
// it is offline, and on the commands: these must be there and right; unknown keys are ignored.
// Errors name the key and the rule, and join all problems if the types are right.
func ParseGates(text []byte) (evidence.Gates, error) {
	var gates evidence.Gates
	if len(text) > MaxGatesText {
		return gates, fmt.Errorf("%s has more than %d bytes", evidence.GatesFile, MaxGatesText)
	}
	if err := evidence.DecodeFile(evidence.GatesFile, text, &gates); err != nil {
		return gates, err
	}
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(evidence.GatesFile+": "+format, args...))
		}
	}
	// The boundary is relative to a directory that the reader chooses.
	b := gates.IOBoundary
	wrong(b == "", "io_boundary must name a folder")
	wrong(path.IsAbs(b) || len(b) > 1 && b[1] == ':', "io_boundary %q must be relative, is absolute", b)
	wrong(strings.ContainsAny(b, "\x00\\"), "io_boundary %q must have neither a NUL nor a backslash", b)
	wrong(slices.Contains(strings.Split(b, "/"), ".."), `io_boundary %q must not lead out of its folder with ".."`, b)
	wrong(len(gates.Commands) == 0, "commands must have at least one command: no gate, no pass")
	for i, c := range gates.Commands {
		wrong(strings.TrimSpace(c.Cmd) == "", "commands[%d].cmd must not be empty", i)
		wrong(strings.ContainsRune(c.Cmd, 0), "commands[%d].cmd must have no NUL", i)
		wrong(c.ExpectExit < 0 || c.ExpectExit > 255, "commands[%d].expect_exit must be 0 to 255, is %d", i, c.ExpectExit)
		wrong(c.Passed < 0, "commands[%d].passed must not be negative, is %d", i, c.Passed)
		wrong(c.LogSHA256 != "" && !evidence.IsSHA256(c.LogSHA256), "commands[%d].log_sha256 must be 64 hexadecimal digits", i)
	}
	for i, f := range gates.Artifacts {
		wrong(!evidence.IsSHA256(f.SHA256), "artifacts[%d].sha256 must be 64 hexadecimal digits", i)
	}
	if err := errors.Join(errs...); err != nil {
		return evidence.Gates{}, err
	}
	return gates, nil
}
