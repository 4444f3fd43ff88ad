package contract

import (
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// States of a point of the checklists.
const (
	CheckDone       = "done"
	CheckFailed     = "failed"
	CheckNotReached = "not_reached"
)

// points are the points of the checklists in their order (CK-01 to CK-03).
var points = []struct {
	list, point string
	// codes are those of the violations that fail the point; "+" stands for fields.
	codes []string
}{
	{"CK-01", "tool_registered_and_active", []string{"IV-01"}},
	{"CK-01", "adapter_matches_tool", []string{"adapter_id"}},
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

// checklist says what was done for each point. Its zero value is ready.
type checklist struct {
	done map[string]CheckPoint
	// unstored is why an artifact is not in the record.
	unstored string
}

func (c *checklist) set(point, state, format string, args ...any) {
	if c.done == nil {
		c.done = map[string]CheckPoint{}
	}
	c.done[point] = CheckPoint{State: state, Detail: fmt.Sprintf(format, args...)}
}

// list is the whole checklist: what was not reached says so.
func (c *checklist) list() []CheckPoint {
	all := make([]CheckPoint, 0, len(points))
	for _, p := range points {
		point := CheckPoint{State: CheckNotReached, Detail: "it did not come to this"}
		if done, ok := c.done[p.point]; ok {
			point = done
		}
		point.List, point.Point = p.list, p.point
		all = append(all, point)
	}
	return all
}

// refused accounts for a contract that breaks rules: each point that a violation
// belongs to has failed, and what was checked beside it is done.
func (c *checklist) refused(run *execution) []CheckPoint {
	c.checked(run)
	for _, p := range points {
		var broken []string
		for _, v := range run.outcome.Violations {
			for _, code := range p.codes {
				if v.Code == code || v.Field == code {
					broken = append(broken, v.String())
					break
				}
			}
		}
		if len(broken) == 1 {
			c.set(p.point, CheckFailed, "%s", broken[0])
		} else if len(broken) > 1 {
			c.set(p.point, CheckFailed, "%d rules are broken; the first: %s", len(broken), broken[0])
		}
	}
	return c.list()
}

// planned accounts for a dry run.
func (c *checklist) planned(run *execution) []CheckPoint {
	c.checked(run)
	return c.list()
}

// checked is what was looked at before the start (CK-01).
func (c *checklist) checked(run *execution) {
	e := run.effective
	tool := "the allowlist is open, and the tool is not registered"
	if e.Tool != nil {
		tool = strings.TrimSpace(fmt.Sprintf("%s %s %s is %s", e.Tool.ID, e.Tool.Name, e.Tool.Version, e.Tool.Status))
	}
	c.set("tool_registered_and_active", CheckDone, "%s", tool)
	c.set("adapter_matches_tool", CheckDone, "no adapter is named: the command is run as it stands")
	c.set("inputs_validated", CheckDone, "%s, %s, %s", text.Count(len(e.Contract.Inputs.Arguments), "argument"),
		text.Count(len(run.resolved.InputFiles), "input file"), strippedText(len(run.outcome.Stripped)))
	c.set("limits_set", CheckDone, "profile %s: %d ms, %v, %s, %s", e.Profile, e.Timeout.Milliseconds(), e.Memory,
		text.Count(int(e.CPUs), "processor"), children(e))
	permits := fmt.Sprintf("files %s, network %s", e.FilesystemLevel, e.NetworkLevel)
	if run.approval != nil {
		permits += fmt.Sprintf(", approved by %s", quoted(run.approval.ApprovedBy))
	}
	c.set("allowlist_permits", CheckDone, "%s", permits)
}

func children(e Effective) string {
	text := "no further processes and threads"
	switch {
	case e.MaxChildren == 1:
		text = "1 process or thread more"
	case e.MaxChildren > 1:
		text = fmt.Sprintf("%d processes and threads more", e.MaxChildren)
	}
	if !e.AllowFork {
		text += ", none of them a process"
	}
	return text
}

func strippedText(n int) string {
	if n == 0 {
		return "no variable stripped"
	}
	return text.Count(n, "variable") + " stripped"
}

// accounted is the whole checklist of a run.
func (c *checklist) accounted(run *execution, res *result.Result) []CheckPoint {
	c.checked(run)
	o, limits := run.outcome, res.Enforced
	started := func(point, state, format string, args ...any) {
		if o.Started {
			c.set(point, state, format, args...)
		}
	}
	c.set("evidence_capture_started", CheckDone, "run %s", res.ID)
	if res.TimedOut {
		started("timeout_enforced", CheckDone, "the limit of %v ended the program after %d ms", run.effective.Timeout, o.DurationMS)
	} else {
		started("timeout_enforced", CheckDone, "%d of %d ms", o.DurationMS, run.effective.Timeout.Milliseconds())
	}
	if source := res.Resources.Source; source == "" && limits.MemoryBytes > 0 && limits.PIDs > 0 {
		started("resources_monitored", CheckDone, "the limits held; %d ms were too short for figures", o.DurationMS)
	} else if source == "" {
		started("resources_monitored", CheckFailed, "there are neither limits nor figures")
	} else {
		started("resources_monitored", CheckDone, "peak %v of %v, %.2f s of processors, %s killed for memory (%s)",
			policy.Size(res.Resources.PeakMemoryBytes), policy.Size(limits.MemoryBytes), res.Resources.CPUSeconds,
			text.Count(int(res.Resources.OOMKills), "process"), source)
	}
	streams := CheckDone
	if !res.OutputComplete {
		streams = CheckFailed
	}
	started("streams_captured", streams, "stdout %d of %d bytes, stderr %d of %d bytes",
		min(int64(len(o.Stdout)), o.StdoutBytes), o.StdoutBytes, min(int64(len(o.Stderr)), o.StderrBytes), o.StderrBytes)
	switch {
	case res.ErrorTraceback != nil:
		started("errors_logged", CheckDone, "a traceback is in the result of the run")
	case o.Error != "":
		started("errors_logged", CheckDone, "%s", text.Short(o.Error, mostShown))
	default:
		started("errors_logged", CheckDone, "there was none")
	}
	if o.Exit != nil {
		c.set("exit_code_interpreted", CheckDone, "%d: %s, %s", *o.ExitCode, o.Exit.Meaning, o.Exit.Action)
	}
	if failed := failures(o.Differences); len(failed) > 0 {
		started("outputs_validated", CheckFailed, "%s; the first: %s", differences(len(failed)), failed[0])
	} else {
		started("outputs_validated", CheckDone, "%s, as the contract wants", text.Count(len(o.OutputFiles), "output file"))
	}
	if wanted := len(run.resolved.artifacts); c.unstored != "" {
		started("artifacts_stored", CheckFailed, "%s", c.unstored)
	} else if len(o.Artifacts) < wanted {
		started("artifacts_stored", CheckFailed, "%d of %s", len(o.Artifacts), text.Count(wanted, "artifact"))
	} else {
		started("artifacts_stored", CheckDone, "%s", text.Count(wanted, "artifact"))
	}
	c.set("evidence_captured", CheckDone, "run %s, kept as %s", res.ID, o.Evidence.Retention)
	cleanup := CheckDone
	detail := "the container is removed"
	for _, warning := range res.Warnings {
		if strings.Contains(warning, "left behind") {
			cleanup, detail = CheckFailed, warning
		}
	}
	c.set("cleanup_performed", cleanup, "%s", detail)
	return c.list()
}

func differences(n int) string { return text.Count(n, "difference") }
