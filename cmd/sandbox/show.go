package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func newShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how a run ended",
		Long: `Show how a run ended: the result, the limits that were enforced, the outputs and the
traceback. With --json: the result itself. The beginning of an ID is enough.`,
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
func describe(record sandbox.Record, final string) string {
	var b strings.Builder
	field := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, text)
		}
	}
	job, res := record.Spec.Job, record.Result
	field("id", record.ID)
	field("name", job.Name)
	field("status", recordStatus(record))
	if res != nil {
		field("", res.Explanation)
		field("fault", res.Fault.String())
	}
	field("created", record.Created.Local().Format(time.DateTime))
	field("command", strings.Join(job.Command, " "))
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

func enforcedText(e result.Enforced) string {
	return fmt.Sprintf("timeout %s, memory %s, disk %s, %g processors, %d processes, network %s, user %s, runtime %s",
		formatSeconds(e.TimeoutSeconds), policy.Size(e.MemoryBytes), policy.Size(e.DiskBytes), e.CPUs, e.PIDs, e.Network, e.User, e.Runtime)
}
