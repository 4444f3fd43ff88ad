package judge

import (
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Gates is GATES.json (RT-16): the exact commands, what they are to run in, and what is
// expected of a run of them. It is pure and total, as [Judge].
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
			command.Ending, command.Passed, command.LogSHA256 = r.Ending, r.Counts.Passed, r.LogSHA256
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
