package normalize

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
	"github.com/evalbox/evalbox/internal/text"
)

// maxMessage bounds the message of a case, in bytes.
const maxMessage = 1000

// testsOf is the content of tests.json (RO-07, RT-09). Lists are sorted (resolution 47).
func testsOf(ctx context.Context, m evidence.RunManifest, runs, baseline []run, n *Normalizer) (evidence.Tests, error) {
	tests := evidence.Tests{Schema: evidence.TestsV1, Command: strings.Join(m.GateCommands, " && ")}
	var before, failing, passing []string
	met := true
	for i, r := range runs {
		if r.result == nil {
			met = false
			continue
		}
		c, err := r.tests(ctx, n)
		if err != nil {
			return tests, err
		}
		if baseline != nil && baseline[i].result != nil {
			if c.Baseline, err = baseline[i].asBaseline(ctx); err != nil {
				return tests, err
			}
			c.FailingTestsBefore = c.Baseline.FailingTests
		}
		before = append(before, c.FailingTestsBefore...)
		passing = append(passing, c.PassingTestsAfter...)
		failing = append(failing, idsOf(c.Cases, nil, evidence.Failed, evidence.Errored)...)
		if met && (c.ExitCode == nil || *c.ExitCode != c.ExpectExit) {
			met = false
			tests.ExitCode = c.ExitCode
		}
		tests.Commands = append(tests.Commands, c)
	}
	if met && len(tests.Commands) > 0 {
		tests.ExitCode = new(int)
	}
	tests.FailingTestsBefore, tests.PassingTestsAfter = sorted(before, nil), sorted(passing, sorted(failing, nil))
	return tests, nil
}

// tests is one gate that ran.
func (r run) tests(ctx context.Context, n *Normalizer) (evidence.CommandTests, error) {
	found, err := r.report(ctx)
	for i := range found.Cases {
		c := &found.Cases[i]
		c.Message = text.Short(strings.TrimSpace(string(n.Text([]byte(c.Message)))), maxMessage)
	}
	slices.SortStableFunc(found.Cases, func(a, b evidence.Case) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Message, b.Message))
	})
	failing := idsOf(found.Cases, nil, evidence.Failed, evidence.Errored)
	return evidence.CommandTests{
		Index: r.gate.Index, Command: r.gate.Cmd, Argv: r.gate.Argv, Kind: r.gate.Kind, ExpectExit: r.gate.ExpectExit,
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(), LogsComplete: r.complete,
		Source: found.Source, Problem: found.Problem, Counts: countsOf(found),
		Cases: found.Cases, CasesDropped: found.Dropped,
		PassingTestsAfter: idsOf(found.Cases, failing, evidence.Passed),
	}, err
}

// report reads the test report of a gate.
func (r run) report(ctx context.Context) (testreport.Report, error) {
	in := testreport.Input{ExitCode: r.exitCode()}
	for name, into := range map[string]*io.Reader{"stdout.log": &in.Stdout, "report": &in.Report} {
		file, err := r.open(ctx, name)
		if err != nil {
			return testreport.Report{}, err
		}
		if file != nil {
			defer file.Close()
			*into = file
		}
	}
	found := testreport.Parse(r.gate, in)
	return found, context.Cause(ctx) // a canceled read is not a problem of the report
}

// asBaseline is the same gate on the baseline revision (RO-04).
func (r run) asBaseline(ctx context.Context) (*evidence.Baseline, error) {
	found, err := r.report(ctx)
	failing := idsOf(found.Cases, nil, evidence.Failed, evidence.Errored)
	return &evidence.Baseline{
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(), Counts: countsOf(found),
		FailingTests: failing, PassingTests: idsOf(found.Cases, failing, evidence.Passed, evidence.XPassed),
	}, err
}

// countsOf are the counts of a report; nil without one.
func countsOf(found testreport.Report) *evidence.Counts {
	if found.Source == evidence.ReportNone {
		return nil
	}
	return &found.Counts
}

// idsOf are the IDs of the cases with one of these outcomes, as [sorted] returns them.
func idsOf(cases []evidence.Case, except []string, outcomes ...evidence.Outcome) (ids []string) {
	for _, c := range cases {
		if slices.Contains(outcomes, c.Outcome) {
			ids = append(ids, c.ID)
		}
	}
	return sorted(ids, except)
}

// sorted are the names in their order, each once, but for those in except, which is sorted.
func sorted(names, except []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		_, found := slices.BinarySearch(except, name)
		return found
	})
}
