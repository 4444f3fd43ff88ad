package main

import "github.com/evalbox/evalbox/harness/gate/evidence"

// gateHints tell what to try about a reason to stop.
var gateHints = map[evidence.StopReason]string{
	evidence.ReasonModeViolation:     "run it with --mode execute",
	evidence.ReasonToolsDisabled:     "leave --no-tools out",
	evidence.ReasonNotSealed:         "seal the wish with: sandbox gate seal WISH.yaml; or run the wish with --seal",
	evidence.ReasonNoCommands:        "name commands in gate_commands of the wish, and seal it",
	evidence.ReasonNoWorkspace:       "io_boundary of the wish names the workspace, relative to the wish",
	evidence.ReasonDirty:             "strict mode wants a git repository in which all is committed: commit or stash what is named, or leave --strict out",
	evidence.ReasonToolRefused:       "permit the command in the registry of --tools, or declare another command",
	evidence.ReasonOutsideBoundary:   "the evidence has the paths in evidence/observations.json; a gate may touch the workspace, /tmp and /work",
	evidence.ReasonNetwork:           "the kernel counts attempts and not where they go: look for it in the tests; or declare what they need with network in the wish, see docs/gate.md",
	evidence.ReasonUnpinned:          "lock the image with: sandbox image lock; or set claim_grade: false in the wish",
	evidence.ReasonEnvironment:       "what the gates ran in is not what was sealed, or changed meanwhile: seal the wish again, restore image or folder, or leave the workspace alone while gates run",
	evidence.ReasonIncomplete:        "mend what is named and run the gate again; output that was cut needs a higher limits.log in the wish, and an engine where attempts cannot be observed allow_unobserved",
	evidence.ReasonTampered:          "the evidence is not what was hashed: run the gate again",
	evidence.ReasonUndeclared:        "only commands of the sealed wish may be in the evidence: run the gate again",
	evidence.ReasonMissingDependency: "choose an image that has the program, or mount it with toolchain in the wish",
	evidence.ReasonTimeout:           "raise limits.timeout in the wish, or find out what hangs with -v",
	evidence.ReasonGateFailed:        "see the output in evidence/run_log.txt of the gate directory",
	evidence.ReasonRegression:        "evidence/tests.json of the gate directory has the tests that failed before and now",
	evidence.ReasonNoTests:           "a gate of the kind tests must show at least one test that ran: name its report in the wish; see docs/gate.md",
	evidence.ReasonNondeterministic:  "evidence/normalization.json has the places; add rules with normalize in the wish, or allow_suspects",
	evidence.ReasonNonReproducible:   "something differs from run to run: order, time, or random numbers without a seed",
}
