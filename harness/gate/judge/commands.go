package judge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// commands compares the declared commands with those that ran.
func (j *judgement) commands() {
	planned, declared := j.in.Plan.GateCommands, j.in.Manifest.GateCommands
	unreadable := len(planned) == 0 && j.damaged[evidence.PlanFile]
	j.when(!unreadable && !slices.Equal(planned, declared), evidence.ReasonUndeclared, evidence.PlanFile,
		"The commands of %s are not those of %s.", evidence.PlanFile, evidence.RunManifestFile)
	if j.in.Tests.Schema != evidence.TestsV1 {
		return // files reports it
	}
	gates, results := j.in.Manifest.Gates, j.results()
	tests := len(gates) == 0
	for _, g := range gates {
		tests = tests || g.Kind != evidence.KindCheck
		r, ran := results[g.Index]
		if !ran {
			// If something else ended the run, that is the reason.
			reason, why := evidence.ReasonNoTests, "it was not run"
			if len(j.in.Pre) > 0 {
				reason, why = evidence.ReasonIncomplete, "the run ended before it"
			}
			j.add(reason, g.Index, g.Cmd, "Gate %d (%s) has no result: %s.", g.Index, short(g.Cmd), why)
			continue
		}
		c := &command{j, g, r}
		c.when(r.Command != g.Cmd || !slices.Equal(r.Argv, g.Argv), evidence.ReasonUndeclared, r.Command, "ran %q %q; %q was declared.", r.Command, r.Argv, g.Argv)
		c.when(r.Kind != g.Kind || r.ExpectExit != g.ExpectExit, evidence.ReasonUndeclared, r.Command,
			"was judged as %q with the exit code %d expected; %q with %d was declared.", r.Kind, r.ExpectExit, g.Kind, g.ExpectExit)
		c.proof(c.ended())
		c.compared()
	}
	j.when(!tests && !j.has(evidence.ReasonNoTests), evidence.ReasonNoTests, "gate_commands", "None of the gates runs tests: a check alone proves no pass.")
	j.summarized()
}

// summarized adds keys of tests.json that do not follow from the results of its commands.
func (j *judgement) summarized() {
	is, should := j.in.Tests, j.in.Tests
	should.Commands = slices.Clone(is.Commands)
	should.Summarize(j.in.Manifest)
	add := func(gate int, key, format string, args ...any) {
		if gate > 0 {
			key += fmt.Sprintf(" of gate %d", gate)
		}
		j.add(evidence.ReasonIncomplete, gate, evidence.TestsFile, "%s contradicts itself: its %s %s.", evidence.TestsFile, key, fmt.Sprintf(format, args...))
	}
	lists := func(gate int, key string, is, should []string) {
		if slices.Equal(is, should) {
			return
		}
		if more := without(is, should); len(more) > 0 {
			add(gate, key, "has tests that its results lack%s", named(more))
		}
		if less := without(should, is); len(less) > 0 {
			add(gate, key, "lacks tests of its results%s", named(less))
		} else if len(without(is, should)) == 0 {
			add(gate, key, "has a test twice or out of order")
		}
	}
	j.when(is.Command != should.Command, evidence.ReasonIncomplete, evidence.TestsFile, "The command of %s is %q; the gate_commands of %s are %q.",
		evidence.TestsFile, short(is.Command), evidence.RunManifestFile, short(should.Command))
	if a, b := codeText(is.ExitCode), codeText(should.ExitCode); a != b {
		add(0, "exit_code", "is %s, and by its results it is %s", a, b)
	}
	lists(0, "failing_tests_before", is.FailingTestsBefore, should.FailingTestsBefore)
	lists(0, "passing_tests_after", is.PassingTestsAfter, should.PassingTestsAfter)
	for i, c := range is.Commands {
		lists(c.Index, "failing_tests_before", c.FailingTestsBefore, should.Commands[i].FailingTestsBefore)
		lists(c.Index, "passing_tests_after", c.PassingTestsAfter, should.Commands[i].PassingTestsAfter)
	}
}

