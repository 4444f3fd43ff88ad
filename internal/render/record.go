package render

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Final is the directory of the outputs of a run, as it is now.
type Final struct {
	Dir string
	// Replaced is the run that has replaced the outputs; empty for none.
	Replaced string
	// Lost says, by the path of an output in the result, why the run's file is not there as it was.
	Lost map[string]string
}

// arriving names the directory in which the outputs of a run without a result arrive, if there is one.
func (f Final) arriving() string {
	if f.Dir == "" {
		return ""
	}
	return "arrive in " + terminal.Line(f.Dir)
}

// outputs says how many outputs a run left, and whether they are still there.
func (f Final) outputs(res *result.Result) string {
	dir := terminal.Line(f.Dir)
	switch {
	case f.Replaced != "" && len(res.Outputs) > 0:
		return fmt.Sprintf("%s; run %s has replaced them in %s", res.OutputsText(""), f.Replaced, dir)
	case len(f.Lost) == len(res.Outputs) && len(f.Lost) > 0:
		return fmt.Sprintf("%s; not in %s any more, or changed there", res.OutputsText(""), dir)
	case len(f.Lost) > 0:
		return fmt.Sprintf("%s; %d not there any more, or changed there", res.OutputsText(dir), len(f.Lost))
	}
	return res.OutputsText(dir)
}

// Record describes a run: c is the contract behind it, nil for a run without one, and
// final its outputs, and size what the record takes on the disk, if that is known.
func Record(record record.Record, c *contract.Recorded, final Final, size string) string {
	var b strings.Builder
	field := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, text)
		}
	}
	job, res := record.Spec.Job, record.Result
	field("id", record.ID)
	field("name", job.Name)
	field("labels", terminal.Line(Labels(job.Labels)))
	field("status", runStatus(record))
	if res != nil {
		field("", res.Explanation)
		field("fault", res.Fault.String())
		if res.Recovered {
			field("recovered", "its own process died; another process finished the run")
		}
	}
	field("created", record.Created.Local().Format(time.DateTime))
	for _, line := range lostText(record, c) {
		field("", line)
	}
	describeContract(c, res != nil, field)
	field("command", terminal.Line(strings.Join(c.Command(record), " ")))
	field("script", terminal.Line(record.Script()))
	field("source", record.ProgramPath())
	field("input", cmp.Or(job.Input, claimOf(record.Spec.Class)))
	if size != "" {
		size = " (" + size + ")"
	}
	field("record", record.Dir+size)
	if res == nil {
		field("outputs", final.arriving())
		return b.String()
	}
	if res.Score != nil {
		score := text.Number(*res.Score)
		if res.ScoreUnfinished {
			score += " (the last one of a program that did not end by itself)"
		}
		field("score", score)
	}
	field("duration", fmt.Sprintf("%s (+ %s overhead)", text.Seconds(res.DurationSeconds),
		text.Seconds(res.SetupSeconds+res.TeardownSeconds)))
	field("used", usedText(res.Resources))
	for i, line := range metricsText(res.Metrics) {
		field([]string{"metrics", ""}[min(i, 1)], line)
	}
	field("image", res.Image.Name+" "+res.Image.ID)
	field("enforced", enforcedText(res.Enforced))
	if res.Network != nil {
		field("network", networkText(*res.Network, record.Dir))
	}
	for _, warning := range res.Warnings {
		field("warning", warning)
	}
	field("outputs", final.outputs(res))
	for _, out := range res.Outputs {
		now := ""
		if lost := final.Lost[out.Path]; lost != "" {
			now = "  " + lost
		}
		fmt.Fprintf(&b, "%-10s %s  %s  sha256:%.12s%s\n", "", strings.TrimSpace(out.Path), text.Size(out.SizeBytes), out.SHA256, now)
	}
	for _, skipped := range res.OutputsSkipped {
		field("left out", fmt.Sprintf("%s (%s): %s", skipped.Path, skipped.Kind, skipped.Reason))
	}
	for _, tree := range res.Trees {
		field("tree", treeText(tree))
	}
	if res.ErrorTraceback != nil {
		fmt.Fprintf(&b, "\n%s\n", *res.ErrorTraceback)
	} else if res.ErrorSummary != "" {
		fmt.Fprintf(&b, "\n%s\n", res.ErrorSummary)
	}
	return b.String()
}

// Labels are the labels of a run as NAME=VALUE with commas between them, sorted.
func Labels(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return strings.Join(all, ",")
}

// maxShownMetrics bounds the metrics of a program that are shown.
const maxShownMetrics = 10

// metricsText sums up the measurements of a run, and its own metrics.
func metricsText(m *result.Metrics) (lines []string) {
	if m == nil {
		return nil
	}
	measured := fmt.Sprintf("%s of a processor on average, %s at most", text.Number(m.MeanCPUs), text.Number(m.PeakCPUs))
	if m.PeakProcesses > 0 {
		measured += ", " + text.Count(m.PeakProcesses, "process")
	}
	if m.IntervalSeconds > 0 {
		lines = append(lines, measured)
	}
	for _, g := range m.GPUs {
		lines = append(lines, fmt.Sprintf("GPU %s: used %.0f %% on average, %.0f %% at most, memory %s", terminal.Line(g.ID), 100*g.MeanUtilization, 100*g.PeakUtilization, text.Size(g.PeakMemoryBytes)))
	}
	for _, c := range m.Custom[:min(len(m.Custom), maxShownMetrics)] {
		lines = append(lines, customText(c))
	}
	if more := len(m.Custom) - maxShownMetrics; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	if m.Rejected > 0 {
		lines = append(lines, text.Count(m.Rejected, "line")+" rejected")
	}
	return lines
}

