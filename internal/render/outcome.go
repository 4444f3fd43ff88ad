package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// Outcome says how a contract ended: its warnings, then its problems, then a last line.
// source is the name of the document.
func Outcome(o contract.Outcome, source string, p Palette) []string {
	var lines []string
	for _, warning := range o.Warnings {
		if !saidOfFolder(warning, o.Folders) {
			lines = append(lines, "warning: "+warning)
		}
	}
	for _, v := range o.Stripped {
		if !slices.ContainsFunc(o.Violations, func(w contract.Violation) bool { return w.Field == v.Field }) {
			lines = append(lines, fmt.Sprintf("stripped %s: %s", strings.TrimPrefix(v.Field, "inputs.environment."), v.Rule))
		}
	}
	if o.Status == contract.StatusRefused {
		broken := text.Count(len(o.Violations), "rule") + " are broken"
		if len(o.Violations) == 1 {
			broken = "1 rule is broken"
		}
		return append(harmless(append(lines, Violations(source, o.Violations)...)), p.Bad("refused")+" · nothing was run · "+broken)
	}
	lines = append(append(lines, differences(o)...), notWritten(o.Folders)...)
	return append(harmless(lines), outcomeLine(o, p))
}

// outcomeLine is one line on how an execution ended.
func outcomeLine(o contract.Outcome, p Palette) string {
	head := p.Good("success")
	switch {
	case o.Status == result.StatusCanceled.String():
		head = p.Odd("interrupted")
	case !o.Success:
		head = p.Bad("failed")
	}
	var parts []string
	if text := endingText(o); text != "" {
		parts = append(parts, text)
	}
	if !o.Success && o.Error != "" && (len(o.Differences) == 0 || o.Call != nil) && !o.TimedOut && o.Status != result.StatusCanceled.String() &&
		o.Status != result.StatusOutOfMemory.String() {
		parts = append(parts, o.Error)
	}
	parts = append(parts, text.Seconds(float64(o.DurationMS)/1000))
	if n := o.Network; n != nil {
		text := text.Count(int(n.Requests), "request")
		if n.Refused > 0 {
			text += fmt.Sprintf(", %d refused", n.Refused)
		}
		parts = append(parts, text)
	}
	if text := filesText(o); text != "" {
		parts = append(parts, text)
	}
	if n := len(o.Artifacts); n > 0 {
		parts = append(parts, text.Count(n, "artifact"))
	}
	if o.Truncated {
		parts = append(parts, "output cut")
	}
	if o.Call != nil {
		parts = append(parts, callText(*o.Call))
	}
	if o.Evidence.RunID != "" {
		parts = append(parts, "id "+o.Evidence.RunID)
	}
	return head + " · " + terminal.Line(strings.Join(parts, " · "))
}

// callText is the adapter of a call.
func callText(c contract.Call) string {
	shown := c.AdapterID
	if c.Operation != "" {
		shown += " " + c.Operation
	}
	if n := len(c.Attempts); n > 1 {
		shown += fmt.Sprintf(", attempt %d", n)
	}
	return shown
}

// endingText is how a program ended, and the action that follows. It is empty for an
// interrupted program, because the interruption decided.
func endingText(o contract.Outcome) string {
	var shown string
	var notes []string
	switch {
	case o.Status == result.StatusCanceled.String():
		return ""
	case o.TimedOut:
		shown = "timed out"
		if o.Executed != nil {
			shown += " after " + text.Seconds(float64(o.Executed.TimeoutMS)/1000)
		}
	case o.Status == result.StatusOutOfMemory.String():
		shown = "killed for memory"
		if o.Executed != nil {
			notes = append(notes, "limit "+(policy.Size(o.Executed.MemoryMB)*policy.MiB).String())
		}
	case o.ExitCode == nil:
		shown = strings.ReplaceAll(o.Status, "_", " ")
		if o.Call != nil && o.Call.Code != nil {
			shown += fmt.Sprintf(" with %d", *o.Call.Code)
		}
	case o.Signal > 0:
		shown = fmt.Sprintf("exit code %d", *o.ExitCode)
		notes = append(notes, cmp.Or(result.SignalName(o.Signal), "signal "+strconv.Itoa(o.Signal)))
	default:
		shown = "exited " + strconv.Itoa(*o.ExitCode)
	}
	for _, d := range o.Differences {
		if d.What == "exit_code" && d.Expected != "0" {
			shown += ", expected " + d.Expected
		}
	}
	if action := actionText(o); action != "" {
		notes = append(notes, action)
	}
	if len(notes) > 0 {
		shown += " (" + strings.Join(notes, "; ") + ")"
	}
	return shown
}

