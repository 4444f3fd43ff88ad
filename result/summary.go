package result

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// OK reports whether the program exited with 0 and nothing is wrong with the run.
func (r Result) OK() bool { return r.Status == StatusExited && r.ExitCode == 0 && !r.IsError }

// String is one line for people, such as "exited 0 · score 0.97 · 1.42s · peak 150 MiB · id ID".
func (r Result) String() string { return r.Summary("", nil) }

// Summary is [Result.String] with the directory of the outputs, unless final is empty. paint,
// unless it is nil, may decorate the parts that say that all is well, or that something is wrong.
func (r Result) Summary(final string, paint func(text string, well bool) string) string {
	if paint == nil {
		paint = func(text string, _ bool) string { return text }
	}
	parts := []string{paint(r.Ending(), r.OK())}
	add := func(there bool, text string) {
		if there {
			parts = append(parts, text)
		}
	}
	add(r.Recovered, "recovered")
	if r.Score != nil {
		unfinished := ""
		if r.ScoreUnfinished {
			unfinished = "unfinished "
		}
		add(true, unfinished+"score "+strconv.FormatFloat(*r.Score, 'g', -1, 64))
	}
	add(true, seconds(r.DurationSeconds))
	add(r.Resources.PeakMemoryBytes > 0, "peak "+size(r.Resources.PeakMemoryBytes))
	if n := r.Network; n != nil {
		text := count(int(n.Requests), "request")
		if n.Refused > 0 {
			text += paint(fmt.Sprintf(", %d refused", n.Refused), false)
		}
		add(true, text)
	}
	outputs := r.OutputsText(final)
	add(outputs != "", outputs)
	return strings.Join(append(parts, "id "+r.ID), " · ")
}

// OutputsText says how many files ./final has, and how many were left out; empty for none.
func (r Result) OutputsText(final string) string {
	shown := ""
	if n := len(r.Outputs); n > 0 {
		shown = count(n, "output")
	}
	if shown != "" && final != "" {
		shown += " in " + final
	}
	if n := r.OutputsLeftOut; n > 0 {
		shown = strings.TrimSpace(fmt.Sprintf("%s (%d left out)", shown, n))
	}
	return shown
}

// Ending says how the run ended, in a few words.
func (r Result) Ending() string {
	limits := r.Enforced
	switch r.Status {
	case StatusExited:
		ended := "exited " + strconv.Itoa(r.ExitCode)
		if r.Deadline == DeadlineSoft {
			ended += " · asked to finish after " + seconds(limits.SoftTimeoutSeconds)
		}
		if r.ExitCode == 0 && r.IsError {
			ended += " · traceback in stderr"
		}
		return ended
	case StatusSignaled:
		name := cmp.Or(SignalName(r.Signal), "signal "+strconv.Itoa(r.Signal))
		if r.Fault == FaultOperator {
			return "stopped by somebody else (" + name + ")"
		}
		return fmt.Sprintf("exit code %d (%s)", r.ExitCode, name)
	case StatusTimedOut:
		if r.Deadline == DeadlineSoft {
			return "ended by " + limits.SoftSignal + ", the request to finish after " + seconds(limits.SoftTimeoutSeconds)
		}
		return "timed out after " + seconds(limits.TimeoutSeconds)
	case StatusOutOfMemory:
		return "out of memory (limit " + limit(limits.MemoryBytes) + ")"
	case StatusDiskLimit:
		// The explanation names the limit, or a disk that is full.
		first, _, _ := strings.Cut(r.Explanation, ". ")
		return cmp.Or(strings.TrimSuffix(strings.TrimPrefix(first, "The program was "), "."), "stopped for what ./final holds")
	case StatusOutputLimit:
		return "printed too much (limit " + limit(limits.OutputLimitBytes) + ")"
	case StatusCanceled:
		return "canceled"
	case StatusStartFailed:
		switch r.ExitCode {
		case 126:
			return "did not start: the command cannot be executed"
		case 127:
			return "did not start: the command is not in the image"
		}
		return "did not start"
	case StatusEngineLost:
		return "the engine was lost"
	case StatusStoppedByRule:
		if r.StoppedBy != nil {
			return "stopped by the rule " + r.StoppedBy.Rule
		}
		return "stopped by rule"
	}
	return r.Status.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seconds returns a duration, such as "1.23s" or "1m15s".
func seconds(n float64) string {
	switch {
	case n < 10:
		return strconv.FormatFloat(n, 'f', 2, 64) + "s"
	case n < 60:
		return strconv.FormatFloat(n, 'f', 1, 64) + "s"
	}
	return time.Duration(n * float64(time.Second)).Round(time.Second).String()
}

var units = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}

// size returns a number of bytes, such as "10.09 MiB".
func size(bytes int64) string {
	n, i := float64(bytes), 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%.4g %s", n, units[i])
}

// limit is a number of bytes in the largest unit that divides it, up to GiB, such as "1500MiB".
func limit(bytes int64) string {
	i := 0
	for ; bytes > 0 && bytes%1024 == 0 && i < 3; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}
