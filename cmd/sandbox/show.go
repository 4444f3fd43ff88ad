package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

func newShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how a run ended",
		Long: `Show how a run ended: the result, the limits that were enforced, the outputs and the
traceback; of a contract also what came out otherwise, and where its outcome lies. With --json: the result itself. The beginning of an ID is enough.`,
		Example: "  sandbox show 20260102t150405-1a2b3c4d5e\n  sandbox show 20260102t150405-1a --json | jq .score",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.show(args[0]) },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) show(id string) error {
	s, store, record, err := a.openRecord(id)
	if err != nil {
		return err
	}
	switch {
	case s.JSON && record.Result == nil:
		return fmt.Errorf("run %s: has no result: it is %s", record.ID, record.State)
	case s.JSON:
		return a.printResult(record.Result)
	}
	return a.print("%s", describe(record, finalOf(store, record.Spec.Job.Final, record.ID)))
}

// describe tells a record to people.
func describe(record record.Record, final string) string {
	var b strings.Builder
	field := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, text)
		}
	}
	job, res := record.Spec.Job, record.Result
	c := contractOf(record)
	field("id", record.ID)
	field("name", job.Name)
	field("status", recordStatus(record))
	if res != nil {
		field("", res.Explanation)
		field("fault", res.Fault.String())
	}
	field("created", record.Created.Local().Format(time.DateTime))
	for _, line := range lostText(record, c) {
		field("", line)
	}
	c.describe(res != nil, field)
	field("command", terminal.Line(strings.Join(c.command(record), " ")))
	field("script", job.Script)
	field("input", job.Input)
	field("record", record.Dir)
	if res == nil {
		return b.String()
	}
	if res.Score != nil {
		field("score", formatScore(*res.Score))
	}
	field("duration", fmt.Sprintf("%s (and %s of ours)", formatSeconds(res.DurationSeconds),
		formatSeconds(res.SetupSeconds+res.TeardownSeconds)))
	field("used", usedText(res.Resources))
	field("image", res.Image.Name+" "+res.Image.ID)
	field("enforced", enforcedText(res.Enforced))
	if res.Network != nil {
		field("network", networkText(*res.Network, record.Dir))
	}
	for _, warning := range res.Warnings {
		field("warning", warning)
	}
	field("outputs", outputsText(res, final))
	for _, out := range res.Outputs {
		fmt.Fprintf(&b, "%-10s %s  %s  sha256:%.12s\n", "", strings.TrimSpace(out.Path), formatSize(out.SizeBytes), out.SHA256)
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

func usedText(used result.Resources) string {
	if used.Source == "" {
		return ""
	}
	return fmt.Sprintf("%s of processor time, peak memory %s (%s)", formatSeconds(used.CPUSeconds),
		formatSize(used.PeakMemoryBytes), used.Source)
}

func networkText(n result.Network, dir string) string {
	return fmt.Sprintf("level %s: %s, %d refused, %s up, %s down; see %s", n.Level, plural(int(n.Requests), "request"), n.Refused,
		formatSize(n.BytesUp), formatSize(n.BytesDown), filepath.Join(dir, n.Log))
}

func enforcedText(e result.Enforced) string {
	processors := fmt.Sprintf("%g processors", e.CPUs)
	if e.CPUs == 1 {
		processors = "1 processor"
	}
	processes := fmt.Sprintf("%d processes", e.PIDs)
	if e.PIDs == 1 {
		processes = "1 process"
	}
	return fmt.Sprintf("timeout %s, memory %s, disk %s, %s, %s, network %s, user %s, runtime %s",
		formatSeconds(e.TimeoutSeconds), policy.Size(e.MemoryBytes), policy.Size(e.DiskBytes), processors, processes, e.Network, e.User, e.Runtime)
}

// treeText is what a program did to one tree.
func treeText(t result.Tree) string {
	text := fmt.Sprintf("%s: %d created, %d changed, %d deleted, %d left out, of %d entries with %s",
		t.Target, len(t.Created), len(t.Changed), len(t.Deleted), len(t.Skipped), t.Entries, formatSize(t.SizeBytes))
	if !t.Complete {
		text += " (not all changes could be told)"
	}
	return text
}
