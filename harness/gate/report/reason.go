package report

import (
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// Reason is the line of a failure that matters, such as "AssertionError: one and one is two".
// That is its first line, unless a test runner begins with the same words every time.
func Reason(c evidence.Case) string {
	lines := slices.DeleteFunc(strings.Split(harmless(c.Message), "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(lines) == 0 {
		return ""
	}
	if slices.Contains(generic, strings.TrimSpace(lines[0])) {
		for _, line := range slices.Backward(lines[1:]) {
			if cause, ok := strings.CutPrefix(line, "E  "); ok && strings.TrimSpace(cause) != "" {
				return text.OneLine(cause)
			}
		}
		lines = append(lines[1:], lines[0]) // the next line, if there is one
	}
	return text.OneLine(lines[0])
}

// generic are first lines of pytest that say nothing about the test.
var generic = []string{"collection failure", "test setup failure", "test teardown failure"}

// Broken are the cases of a gate that failed or could not be carried out.
func Broken(c evidence.CommandTests) []evidence.Case {
	return slices.DeleteFunc(slices.Clone(c.Cases), func(one evidence.Case) bool {
		return one.Outcome != evidence.Failed && one.Outcome != evidence.Errored
	})
}

// Causes divides the findings of a verdict. Consequences follow from failing tests, which are
// named anyway, or from another finding about the end of the same command. Both keep their order.
func Causes(v evidence.Verdict, tests evidence.Tests) (causes, consequences []evidence.Finding) {
	explained, ended := map[int]bool{}, map[int]bool{}
	for _, c := range tests.Commands {
		explained[c.Index] = explains(c)
	}
	for _, f := range v.Findings {
		ended[f.Gate] = ended[f.Gate] || endsCommand(f.Reason)
	}
	for _, f := range v.Findings {
		if f.Gate > 0 && (f.Reason == evidence.ReasonGateFailed && explained[f.Gate] || ended[f.Gate] && ofTests(f)) {
			consequences = append(consequences, f)
		} else {
			causes = append(causes, f)
		}
	}
	return causes, consequences
}

// explains reports whether the failing tests of a gate explain its exit code.
func explains(c evidence.CommandTests) bool {
	return c.Ending == "exited" && c.ExitCode != nil && *c.ExitCode != 0 && !Met(c) && len(Broken(c)) > 0
}

// endsCommand reports whether a reason is how a command ended.
func endsCommand(reason evidence.StopReason) bool {
	return reason == evidence.ReasonGateFailed || reason == evidence.ReasonTimeout || reason == evidence.ReasonMissingDependency
}

// ofTests reports whether a finding is about tests that a command did not show, or about its
// report and its log.
func ofTests(f evidence.Finding) bool {
	return f.Reason == evidence.ReasonNoTests ||
		f.Reason == evidence.ReasonIncomplete && f.Subject != evidence.ObservationsFile && f.Subject != "run"
}
