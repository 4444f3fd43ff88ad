package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/settings"
)

// sweepSum is the last line on a sweep.
func sweepSum(report sweep.Report) string {
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
	return text + report.Manifest
}

// showSweep tells what came of a sweep.
func (a *app) showSweep(report sweep.Report, s settings.Settings) error {
	var err error
	if s.JSON {
		err = a.printJSON(sweepJSON(report))
		if err != nil && !errors.Is(err, errReaderGone) {
			a.code = exitSandbox // whoever asked for the report did not get it
		}
	}
	if !s.Quiet {
		a.say(sweepSum(report))
	}
	return err
}
