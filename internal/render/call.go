package render

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	text := fmt.Sprintf("sweep of %d: %d succeeded, %d failed", len(report.Runs), report.Count(sweep.StatusSucceeded), report.Count(sweep.StatusFailed))
	if n := report.Count(sweep.StatusMissing); n > 0 {
		text += fmt.Sprintf(", %d not done", n)
	}
	if report.Manifest == "" {
		return text + " · no manifest; the same command continues from there"
	}
	return text + " · " + string(report.Manifest)
}

// Bounds of the table of a sweep.
const (
	maxSweepRows    = 50
	maxSweepNumbers = 8
)

// SweepTable has a row for each combination of values, with the means of the numbers over the
// seeds. Without any number there is no header.
func SweepTable(rows []sweep.Row) Table {
	names, axes := map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		for name := range row.Means {
			names[name] = true
		}
		for name := range row.Values {
			axes[name] = true
		}
	}
	if len(names) == 0 {
		return Table{}
	}
	var t Table
	axisNames, numbers := slices.Sorted(maps.Keys(axes)), slices.Sorted(maps.Keys(names))
	if more := len(numbers) - maxSweepNumbers; more > 0 {
		numbers = numbers[:maxSweepNumbers]
		t.Lines = append(t.Lines, text.Count(more, "more number")+": --json has all")
	}
	if more := len(rows) - maxSweepRows; more > 0 {
		rows = rows[:maxSweepRows]
		t.Lines = append(t.Lines, text.Count(more, "more row")+": --json has all")
	}
	t.Header = append(append(slices.Clone(axisNames), "RUNS"), numbers...)
	for i, name := range t.Header {
		t.Header[i] = text.Fit(name, maxCell)
	}
	for _, row := range rows {
		var cells []string
		for _, name := range axisNames {
			value := row.Values[name]
			if value == nil {
				value = "null"
			}
			cells = append(cells, text.Fit(fmt.Sprint(value), maxCell))
		}
		cells = append(cells, strconv.Itoa(row.Runs))
		for _, name := range numbers {
			cell := absent
			if mean, ok := row.Means[name]; ok {
				cell = strconv.FormatFloat(mean, 'g', 6, 64)
			}
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
