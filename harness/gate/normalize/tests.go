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

// testsOf is the content of tests.json (RO-07, RT-09).
func testsOf(ctx context.Context, m evidence.RunManifest, runs, baseline []run, n *Normalizer) (evidence.Tests, error) {
	tests := evidence.Tests{Schema: evidence.TestsV1}
	for i, r := range runs {
		if r.result == nil {
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
		}
		tests.Commands = append(tests.Commands, c)
	}
	tests.Summarize(m)
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
	return evidence.CommandTests{
		Index: r.gate.Index, Command: r.gate.Cmd, Argv: r.gate.Argv, Kind: r.gate.Kind, ExpectExit: r.gate.ExpectExit,
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(), LogsComplete: r.complete,
		Source: found.Source, Problem: found.Problem, Counts: countsOf(found),
		Cases: found.Cases, CasesDropped: found.Dropped,
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
	failing := evidence.CaseIDs(found.Cases, nil, evidence.Failed, evidence.Errored)
	return &evidence.Baseline{
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(), Counts: countsOf(found),
		FailingTests: failing, PassingTests: evidence.CaseIDs(found.Cases, failing, evidence.Passed, evidence.XPassed),
	}, err
}

// countsOf are the counts of a report; nil without one.
func countsOf(found testreport.Report) *evidence.Counts {
	if found.Source == evidence.ReportNone {
		return nil
	}
	return &found.Counts
}
