package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/result"
)

// printOutcome tells an outcome to people: what to know first, then what is wrong, then
// one line on how it ended.
func (a *app) printOutcome(o *contract.Outcome, f execFlags, root string) error {
	lines := []string{}
	for _, unused := range f.unused(o) {
		lines = append(lines, "warning: "+unused)
	}
	if abs, err := filepath.Abs(root); err == nil && root != "" {
		root = abs
	}
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
		violations := inOrder(o.Violations)
		lines = append(lines, violationLines(sourceName(f.file), violations)...)
		lines = append(lines, a.palette().bad("refused")+" · nothing was run · "+brokenText(len(o.Violations)))
		for _, hint := range violationHints(violations, root) {
			lines = append(lines, "hint: "+a.repeatFlags(hint))
		}
	} else {
		lines = append(lines, differenceLines(o)...)
		lines = append(lines, notWrittenLines(o.Folders)...)
		lines = append(lines, outcomeLine(o, a.palette()))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(a.streams.Err, "sandbox: %s\n", outcomeText(line, a.palette())); err != nil {
			return readerGone(err)
		}
	}
	return nil
}

// outcomeText makes a line harmless that may hold colours of ours at its beginning.
func outcomeText(line string, p palette) string {
	if !bool(p) || !strings.HasPrefix(line, "\x1b[") {
		return terminal.Line(line)
	}
	head, tail, _ := strings.Cut(line, "\x1b[0m")
	return head + "\x1b[0m" + terminal.Line(tail)
}

func brokenText(n int) string {
	if n == 1 {
		return "1 rule is broken"
	}
	return strconv.Itoa(n) + " rules are broken"
}

// differenceLines are what came out otherwise, one line each. An exit code is in the
// last line, and of a program that we ended nothing else could be expected.
func differenceLines(o *contract.Outcome) (lines []string) {
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

// notWrittenLines are changes that did not reach the machine, some of each folder.
func notWrittenLines(folders []contract.Folder) (lines []string) {
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

// saidOfFolder reports whether a warning is what [notWrittenLines] say as well.
func saidOfFolder(warning string, folders []contract.Folder) bool {
	return slices.ContainsFunc(folders, func(f contract.Folder) bool {
		return len(f.NotWritten) > 0 && strings.HasPrefix(warning, f.Source+": not everything that was changed reached the host")
	})
}

// widestColumn bounds how far one long value moves the columns of all others.
const widestColumn = 48

// inOrder are violations in the order of the document. What belongs to no line comes last.
func inOrder(violations []contract.Violation) []contract.Violation {
	sorted := slices.Clone(violations)
	slices.SortStableFunc(sorted, func(a, b contract.Violation) int {
		if a.Line == 0 || b.Line == 0 {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return sorted
}

// violationLines are violations in columns, in their order in the document: where, which,
// what, why.
func violationLines(source string, violations []contract.Violation) []string {
	var rows [][]string
	for _, v := range inOrder(violations) {
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
