package normalize

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
	"github.com/evalbox/evalbox/internal/text"
)

// maxMessage bounds the message of a case, in bytes.
const maxMessage = 1000

// testsOf makes tests.json (RO-07, RT-09). Lists are sorted (resolution 47).
func testsOf(ctx context.Context, m evidence.RunManifest, runs, baseline []run, n *Normalizer) (evidence.Tests, error) {
	tests := evidence.Tests{Schema: evidence.TestsV1, Command: strings.Join(m.GateCommands, " && "), Commands: []evidence.CommandTests{}}
	before, failing, passing := set{}, set{}, set{}
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
		if baseline != nil {
			if err := addBaseline(ctx, baseline[i], &c); err != nil {
				return tests, err
			}
		}
		before.add(c.FailingTestsBefore...)
		passing.add(c.PassingTestsAfter...)
		maps.Copy(failing, idsOf(c.Cases, evidence.Failed, evidence.Errored))
		if met && (c.ExitCode == nil || *c.ExitCode != c.ExpectExit) {
			met = false
			tests.ExitCode = c.ExitCode
		}
		tests.Commands = append(tests.Commands, c)
	}
	if met && len(tests.Commands) > 0 {
		tests.ExitCode = new(int)
	}
	tests.FailingTestsBefore, tests.PassingTestsAfter = before.sorted(nil), passing.sorted(failing)
	return tests, nil
}

// tests is one gate that ran.
func (r run) tests(ctx context.Context, n *Normalizer) (evidence.CommandTests, error) {
	complete, err := r.logsComplete()
	if err != nil {
		return evidence.CommandTests{}, err
	}
	found, err := r.report(ctx)
	for i := range found.Cases {
		c := &found.Cases[i]
		c.Message = text.Short(strings.TrimSpace(string(n.Text([]byte(c.Message)))), maxMessage)
	}
	slices.SortStableFunc(found.Cases, func(a, b evidence.Case) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Message, b.Message))
	})
	failing := idsOf(found.Cases, evidence.Failed, evidence.Errored)
	return evidence.CommandTests{
		Index: r.gate.Index, Command: r.gate.Cmd, Argv: slices.Concat([]string{}, r.gate.Argv), Kind: r.gate.Kind, ExpectExit: r.gate.ExpectExit,
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(), LogsComplete: complete,
		Source: found.Source, Problem: found.Problem, Counts: countsOf(found),
		Cases: slices.Concat([]evidence.Case{}, found.Cases), CasesDropped: found.Dropped,
		FailingTestsBefore: []string{}, PassingTestsAfter: idsOf(found.Cases, evidence.Passed).sorted(failing),
	}, err
}

// report reads the test report of a gate.
func (r run) report(ctx context.Context) (testreport.Report, error) {
	in := testreport.Input{ExitCode: r.exitCode()}
	stdout, err := r.open(ctx, "stdout.log")
	if err != nil {
		return testreport.Report{}, err
	}
	if stdout != nil {
		defer stdout.close()
		in.Stdout = stdout
	}
	report, err := r.open(ctx, "report")
	if err != nil {
		return testreport.Report{}, err
	}
	if report != nil {
		defer report.close()
		in.Report = report
	}
	found := testreport.Parse(r.gate, in)
	return found, context.Cause(ctx) // a canceled read is not a problem of the report
}

// addBaseline adds the same gate on the baseline revision (RO-04).
func addBaseline(ctx context.Context, r run, c *evidence.CommandTests) error {
	if r.result == nil {
		return nil
	}
	found, err := r.report(ctx)
	if err != nil {
		return err
	}
	failing := idsOf(found.Cases, evidence.Failed, evidence.Errored)
	c.FailingTestsBefore = failing.sorted(nil)
	c.Baseline = &evidence.Baseline{
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(), Counts: countsOf(found),
		FailingTests: failing.sorted(nil), PassingTests: idsOf(found.Cases, evidence.Passed, evidence.XPassed).sorted(failing),
	}
	return nil
}

// countsOf are the counts of a report; nil without one.
func countsOf(found testreport.Report) *evidence.Counts {
	if found.Source == evidence.ReportNone {
		return nil
	}
	return &found.Counts
}

// set is a set of names.
type set map[string]bool

func (s set) add(names ...string) {
	for _, n := range names {
		s[n] = true
	}
}

// sorted are the names that are not in except; never nil.
func (s set) sorted(except set) []string {
	names := []string{}
	for n := range s {
		if !except[n] {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// idsOf are the IDs of the cases with one of these outcomes.
func idsOf(cases []evidence.Case, outcomes ...evidence.Outcome) set {
	ids := set{}
	for _, c := range cases {
		if slices.Contains(outcomes, c.Outcome) {
			ids.add(c.ID)
		}
	}
	return ids
}