// actionText is the action of the exit table for a failure. A longer time limit helps only
// after a timeout.
func actionText(o contract.Outcome) string {
	const extend = "extend_timeout_or_fail"
	if o.Success || o.Exit == nil || o.Exit.Action == "continue" || o.Exit.Action == "none" || o.Exit.Action == extend && !o.TimedOut {
		return ""
	}
	return strings.ReplaceAll(o.Exit.Action, "_", " ")
}

// filesText counts the written files, and says if some are in the record only.
func filesText(o contract.Outcome) string {
	written, missed := 0, 0
	for _, folder := range o.Folders {
		written += folder.Written
		missed += len(folder.NotWritten)
	}
	kept := ""
	switch {
	case missed > 0 && written == 0:
		kept = "not carried over: in the record"
	case missed > 0:
		kept = "not all carried over: in the record"
	}
	switch n := len(o.OutputFiles); {
	case n > 0 && kept != "":
		return text.Count(n, "output file") + ", " + kept
	case n > 0:
		return text.Count(n, "output file")
	case missed > 0 && written == 0:
		return "nothing was carried over"
	}
	return kept
}

// differences are the unmet expectations, one line each. An exit code is in the last line.
// An interrupted program could meet none.
func differences(o contract.Outcome) (lines []string) {
	if o.Status == result.StatusCanceled.String() {
		return nil
	}
	for _, d := range o.Differences {
		if d.What != "exit_code" {
			lines = append(lines, d.String())
		}
	}
	return lines
}

// notWritten are changes that did not reach the machine, some of each directory.
func notWritten(folders []contract.Folder) (lines []string) {
	const most = 5
	for _, folder := range folders {
		for _, missed := range folder.NotWritten[:min(most, len(folder.NotWritten))] {
			lines = append(lines, fmt.Sprintf("not written in %s: %s", folder.Source, missed))
		}
		if more := len(folder.NotWritten) - most; more > 0 {
			lines = append(lines, fmt.Sprintf("not written in %s: and %d more", folder.Source, more))
		}
	}
	return lines
}

// saidOfFolder reports whether [notWritten] says the same as a warning.
func saidOfFolder(warning string, folders []contract.Folder) bool {
	return slices.ContainsFunc(folders, func(f contract.Folder) bool {
		return len(f.NotWritten) > 0 && strings.HasPrefix(warning, f.Source+": not everything that was changed reached the host")
	})
}

// widestColumn bounds how far one long value moves the columns of all others.
const widestColumn = 48

// InOrder are violations in the order of the document. Violations without a line come last.
func InOrder(violations []contract.Violation) []contract.Violation {
	sorted := slices.Clone(violations)
	slices.SortStableFunc(sorted, func(a, b contract.Violation) int {
		if a.Line == 0 || b.Line == 0 {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return sorted
}

// Violations returns harmless lines on violations, in columns and in their order in the
// document: line, code, field and rule.
func Violations(source string, violations []contract.Violation) []string {
	var rows [][]string
	for _, v := range InOrder(violations) {
		at := source
		if v.Line > 0 {
			at += ":" + strconv.Itoa(v.Line)
		}
		what := v.Field
		if v.Value != "" {
			what += " " + v.Value
		}
		rows = append(rows, []string{terminal.Line(at), v.Code, terminal.Line(what), terminal.Line(v.Rule)})
	}
	widths := make([]int, 4)
	for _, row := range rows {
		for i, cell := range row {
			if n := utf8.RuneCountInString(cell); n <= widestColumn {
				widths[i] = max(widths[i], n)
			}
		}
	}
	var lines []string
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))+2)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
