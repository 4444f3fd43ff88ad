package judge

import (
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// mode looks at whether anything may run at all. What node 1 has told is not told again.
func (j *judgement) mode() {
	m := j.in.Manifest
	if m.Schema != evidence.RunManifestV1 {
		return // told with the files
	}
	once := func(reason evidence.StopReason, wrong bool, subject, detail string) {
		if wrong && !j.has(reason) {
			j.against(reason, 0, subject, "%s", detail)
		}
	}
	once(evidence.ReasonModeViolation, !m.Mode.Execute, "mode", "The run was asked for in plan mode, in which nothing may run.")
	once(evidence.ReasonToolsDisabled, !m.Mode.Tools, "tools", "Running anything is switched off.")
	once(evidence.ReasonNotSealed, !m.Mode.Sealed, evidence.WishLockFile, "The wish is not sealed, or is not what was sealed.")
	once(evidence.ReasonNotSealed, !evidence.IsSHA256(m.WishSHA256), evidence.WishLockFile, "The run manifest has no hash of the sealed wish.")
	once(evidence.ReasonNoCommands, len(m.GateCommands) == 0 || len(m.Gates) == 0, "gate_commands", "There are no gate commands: without a test there is no pass.")
	once(evidence.ReasonNoWorkspace, m.Workspace == "" || m.IOBoundary == "", "io_boundary", "There is no workspace to run in.")
	j.clean()
	j.declared()
}

// clean looks at what strict mode demands of the repository.
func (j *judgement) clean() {
	m, env := j.in.Manifest, j.in.Env
	if !m.Mode.Strict || j.has(evidence.ReasonDirty) {
		return
	}
	switch {
	case m.Repo.Dirty || env.GitDirty:
		j.against(evidence.ReasonDirty, 0, "repository", "The workspace has changes that are in no commit, and strict mode demands none.")
	case m.Repo.Commit == "":
		j.against(evidence.ReasonDirty, 0, "repository", "Strict mode demands a commit that tells what was tested, and the workspace has none.")
	}
}

// declared looks at whether the gates are the commands that were wished.
func (j *judgement) declared() {
	m := j.in.Manifest
	if len(m.GateCommands) == 0 || len(m.Gates) == 0 {
		return
	}
	var commands []string
	for i, g := range m.Gates {
		commands = append(commands, g.Cmd)
		if g.Index != i+1 {
			j.against(evidence.ReasonUndeclared, g.Index, g.Cmd, "The run manifest has the gate with the index %d at place %d.", g.Index, i+1)
		}
		if len(g.Argv) == 0 || g.Argv[0] == "" {
			j.against(evidence.ReasonNoCommands, g.Index, g.Cmd, "Gate %d names no program.", g.Index)
		}
		if g.Kind != evidence.KindTests && g.Kind != evidence.KindCheck {
			j.against(evidence.ReasonIncomplete, g.Index, g.Cmd, "Gate %d is of the kind %q, which is neither %q nor %q.", g.Index, g.Kind, evidence.KindTests, evidence.KindCheck)
		}
	}
	if !slices.Equal(commands, m.GateCommands) {
		j.against(evidence.ReasonUndeclared, 0, evidence.RunManifestFile, "The gates of the run manifest are not the commands that were wished.")
	}
}