func customText(c result.CustomMetric) string {
	line := terminal.Line(c.Name)
	if c.Last != nil {
		line += fmt.Sprintf(" %.6g", *c.Last)
		if c.LastStep != nil {
			line += " at step " + text.Number(*c.LastStep)
		}
		line += fmt.Sprintf(" (%.6g to %.6g, %s)", *c.Min, *c.Max, text.Count(c.Count, "value"))
	}
	if c.NotFinite > 0 {
		line += fmt.Sprintf(", %d not finite", c.NotFinite)
	}
	return line
}

func usedText(used result.Resources) string {
	if used.Source == "" {
		return ""
	}
	shown := fmt.Sprintf("%s of processor time, peak memory %s (%s)", text.Seconds(used.CPUSeconds),
		text.Size(used.PeakMemoryBytes), used.Source)
	if c := used.Contention; c != nil && c.Verdict != result.Quiet {
		shown += fmt.Sprintf("; %s: its threads waited %s for a processor", c.Verdict, text.Seconds(c.WaitedSeconds))
	}
	return shown
}

func networkText(n result.Network, dir string) string {
	return fmt.Sprintf("level %s: %s, %d refused, %s up, %s down; see %s", n.Level, text.Count(int(n.Requests), "request"), n.Refused,
		text.Size(n.BytesUp), text.Size(n.BytesDown), filepath.Join(dir, n.Log))
}

func enforcedText(e result.Enforced) string {
	processors := fmt.Sprintf("%g processors", e.CPUs)
	if e.CPUs == 1 {
		processors = "1 processor"
	}
	processes := text.Count(e.PIDs, "process")
	if slices.Contains(e.Unenforced, "pids") {
		processes = "any number of processes"
	}
	limit := text.Seconds(e.TimeoutSeconds)
	if e.SoftTimeoutSeconds > 0 {
		limit += fmt.Sprintf(" (%s after %s)", e.SoftSignal, text.Seconds(e.SoftTimeoutSeconds))
	}
	return fmt.Sprintf("timeout %s, memory %s, disk %s, %s, %s, network %s, user %s, runtime %s, isolation %s",
		limit, policy.Size(e.MemoryBytes), policy.Size(e.DiskBytes), processors, processes, e.Network, e.User, e.Runtime, cmp.Or(e.Isolation.Grade, "unknown"))
}

// treeText counts the changes of a program to one tree.
func treeText(t result.Tree) string {
	text := fmt.Sprintf("%s: %d created, %d changed, %d deleted, %d left out, of %d entries with %s",
		t.Target, len(t.Created), len(t.Changed), len(t.Deleted), len(t.Skipped), t.Entries, text.Size(t.SizeBytes))
	if !t.Complete {
		text += " (not all changes could be listed)"
	}
	return text
}

// RecordStatus is how a run ended, or how far it is. Of a contract, it is the first thing
// that failed it, if there is one.
func RecordStatus(record record.Record, c *contract.Recorded) string {
	ended := runStatus(record)
	switch {
	case c == nil || c.Outcome == nil || c.Outcome.Status == result.StatusCanceled.String():
		return ended
	case c.Outcome.Success:
		return "success: " + ended
	}
	if failed := c.Failures(); len(failed) > 0 {
		return "failed: " + failed[0]
	}
	return "failed: " + ended
}

// describeContract describes a contract by rows of a name and a text.
func describeContract(c *contract.Recorded, finished bool, row func(name, text string)) {
	if c == nil {
		return
	}
	row("tool", c.Contract.ToolID)
	for _, err := range c.Unread {
		row("warning", err.Error())
	}
	o := c.Outcome
	if o == nil && finished {
		row("contract", "has no outcome: its controller ended first; what the program changed may have been carried over in part")
	}
	if o == nil {
		return
	}
	switch {
	case o.Success:
		row("contract", "success")
	case o.Error != "" && len(c.Failures()) == 0:
		row("contract", "failed: "+o.Error)
	}
	for i, failed := range c.Failures() {
		name := ""
		if i == 0 {
			name, failed = "contract", "failed: "+failed
		}
		row(name, failed)
	}
	for _, line := range notWritten(o.Folders) {
		row("", line)
	}
	if a := o.Approval; a != nil {
		row("approval", fmt.Sprintf("%s, by %s: %s", strings.Join(slices.Sorted(slices.Values(a.Levels)), ", "), a.ApprovedBy, a.Reason))
	}
	row("outcome", filepath.Join(c.Dir, contract.OutcomeFile))
}

// lostText explains a lost run, and one whose record is damaged.
func lostText(each record.Record, c *contract.Recorded) []string {
	switch {
	case each.State == record.Unreadable:
		return []string{fmt.Sprint(each.Damage), "end the run and delete its record with: sandbox rm " + each.ID}
	case each.State != record.Lost:
		return nil
	}
	lines := []string{
		"its own process died; its program may still run, at most until its time limit",
		"finish it with: sandbox adopt " + each.ID,
	}
	if c != nil && c.Outcome == nil {
		lines = append(lines, "no directory of this machine was changed, and there is no outcome")
	}
	return lines
}

// runStatus is how a run ended, or how far it is.
func runStatus(record record.Record) string {
	if record.Result == nil {
		return string(record.State)
	}
	return record.Result.Ending()
}

// claimOf is the volume of a cluster that is the input; empty if there is none.
func claimOf(class spec.Class) string {
	for _, b := range class.Binds {
		if b.Claim != nil {
			return b.Claim.Text()
		}
	}
	return ""
}
