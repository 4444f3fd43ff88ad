package contract

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// States of a [CheckPoint].
const (
	CheckDone       = "done"
	CheckFailed     = "failed"
	CheckNotReached = "not_reached"
)

// points are the points of the checklists in their order (CK-01 to CK-03).
var points = []struct {
	list, point string
	// fails are the codes and fields of the violations that fail the point.
	fails []string
}{
	{"CK-01", "tool_registered_and_active", []string{"IV-01"}},
	{"CK-01", "adapter_matches_tool", []string{"adapter_id", "inputs.operation"}},
	{"CK-01", "inputs_validated", []string{"CX-01", "IV-02", "IV-03", "IV-04", "IV-05", "DT-01"}},
	{"CK-01", "limits_set", []string{"CX-02", "CX-05"}},
	{"CK-01", "allowlist_permits", []string{"IV-01", "CX-03", "CX-04", "approval"}},
	{"CK-01", "evidence_capture_started", nil},
	{"CK-02", "timeout_enforced", nil},
	{"CK-02", "resources_monitored", nil},
	{"CK-02", "streams_captured", nil},
	{"CK-02", "errors_logged", nil},
	{"CK-03", "exit_code_interpreted", nil},
	{"CK-03", "outputs_validated", nil},
	{"CK-03", "artifacts_stored", nil},
	{"CK-03", "evidence_captured", nil},
	{"CK-03", "cleanup_performed", nil},
}

// checklist returns all points. Those that were not checked were not reached.
func (run *execution) checklist() (all []CheckPoint) {
	for _, p := range points {
		point, ok := run.checks[p.point]
		if !ok {
			point = CheckPoint{State: CheckNotReached, Detail: "it did not come to this"}
		}
		point.List, point.Point = p.list, p.point
		all = append(all, point)
	}
	return all
}

func (run *execution) check(point string, ok bool, format string, args ...any) {
	state := CheckFailed
	if ok {
		state = CheckDone
	}
	run.checks[point] = CheckPoint{State: state, Detail: fmt.Sprintf(format, args...)}
}

// checkBefore sets the points of CK-01 that precede the start.
func (run *execution) checkBefore() {
	e := run.Effective
	tool, forks, approved := "the allowlist is open, and the tool is not registered", "", ""
	if t := e.Tool; t != nil {
		tool = fmt.Sprintf("%s %s %s is %s", t.ID, t.Name, t.Version, t.Status)
	}
	if !e.AllowFork {
		forks = ", no forks"
	}
	if run.approval != nil {
		approved = ", approved by " + quoted(run.approval.ApprovedBy)
	}
	run.check("tool_registered_and_active", true, "%s", tool)
	adapter := "no adapter is named: the command is run as it stands"
	if a := e.Adapted; a != nil {
		adapter = a.Matches
	}
	run.check("adapter_matches_tool", true, "%s", adapter)
	run.check("inputs_validated", true, "%s, %s, %s stripped", text.Count(len(e.Contract.Inputs.Arguments), "argument"),
		text.Count(len(run.resolved.InputFiles), "input file"), text.Count(len(run.outcome.Stripped), "variable"))
	run.check("limits_set", true, "profile %s: %d ms, %v, %s, at most %s more%s", e.Profile, e.Timeout.Milliseconds(), e.Memory,
		text.Count(e.CPUs, "processor"), text.Count(e.MaxChildren, "process"), forks)
	run.check("allowlist_permits", true, "files %s, network %s%s", e.FilesystemLevel, e.NetworkLevel, approved)
}

// checkViolations fails the points of the violations.
func (run *execution) checkViolations() {
	for _, p := range points {
		var broken []Violation
		for _, v := range run.outcome.Violations {
			if slices.Contains(p.fails, v.Code) || slices.Contains(p.fails, v.Field) {
				broken = append(broken, v)
			}
		}
		switch n := len(broken); {
		case n == 1:
			run.check(p.point, false, "%s", broken[0])
		case n > 1:
			run.check(p.point, false, "%d rules are broken; the first: %s", n, broken[0])
		}
	}
}

// checkRun sets the points of a run. Points about the program are not reached if it did not
// start.
func (run *execution) checkRun(res *result.Result, unstored error) {
	o := run.outcome
	run.checkBefore()
	run.check("evidence_capture_started", true, "run %s", res.ID)
	if o.Started {
		run.checkProgram(res, unstored)
	}
	if o.Exit != nil {
		run.check("exit_code_interpreted", true, "%d: %s, %s", *o.ExitCode, o.Exit.Meaning, o.Exit.Action)
	}
	run.check("evidence_captured", true, "run %s, kept as %s", res.ID, o.Evidence.Retention)
	switch {
	case res.ContainerLeft:
		run.check("cleanup_performed", false, "the container could not be removed: see the warnings, and sandbox gc")
	case run.request.Keep:
		run.check("cleanup_performed", true, "the container is kept for inspection")
	default:
		run.check("cleanup_performed", true, "the container is removed")
	}
}

func (run *execution) checkProgram(res *result.Result, unstored error) {
	o, used := run.outcome, res.Resources
	if res.TimedOut {
		run.check("timeout_enforced", true, "the limit of %v ended the program after %d ms", run.Effective.Timeout, o.DurationMS)
	} else {
		run.check("timeout_enforced", true, "%d of %d ms", o.DurationMS, run.Effective.Timeout.Milliseconds())
	}
	if limits := res.Enforced; used.Source != "" {
		run.check("resources_monitored", true, "peak %v of %v, %.2f s of processors, %s killed for memory (%s)", policy.Size(used.PeakMemoryBytes),
			policy.Size(limits.MemoryBytes), used.CPUSeconds, text.Count(used.OOMKills, "process"), used.Source)
	} else {
		run.check("resources_monitored", limits.MemoryBytes > 0 && limits.PIDs > 0, "no figures were measured in %d ms", o.DurationMS)
	}
	run.check("streams_captured", res.OutputComplete, "stdout %d of %d bytes, stderr %d of %d bytes",
		min(int64(len(o.Stdout)), o.StdoutBytes), o.StdoutBytes, min(int64(len(o.Stderr)), o.StderrBytes), o.StderrBytes)
	logged := cmp.Or(text.Short(o.Error, mostShown), "there was none")
	if res.ErrorTraceback != nil {
		logged = "a traceback is in the result of the run"
	}
	run.check("errors_logged", true, "%s", logged)
	if failed := o.failures(); len(failed) > 0 {
		run.check("outputs_validated", false, "%s; the first: %s", text.Count(len(failed), "difference"), failed[0])
	} else {
		run.check("outputs_validated", true, "%s, as the contract wants", text.Count(len(o.OutputFiles), "output file"))
	}
	wanted := len(run.resolved.artifacts)
	if unstored != nil {
		run.check("artifacts_stored", false, "%v", unstored)
	} else {
		run.check("artifacts_stored", len(o.Artifacts) >= wanted, "%d of %s", len(o.Artifacts), text.Count(wanted, "artifact"))
	}
}