// codeText is an exit code, or that there is none.
func codeText(code *int) string {
	if code == nil {
		return "null"
	}
	return strconv.Itoa(*code)
}

// indexes are those of the declared gates.
func (j *judgement) indexes() map[int]bool {
	all := map[int]bool{}
	for _, g := range j.in.Manifest.Gates {
		all[g.Index] = true
	}
	return all
}

// results are the results by gate; the first one where a gate has several.
func (j *judgement) results() map[int]evidence.CommandTests {
	declared, all := j.indexes(), map[int]evidence.CommandTests{}
	last := 0
	for i, r := range j.in.Tests.Commands {
		_, twice := all[r.Index]
		switch {
		case !declared[r.Index]:
			j.add(evidence.ReasonUndeclared, r.Index, r.Command, "The command %q ran, and nobody declared it.", r.Command)
		case twice:
			j.add(evidence.ReasonUndeclared, r.Index, r.Command, "Gate %d has more than one result; it was declared once.", r.Index)
		case r.Index < last:
			j.add(evidence.ReasonUndeclared, r.Index, r.Command, "Gate %d ran as number %d, after gate %d.", r.Index, i+1, last)
		}
		if !twice {
			all[r.Index] = r
		}
		last = max(last, r.Index)
	}
	return all
}

// command is a declared gate with its result.
type command struct {
	*judgement
	gate   evidence.Gate
	result evidence.CommandTests
}

// add adds a finding whose sentence begins with the gate.
func (c *command) add(reason evidence.StopReason, subject, format string, args ...any) {
	c.judgement.add(reason, c.gate.Index, subject, "Gate %d (%s) "+format, append([]any{c.gate.Index, short(c.gate.Cmd)}, args...)...)
}

// when adds such a finding under a condition.
func (c *command) when(wrong bool, reason evidence.StopReason, subject, format string, args ...any) {
	if wrong {
		c.add(reason, subject, format, args...)
	}
}

// ended reports whether the gate ended as expected.
func (c *command) ended() bool {
	g, r := c.gate, c.result
	program := g.Cmd
	if len(g.Argv) > 0 {
		program = g.Argv[0]
	}
	var status result.Status
	known := r.Ending == "" && !r.Started || status.UnmarshalText([]byte(r.Ending)) == nil
	switch {
	case !known:
		c.add(evidence.ReasonIncomplete, program, "ended as %q, which is not a way to end.", r.Ending)
	case unseen(r.Ending):
		c.add(evidence.ReasonIncomplete, program, "ended as %q: its end was not seen.", r.Ending)
	case !r.Started:
		c.add(evidence.ReasonMissingDependency, program, "did not start: %s is not in the image, or cannot be executed.", program)
	case c.disturbed() != "":
		c.add(evidence.ReasonIncomplete, program, "ended, and not by itself: %s", short(c.disturbed()))
	case status == result.StatusTimedOut:
		c.add(evidence.ReasonTimeout, program, "did not end within %d ms.", g.TimeoutMS)
	case r.ExitCode == nil || status == result.StatusStartFailed:
		c.add(evidence.ReasonIncomplete, program, "started, and nothing says with which code it ended.")
	case c.lacksProgram():
		c.add(evidence.ReasonMissingDependency, program, "ended with %d: %s, or a command that it calls, is not in the image or cannot be executed.", *r.ExitCode, program)
	case *r.ExitCode != g.ExpectExit:
		c.add(evidence.ReasonGateFailed, program, "%s with the code %d; %d was expected%s.", endings[status], *r.ExitCode, g.ExpectExit, named(broken(r.Cases)))
	case status != result.StatusExited && (status != result.StatusSignaled || *r.ExitCode == 0):
		c.add(evidence.ReasonGateFailed, program, "%s.", endings[status])
	default:
		return true
	}
	return false
}

// disturbed says why the run of the gate says nothing about its command; empty if it does.
func (c *command) disturbed() string {
	return c.in.Inconclusive[evidence.RawFile("", c.gate.Index, "result.json")]
}

