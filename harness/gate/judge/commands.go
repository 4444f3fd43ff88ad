package judge

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// Exit codes of a shell and of the sandbox for a command that cannot be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// plan compares the plan with what was declared.
func (j *judgement) plan() {
	commands, declared := j.in.Plan.GateCommands, j.in.Manifest.GateCommands
	unreadable := len(commands) == 0 && j.spoilt[evidence.PlanFile]
	if !unreadable && !slices.Equal(commands, declared) {
		j.against(evidence.ReasonUndeclared, 0, evidence.PlanFile, "The commands of %s are not those of %s.", evidence.PlanFile, evidence.RunManifestFile)
	}
}

// commands compares what was declared with what ran.
func (j *judgement) commands() {
	if j.in.Tests.Schema != evidence.TestsV1 {
		return // told with the files
	}
	gates, results := j.in.Manifest.Gates, j.in.Tests.Commands
	declared := map[int]bool{}
	for _, g := range gates {
		declared[g.Index] = true
	}
	of := map[int]evidence.CommandTests{}
	last := 0
	for i, r := range results {
		_, twice := of[r.Index]
		switch {
		case !declared[r.Index]:
			j.against(evidence.ReasonUndeclared, r.Index, r.Command, "The command %q ran, and nobody declared it.", r.Command)
		case twice:
			j.against(evidence.ReasonUndeclared, r.Index, r.Command, "Gate %d has more than one result; it was declared once.", r.Index)
		case r.Index < last:
			j.against(evidence.ReasonUndeclared, r.Index, r.Command, "Gate %d ran as number %d, after gate %d.", r.Index, i+1, last)
		}
		if !twice {
			of[r.Index] = r
		}
		last = max(last, r.Index)
	}
	met, tests := len(gates) > 0, len(gates) == 0
	for _, g := range gates {
		tests = tests || g.Kind != evidence.KindCheck
		r, ran := of[g.Index]
		if !ran {
			j.notRun(g)
			met = false
			continue
		}
		j.same(g, r)
		met = j.ended(g, r) && met
		j.outcome(g, r)
		j.compared(r)
	}
	if !tests && !j.has(evidence.ReasonNoTests) {
		j.against(evidence.ReasonNoTests, 0, "gate_commands", "None of the gates runs tests: a check alone proves no pass.")
	}
	if code := j.in.Tests.ExitCode; met && (code == nil || *code != 0) {
		j.against(evidence.ReasonIncomplete, 0, evidence.TestsFile, "%s contradicts itself: every gate ended as expected, and its own exit code is not 0.", evidence.TestsFile)
	}
}

// notRun is against a gate without a result. Where something else ended the run, that is
// the reason, and not that nothing was tested.
func (j *judgement) notRun(g evidence.Gate) {
	if len(j.in.Pre) > 0 {
		j.against(evidence.ReasonIncomplete, g.Index, g.Cmd, "Gate %d (%s) has no result: the run ended before it.", g.Index, shortened(g.Cmd))
		return
	}
	j.against(evidence.ReasonNoTests, g.Index, g.Cmd, "Gate %d (%s) has no result: it was not run.", g.Index, shortened(g.Cmd))
}

// same looks at whether what ran is what was declared.
func (j *judgement) same(g evidence.Gate, r evidence.CommandTests) {
	if r.Command != g.Cmd || !slices.Equal(r.Argv, g.Argv) {
		j.against(evidence.ReasonUndeclared, g.Index, r.Command, "Gate %d ran %q %q; %q %q was declared.", g.Index, r.Command, r.Argv, shortened(g.Cmd), g.Argv)
	}
	if r.Kind != g.Kind || r.ExpectExit != g.ExpectExit {
		j.against(evidence.ReasonUndeclared, g.Index, r.Command, "Gate %d was judged as %q with the exit code %d expected; %q with %d was declared.",
			g.Index, r.Kind, r.ExpectExit, g.Kind, g.ExpectExit)
	}
}

// ended says whether a gate ended as was expected of it.
func (j *judgement) ended(g evidence.Gate, r evidence.CommandTests) bool {
	program := g.Cmd
	if len(g.Argv) > 0 {
		program = g.Argv[0]
	}
	against := func(reason evidence.StopReason, format string, args ...any) bool {
		j.against(reason, g.Index, program, format, args...)
		return false
	}
	var status result.Status
	known := r.Ending == "" && !r.Started || status.UnmarshalText([]byte(r.Ending)) == nil
	switch {
	case !known:
		return against(evidence.ReasonIncomplete, "Gate %d (%s) ended as %q, which is no way to end.", g.Index, shortened(g.Cmd), r.Ending)
	case status == result.StatusCanceled, status == result.StatusEngineLost:
		return against(evidence.ReasonIncomplete, "The end of gate %d (%s) was not seen: it is %q.", g.Index, shortened(g.Cmd), r.Ending)
	case !r.Started:
		return against(evidence.ReasonMissingDependency, "Gate %d (%s) did not start: %s is not in the image, or cannot be executed.", g.Index, shortened(g.Cmd), program)
	case status == result.StatusTimedOut:
		return against(evidence.ReasonTimeout, "Gate %d (%s) did not end within %d ms.", g.Index, shortened(g.Cmd), g.TimeoutMS)
	case r.ExitCode == nil || status == result.StatusStartFailed:
		return against(evidence.ReasonIncomplete, "Gate %d (%s) started, and nothing says with which code it ended.", g.Index, shortened(g.Cmd))
	}
	code := *r.ExitCode
	switch {
	case lacksProgram(g, r):
		return against(evidence.ReasonMissingDependency, "Gate %d (%s) ended with %d: %s, or a command that it calls, is not in the image or cannot be executed.", g.Index, shortened(g.Cmd), code, program)
	case code != g.ExpectExit:
		return against(evidence.ReasonGateFailed, "Gate %d (%s) %s with the code %d; %d was expected%s.", g.Index, shortened(g.Cmd), endingWords(status), code, g.ExpectExit, namedTests(failedTests(r)))
	case status == result.StatusExited, status == result.StatusSignaled && code != 0:
		return true
	}
	return against(evidence.ReasonGateFailed, "Gate %d (%s) %s.", g.Index, shortened(g.Cmd), endingWords(status))
}

