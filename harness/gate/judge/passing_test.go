package judge

import (
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
)

// hash is a SHA-256 of nothing in particular.
var hash = strings.Repeat("ab", 32)

// sealedWish is the wish of passing.
var sealedWish = func() spec.Lock {
	w, err := spec.Parse([]byte("{name: demo, io_boundary: repo, image: python, python: 3.11.2, strict: true, "+
		"toolchain: [{source: /usr/local/go, target: /host/go}], gate_commands: [pytest -q]}"), "wish.yaml")
	if err != nil {
		panic(err)
	}
	lock, err := spec.Seal(w, evidence.Toolchain{
		Image: "python", ImageID: "sha256:" + hash, Locked: true,
		Mounts: []evidence.ToolMount{{Source: "/usr/local/go", Target: "/host/go", Hash: hash}},
	})
	if err != nil {
		panic(err)
	}
	return lock
}()

// passing is the evidence of a gate with one command that passes, in strict mode and
// with a claim.
func passing() Input {
	const cmd = "pytest -q"
	argv := []string{"pytest", "-q"}
	zero := 0
	in := Input{
		Manifest: evidence.RunManifest{
			Schema:       evidence.RunManifestV1,
			Name:         "demo",
			WishSHA256:   sealedWish.SHA256,
			GateCommands: []string{cmd},
			Gates:        []evidence.Gate{{Index: 1, Command: evidence.Command{Cmd: cmd, Kind: evidence.KindTests, Report: evidence.ReportAuto, TimeoutMS: 60000}, Argv: argv}},
			IOBoundary:   "repo/",
			Workspace:    "/somewhere/repo",
			Toolchain:    sealedWish.Toolchain,
			Paths:        evidence.Paths{ProtectedPaths: []string{}, ReadOnlyPaths: []string{}},
			Repo:         evidence.Repo{Commit: "c0ffee", Root: "."},
			Mode:         evidence.Mode{Execute: true, Sealed: true, Tools: true, Flags: evidence.Flags{Offline: true, Strict: true, ClaimGrade: true}, Repeats: 1},
		},
		Tests: evidence.Tests{
			Schema: evidence.TestsV1,
			Commands: []evidence.CommandTests{{
				Index: 1, Command: cmd, Argv: argv, Kind: evidence.KindTests, Started: true, Ending: "exited", ExitCode: &zero,
				LogsComplete: true, LogSHA256: hash, Source: evidence.ReportPytest, Counts: &evidence.Counts{Total: 2, Passed: 2},
				Cases: []evidence.Case{{ID: "t.py::a", Outcome: evidence.Passed}, {ID: "t.py::b", Outcome: evidence.Passed}},
			}},
		},
		Observations: evidence.Observations{
			Schema:   evidence.ObservationsV1,
			Commands: []evidence.Observation{{Index: 1, Network: "none", Counted: "kernel", Watched: true, Complete: true}},
		},
		Normalization: evidence.Normalization{Schema: evidence.NormalizationV1},
		Env: evidence.EnvSnapshot{
			Schema: evidence.EnvSnapshotV1, GitCommit: "c0ffee", LanguageRuntimes: map[string]string{"python": "3.11.2"},
			Image: "python", ImageID: "sha256:" + hash, ImageLocked: true, Workspace: hash,
			Toolchain: []evidence.ToolMount{{Source: "/opt/go", Target: "/host/go", Hash: hash}},
		},
		Plan:         evidence.Plan{GateCommands: []string{cmd}},
		Check:        evidence.CheckReport{ManifestSHA256: hash, Files: 12},
		BehaviorHash: hash,
	}
	in.Tests.Summarize(in.Manifest)
	in.Manifest.Toolchain.Mounts = slices.Clone(in.Manifest.Toolchain.Mounts)
	for _, name := range append(rawFiles("", 1), evidence.RunLogFile, evidence.TestsFile) {
		in.Artifacts.Artifacts = append(in.Artifacts.Artifacts, evidence.HashedFile{FilePath: name, SHA256: hash, Role: evidence.RoleLog})
	}
	return in
}