// unseen reports whether the end of a command was not seen.
func unseen(ending string) bool {
	return ending == result.StatusCanceled.String() || ending == result.StatusEngineLost.String()
}

var endings = map[result.Status]string{
	result.StatusExited:      "ended",
	result.StatusSignaled:    "was ended by a signal",
	result.StatusOutOfMemory: "was killed at its memory limit",
	result.StatusDiskLimit:   "was ended at its disk limit",
	result.StatusOutputLimit: "was ended at the limit of its output",

	result.StatusStoppedByRule: "was ended by a stop rule",
}

// lacksProgram reports whether the gate could not run a program: shells and the sandbox end with
// 127 for one that was not found, and with 126 for one that cannot be executed.
func (c *command) lacksProgram() bool {
	code := c.result.ExitCode
	return code != nil && (*code == 127 || *code == 126) && *code != c.gate.ExpectExit
}

// proof adds output that was lost, contradictions, and a gate of tests that proves nothing. ended
// says that the gate ended as expected.
func (c *command) proof(ended bool) {
	g, r, counts := c.gate, c.result, c.result.Counts.Value()
	c.when(!r.LogsComplete, evidence.ReasonIncomplete, evidence.RunLogFile, "has output that is not complete.")
	// A gate without its program owes no tests.
	silent := c.lacksProgram() && counts == evidence.Counts{}
	c.when(r.Problem != "" && !silent, evidence.ReasonIncomplete, evidence.TestsFile, "has a report that cannot be relied on: %s.", short(r.Problem))
	wrong := contradiction(r)
	c.when(wrong != "", evidence.ReasonIncomplete, evidence.TestsFile, "has test cases that contradict themselves: %s.", wrong)
	if g.Kind != evidence.KindTests {
		return
	}
	// The exit code of a failure is reported already; any other code hides the failed tests.
	if code := r.ExitCode; counts.Broken() > 0 && code != nil && (c.lacksProgram() || *code == 0 && g.ExpectExit == 0) {
		c.add(evidence.ReasonGateFailed, g.Cmd, "ended with the code %d, and its report has %s%s.", *code, text.Count(counts.Broken(), "failing test"), named(broken(r.Cases)))
	}
	if !r.Started || r.ExitCode == nil || unseen(r.Ending) || c.disturbed() != "" || silent {
		return // the reason is reported already
	}
	skipped := ""
	if counts.Skipped > 0 {
		skipped = fmt.Sprintf(" (%d skipped)", counts.Skipped)
	}
	switch {
	case !reported(r):
		why := c.reportDemanded()
		c.when(why != "" && r.Problem == "", evidence.ReasonIncomplete, g.Cmd,
			"left no report of its tests, and %s: name its report in the wish, or make its kind check.", why)
		if why == "" && ended {
			c.warn(evidence.ReasonIncomplete, c.gate.Index, g.Cmd,
				"Gate %d (%s): no test was seen. Only its exit code counted; strict mode demands a report of its tests.", c.gate.Index, short(g.Cmd))
		}
	case counts.Executed() < 1:
		c.add(evidence.ReasonNoTests, g.Cmd, "executed no test%s.", skipped)
	case counts.Succeeded() < 1 && g.ExpectExit == 0:
		c.add(evidence.ReasonNoTests, g.Cmd, "has no test that passed%s: what fails as expected proves nothing.", skipped)
	}
}

// reported says that there is a report of test cases.
func reported(r evidence.CommandTests) bool { return r.Source != "" && r.Source != evidence.ReportNone }

// reportDemanded says why a gate of tests must have a report; empty if its exit code may count
// alone.
func (c *command) reportDemanded() string {
	switch report := c.gate.Report; {
	case c.in.Manifest.Mode.Strict:
		return "strict mode demands one"
	case report != "" && report != evidence.ReportAuto && report != evidence.ReportNone:
		return fmt.Sprintf("the wish asks for one (%s)", report)
	}
	return ""
}

