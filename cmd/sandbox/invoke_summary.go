package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/format"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
)

// showInvoked tells a call to people, and to programs if they asked.
func (a *app) showInvoked(told invoked, s settings.Settings) error {
	if !s.Quiet && (!s.JSON || a.errTerminal) {
		var lines []string
		for _, warning := range told.Warnings {
			lines = append(lines, "warning: "+warning)
		}
		for _, name := range told.NotWritten[:min(5, len(told.NotWritten))] {
			lines = append(lines, "not written: "+name)
		}
		if told.Verification != nil {
			for _, problem := range told.Verification.Problems {
				lines = append(lines, "problem: "+problem.Error())
			}
		}
		err := patiently(func() error {
			for _, line := range append(lines, invokedLine(told)) {
				if _, err := fmt.Fprintf(a.streams.Err, "sandbox: %s\n", terminal.Line(line)); err != nil {
					return readerGone(err)
				}
			}
			return nil
		})
		if errors.Is(err, errStuck) {
			return errReaderGone
		}
		if err != nil {
			return err
		}
	}
	if !s.JSON {
		return nil
	}
	err := a.printJSON(told)
	if err != nil && !errors.Is(err, errReaderGone) {
		a.code = exitSandbox // whoever asked for the result did not get it
	}
	return err
}

// invokedLine is one line on a call.
func invokedLine(told invoked) string {
	var parts []string
	switch {
	case told.Error != "":
		parts = append(parts, told.Error)
	case told.OK:
		parts = append(parts, "exited 0", "artifacts verified: "+artifactsText(*told.Verification))
	default:
		parts = append(parts, "exited 0", problemsText(*told.Verification))
	}
	parts = append(parts, fmt.Sprintf("%.2fs", told.DurationSeconds))
	if told.Engine == invoke.EngineHost {
		parts = append(parts, "on the host")
	}
	if told.RunID != "" {
		parts = append(parts, "id "+told.RunID)
	}
	return strings.Join(parts, " · ")
}

// artifactsText counts what was verified.
func artifactsText(report invoke.Report) string {
	text := format.Count(len(report.Artifacts), "file")
	for _, artifact := range report.Artifacts {
		if artifact.Role == invoke.RoleTracePack && artifact.Records != nil {
			text += fmt.Sprintf(", %s", format.Count(int(*artifact.Records), "record"))
		}
	}
	return text
}

// problemsText counts what is wrong.
func problemsText(report invoke.Report) string {
	return format.Count(len(report.Problems)+report.ProblemsDropped, "problem") + " in the artifacts"
}
