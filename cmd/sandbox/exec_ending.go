package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/format"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// outcomeLine is one line on how an execution ended.
func outcomeLine(o *contract.Outcome, p palette) string {
	head := p.good("success")
	switch {
	case o.Status == result.StatusCanceled.String():
		head = p.odd("interrupted")
	case !o.Success:
		head = p.bad("failed")
	}
	parts := []string{head}
	if text := endingText(o); text != "" {
		parts = append(parts, text)
	}
	if !o.Success && o.Error != "" && len(o.Differences) == 0 && !o.TimedOut && o.Status != result.StatusCanceled.String() &&
		o.Status != result.StatusOutOfMemory.String() {
		parts = append(parts, o.Error)
	}
	parts = append(parts, format.Seconds(float64(o.DurationMS)/1000))
	if n := o.Network; n != nil {
		text := format.Count(int(n.Requests), "request")
		if n.Refused > 0 {
			text += fmt.Sprintf(", %d refused", n.Refused)
		}
		parts = append(parts, text)
	}
	if text := filesText(o); text != "" {
		parts = append(parts, text)
	}
	if n := len(o.Artifacts); n > 0 {
		parts = append(parts, format.Count(n, "artifact"))
	}
	if o.Truncated {
		parts = append(parts, "output cut")
	}
	return strings.Join(append(parts, "id "+o.Evidence.RunID), " · ")
}

// endingText is how a program ended, and what to do. Of one that was interrupted it says
// nothing: the interruption decided.
func endingText(o *contract.Outcome) string {
	var text string
	var notes []string
	switch {
	case o.Status == result.StatusCanceled.String():
		return ""
	case o.TimedOut:
		text = "timed out"
		if o.Executed != nil {
			text += " after " + format.Seconds(float64(o.Executed.TimeoutMS)/1000)
		}
	case o.Status == result.StatusOutOfMemory.String():
		text = "killed for memory"
		if o.Executed != nil {
			notes = append(notes, "limit "+(policy.Size(o.Executed.MemoryMB)*policy.MiB).String())
		}
	case o.ExitCode == nil:
		text = strings.ReplaceAll(o.Status, "_", " ")
	case o.Signal > 0:
		text = fmt.Sprintf("exit code %d", *o.ExitCode)
		name := result.SignalName(o.Signal)
		if name == "" {
			name = "signal " + strconv.Itoa(o.Signal)
		}
		notes = append(notes, name)
	default:
		text = "exited " + strconv.Itoa(*o.ExitCode)
	}
	for _, d := range o.Differences {
		if d.What == "exit_code" && d.Expected != "0" {
			text += ", expected " + d.Expected
		}
	}
	if action := actionText(o); action != "" {
		notes = append(notes, action)
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	return text
}

// actionText is what the exit table says to do about a failure. A longer time limit helps
// only who reached it.
func actionText(o *contract.Outcome) string {
	const extend = "extend_timeout_or_fail"
	if o.Success || o.Exit == nil || o.Exit.Action == "continue" || o.Exit.Action == "none" || o.Exit.Action == extend && !o.TimedOut {
		return ""
	}
	return strings.ReplaceAll(o.Exit.Action, "_", " ")
}

// filesText counts what was written, and says what of it is in the record only.
func filesText(o *contract.Outcome) string {
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
		return format.Count(n, "output file") + ", " + kept
	case n > 0:
		return format.Count(n, "output file")
	case missed > 0 && written == 0:
		return "nothing was carried over"
	}
	return kept
}