// contradiction says what is impossible in the numbers of a result; empty for nothing.
func contradiction(r evidence.CommandTests) string {
	c := r.Counts.Value()
	var listed evidence.Counts
	for _, one := range r.Cases {
		listed.Add(one.Outcome)
		if listed.Executed()+listed.Skipped != listed.Total {
			return "a case has the outcome " + short(string(one.Outcome))
		}
	}
	switch {
	case min(c.Total, c.Passed, c.Failed, c.Errored, c.Skipped, c.XFailed, c.XPassed, r.CasesDropped) < 0:
		return "a number of cases is negative"
	case c.Executed()+c.Skipped != c.Total:
		return "the total is not the sum of its parts"
	case c.Total > 0 && !reported(r):
		return "it counts cases and names no report"
	case len(r.Cases) == 0:
		return ""
	case listed.Total+r.CasesDropped != c.Total:
		return "it lists another number of cases than it counts"
	case r.CasesDropped == 0 && listed != c,
		listed.Passed > c.Passed, listed.Failed > c.Failed, listed.Errored > c.Errored,
		listed.Skipped > c.Skipped, listed.XFailed > c.XFailed, listed.XPassed > c.XPassed:
		return "it lists other outcomes than it counts"
	}
	return ""
}

// withOutcome are the IDs of the cases with one of these outcomes.
func withOutcome(cases []evidence.Case, outcomes ...evidence.Outcome) (ids []string) {
	for _, c := range cases {
		if slices.Contains(outcomes, c.Outcome) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// broken are the cases that failed or could not be carried out.
func broken(cases []evidence.Case) []string {
	return withOutcome(cases, evidence.Failed, evidence.Errored)
}

// without are the names that are not among the others.
func without(names, others []string) []string {
	known := map[string]bool{}
	for _, name := range others {
		known[name] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return known[name] })
}

// named lists the first tests for the end of a sentence.
func named(ids []string) string {
	const most = 5
	if len(ids) == 0 {
		return ""
	}
	more := ""
	if len(ids) > most {
		ids, more = ids[:most], ", …"
	}
	var shown []string
	for _, id := range ids {
		shown = append(shown, short(id))
	}
	return ": " + strings.Join(shown, ", ") + more
}

// compared adds a gate that is worse than on the baseline (RO-04): it has more failing tests
// than before, one that did not fail there fails now, or one that passed there neither passes
// nor fails now: it was removed or renamed, or is skipped or expected to fail. Names are
// compared where both sides have all of them, else numbers.
func (c *command) compared() {
	r, b := c.result, c.result.Baseline
	if c.in.Manifest.Baseline == "" {
		return
	}
	if b == nil {
		c.add(evidence.ReasonIncomplete, evidence.TestsFile, "has no result on the baseline.")
		return
	}
	was, now := b.Counts.Value(), r.Counts.Value()
	var fresh []string
	if len(b.FailingTests) >= was.Broken() {
		fresh = without(broken(r.Cases), b.FailingTests)
	}
	switch {
	case now.Broken() > was.Broken():
		c.add(evidence.ReasonRegression, r.Command, "has %s, and had %d on the baseline%s.", text.Count(now.Broken(), "failing test"), was.Broken(), named(fresh))
	case len(fresh) > 0:
		c.add(evidence.ReasonRegression, r.Command, "has failing tests that did not fail on the baseline%s.", named(fresh))
	}
	if r.CasesDropped > 0 || len(r.Cases) == 0 && now.Total > 0 || len(b.PassingTests) < was.Succeeded() {
		if was.Succeeded() > now.Succeeded()+now.Broken() {
			c.add(evidence.ReasonRegression, r.Command, "has %s, and had %d on the baseline.", text.Count(now.Succeeded(), "passing test"), was.Succeeded())
		}
		return
	}
	ran := withOutcome(r.Cases, evidence.Failed, evidence.Errored, evidence.Passed, evidence.XPassed)
	if lost := without(b.PassingTests, ran); len(lost) > 0 {
		c.add(evidence.ReasonRegression, r.Command,
			"lacks %s of the baseline, now removed, skipped or expected to fail%s. Tests are compared by name: a renamed one counts as removed.",
			text.Count(len(lost), "passing test"), named(lost))
	}
}
