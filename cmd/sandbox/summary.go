package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/docker/go-units"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// printSummary prints the warnings of a run, one per line, and then one line on
// how it ended.
func (a *app) printSummary(store *record.Store, req sandbox.Request, res *result.Result) error {
	for _, warning := range res.Warnings {
		if _, err := fmt.Fprintf(a.streams.Err, "sandbox: warning: %s\n", terminal.Line(warning)); err != nil {
			return readerGone(err)
		}
	}
	if res.Enforced.Transfer == sandbox.TransferCopy && req.Transfer != sandbox.TransferCopy {
		if _, err := fmt.Fprintln(a.streams.Err, "sandbox: the engine does not see the folders of this machine: files were copied there and back"); err != nil {
			return readerGone(err)
		}
	}
	_, err := fmt.Fprintf(a.streams.Err, "sandbox: %s\n", summary(res, finalOf(store, req.Final, res.ID), a.palette()))
	return readerGone(err)
}

// finalOf is the folder of the outputs of a run.
func finalOf(store *record.Store, asked, id string) string {
	if asked != "" {
		return asked
	}
	record, err := store.Get(id)
	if err != nil {
		return "" // the record is gone; there is no folder to name
	}
	return filepath.Join(record.Dir, "final")
}

// summary is one line on how a run ended.
func summary(res *result.Result, final string, p palette) string {
	parts := []string{statusText(res, p)}
	if res.Score != nil {
		parts = append(parts, "score "+formatScore(*res.Score))
	}
	parts = append(parts, formatSeconds(res.DurationSeconds))
	if peak := res.Resources.PeakMemoryBytes; peak > 0 {
		parts = append(parts, "peak "+formatSize(peak))
	}
	if n := res.Network; n != nil {
		text := plural(int(n.Requests), "request")
		if n.Refused > 0 {
			text += p.bad(fmt.Sprintf(", %d refused", n.Refused))
		}
		parts = append(parts, text)
	}
	if text := outputsText(res, final); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(append(parts, "id "+res.ID), " · ")
}

// statusText says how a run ended, in a few words.
func statusText(res *result.Result, p palette) string {
	limits := res.Enforced
	switch res.Status {
	case result.StatusExited:
		text := "exited " + strconv.Itoa(res.ExitCode)
		switch {
		case res.ExitCode == 0 && res.IsError:
			return p.bad(text + " · traceback in stderr")
		case res.ExitCode == 0:
			return p.good(text)
		}
		return p.bad(text)
	case result.StatusSignaled:
		return p.bad(signalText(res))
	case result.StatusTimedOut:
		return p.bad("timed out after " + formatSeconds(limits.TimeoutSeconds))
	case result.StatusOutOfMemory:
		return p.bad("out of memory (limit " + policy.Size(limits.MemoryBytes).String() + ")")
	case result.StatusDiskLimit:
		return p.bad(diskText(res))
	case result.StatusOutputLimit:
		return p.bad("printed too much (limit " + policy.Size(limits.OutputLimitBytes).String() + ")")
	case result.StatusCanceled:
		return p.odd("canceled")
	case result.StatusStartFailed:
		return p.bad(startText(res))
	case result.StatusEngineLost:
		return p.bad("the engine was lost")
	}
	return p.bad(res.Status.String())
}

// signalText names the signal that ended a program.
func signalText(res *result.Result) string {
	name := result.SignalName(res.Signal)
	if name == "" {
		name = "signal " + strconv.Itoa(res.Signal)
	}
	if res.Fault == result.FaultOperator {
		return "stopped by somebody else (" + name + ")"
	}
	return fmt.Sprintf("exit code %d (%s)", res.ExitCode, name)
}

// diskText takes the words of the explanation: the limit, or a disk that is full.
func diskText(res *result.Result) string {
	first, _, _ := strings.Cut(res.Explanation, ". ")
	text := strings.TrimSuffix(strings.TrimPrefix(first, "The program was "), ".")
	if text == "" {
		return "stopped for what ./final holds"
	}
	return text
}

// startText says why a program did not start, as far as its exit code tells.
func startText(res *result.Result) string {
	switch res.ExitCode {
	case exitNotExecutable:
		return "did not start: the command cannot be executed"
	case exitNotFound:
		return "did not start: the command is not in the image"
	}
	return "did not start"
}

func outputsText(res *result.Result, final string) string {
	var text string
	switch n := len(res.Outputs); {
	case n == 1:
		text = "1 output"
	case n > 1:
		text = strconv.Itoa(n) + " outputs"
	}
	if text != "" && final != "" {
		text += " in " + terminal.Line(final)
	}
	if n := len(res.OutputsSkipped); n > 0 {
		text = strings.TrimSpace(fmt.Sprintf("%s (%d left out)", text, n))
	}
	return text
}

func formatScore(score float64) string { return strconv.FormatFloat(score, 'g', -1, 64) }

// formatSize prints a number of bytes with the digits that a reader looks at.
func formatSize(bytes int64) string {
	return units.CustomSize("%.4g %s", float64(bytes), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
}

// formatSeconds prints a duration with the digits that a reader looks at.
func formatSeconds(seconds float64) string {
	switch {
	case seconds < 10:
		return strconv.FormatFloat(seconds, 'f', 2, 64) + "s"
	case seconds < 60:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