func endingWords(s result.Status) string {
	switch s {
	case result.StatusSignaled:
		return "was ended by a signal"
	case result.StatusOutOfMemory:
		return "was killed at its memory limit"
	case result.StatusDiskLimit:
		return "was ended at its disk limit"
	case result.StatusOutputLimit:
		return "was ended at the limit of its output"
	default:
		return "ended"
	}
}

// outcome looks at what a gate showed.
func (j *judgement) outcome(g evidence.Gate, r evidence.CommandTests) {
	against := func(reason evidence.StopReason, subject, format string, args ...any) {
		j.against(reason, g.Index, subject, "Gate %d (%s) "+format, append([]any{g.Index, shortened(g.Cmd)}, args...)...)
	}
	if !r.LogsComplete {
		j.against(evidence.ReasonIncomplete, g.Index, evidence.RunLogFile, "The output of gate %d (%s) is not complete.", g.Index, shortened(g.Cmd))
	}
	lacking := lacksProgram(g, r)
	silent := lacking && r.Counts == evidence.Counts{}
	if r.Problem != "" && !silent {
		against(evidence.ReasonIncomplete, evidence.TestsFile, "has a report that cannot be relied on: %s.", shortened(r.Problem))
	}
	if wrong := inconsistent(r); wrong != "" {
		against(evidence.ReasonIncomplete, evidence.TestsFile, "has test cases that contradict themselves: %s.", wrong)
	}
	if g.Kind != evidence.KindTests {
		return
	}
	// What a code of failure tells is known; any other code hides it.
	failed := r.Counts.Failed + r.Counts.Errored
	if code := r.ExitCode; failed > 0 && code != nil && (lacking || *code == 0 && g.ExpectExit == 0) {
		against(evidence.ReasonGateFailed, g.Cmd, "ended with the code %d, and its report has %s%s.", *code, text.Count(failed, "failing test"), namedTests(failedTests(r)))
	}
	if !r.Started || r.ExitCode == nil || unseen(r) || silent {
		return // why there are no tests is told
	}
	skipped := ""
	if r.Counts.Skipped > 0 {
		skipped = fmt.Sprintf(" (%d skipped)", r.Counts.Skipped)
	}
	switch {
	case r.Source == "" || r.Source == evidence.ReportNone:
		against(evidence.ReasonNoTests, g.Cmd, "shows no test at all: neither a report nor a summary.")
	case r.Counts.Executed() < 1:
		against(evidence.ReasonNoTests, g.Cmd, "executed no test%s.", skipped)
	case r.Counts.Succeeded() < 1 && g.ExpectExit == 0:
		against(evidence.ReasonNoTests, g.Cmd, "has no test that passed%s: what fails as expected proves nothing.", skipped)
	}
}

// lacksProgram says that a gate could not run a program.
func lacksProgram(g evidence.Gate, r evidence.CommandTests) bool {
	return r.ExitCode != nil && (*r.ExitCode == exitNotFound || *r.ExitCode == exitNotExecutable) && *r.ExitCode != g.ExpectExit
}

// unseen says that the end of a gate was not seen, so that it owes no tests.
func unseen(r evidence.CommandTests) bool {
	return r.Ending == result.StatusCanceled.String() || r.Ending == result.StatusEngineLost.String()
}

// failedTests are the cases of a gate that failed.
func failedTests(r evidence.CommandTests) (ids []string) {
	for _, c := range r.Cases {
		if c.Outcome == evidence.Failed || c.Outcome == evidence.Errored {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// inconsistent says what is impossible in the numbers of a result; empty for nothing.
func inconsistent(r evidence.CommandTests) string {
	c := r.Counts
	for _, n := range []int{c.Total, c.Passed, c.Failed, c.Errored, c.Skipped, c.XFailed, c.XPassed, r.CasesDropped} {
		if n < 0 || n > maxCases {
			return "a number of cases is negative or too large"
		}
	}
	if c.Executed()+c.Skipped != c.Total {
		return "the total is not the sum of its parts"
	}
	if len(r.Cases) == 0 {
		return ""
	}
	var listed evidence.Counts
	for _, one := range r.Cases {
		listed.Add(one.Outcome)
		if listed.Executed()+listed.Skipped != listed.Total {
			return "a case has the outcome " + shortened(string(one.Outcome))
		}
	}
	if listed.Total+r.CasesDropped != c.Total {
		return "it lists another number of cases than it counts"
	}
	for _, pair := range [][2]int{
		{listed.Passed, c.Passed}, {listed.Failed, c.Failed}, {listed.Errored, c.Errored},
		{listed.Skipped, c.Skipped}, {listed.XFailed, c.XFailed}, {listed.XPassed, c.XPassed},
	} {
		if pair[0] > pair[1] || r.CasesDropped == 0 && pair[0] != pair[1] {
			return "it lists other outcomes than it counts"
		}
	}
	return ""
}

// maxCases bounds a number of cases that can be meant.
const maxCases = 1 << 40
