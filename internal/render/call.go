package render

import (
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/text"
)

// Call says how a call of a tool ended: its warnings, its problems, and a last line.
func Call(c invoke.Result) []string {
	var lines []string
	for _, warning := range c.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	for _, name := range c.NotWritten[:min(5, len(c.NotWritten))] {
		lines = append(lines, "not written: "+name)
	}
	if c.Verification != nil {
		for _, problem := range c.Verification.Problems {
			lines = append(lines, "problem: "+problem.Error())
		}
	}
	return harmless(append(lines, callLine(c)))
}

// callLine is the last line on a call.
func callLine(c invoke.Result) string {
	var parts []string
	switch {
	case c.Error != "":
		parts = append(parts, c.Error)
	case c.OK:
		parts = append(parts, "exited 0", "artifacts "+Artifacts(*c.Verification))
	default:
		parts = append(parts, "exited 0", Artifacts(*c.Verification))
	}
	parts = append(parts, fmt.Sprintf("%.2fs", c.DurationSeconds))
	return strings.Join(append(parts, "id "+c.RunID), " · ")
}

// Artifacts counts the artifacts that were verified, or the problems with them.
func Artifacts(report invoke.Report) string {
	if !report.OK {
		return text.Count(len(report.Problems)+report.ProblemsDropped, "problem") + " in the artifacts"
	}
	shown := "verified: " + text.Count(len(report.Artifacts), "file")
	for _, artifact := range report.Artifacts {
		if artifact.Role == invoke.RoleTracePack && artifact.Records != nil {
			shown += ", " + text.Count(int(*artifact.Records), "record")
		}
	}
	return shown
}

// Sweep is the last line on a sweep.
func Sweep(report sweep.Report) string {
	var parts []string
	for _, status := range []sweep.Status{sweep.StatusSucceeded, sweep.StatusFailed, sweep.StatusMissing} {
		if n := report.Count(status); n > 0 || status != sweep.StatusMissing {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	text := fmt.Sprintf("sweep of %d: %s · ", len(report.Runs), strings.Join(parts, ", "))
	if report.Manifest == "" {
		return text + "no manifest; --resume goes on from there"
	}
	return text + string(report.Manifest)
}
