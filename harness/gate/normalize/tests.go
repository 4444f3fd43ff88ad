package normalize

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
)

// maxSaid bounds the message of a case, in bytes.
const maxSaid = 1000

// testsOf makes tests.json (RO-07, RT-09). Lists are sorted (resolution 47). sums are the
// hashes of the gates' logs.
func testsOf(ctx context.Context, root *os.Root, m evidence.RunManifest, ran []*raw, n *Normalizer, sums []string) (evidence.Tests, error) {
	tests := evidence.Tests{Schema: evidence.TestsV1, Command: strings.Join(m.GateCommands, " && "), Commands: []evidence.CommandTests{}}
	before, failing, passing := set{}, set{}, set{}
	met := true
	for i, r := range ran {
		if r == nil {
			met = false
			continue
		}
		c, err := commandOf(ctx, root, r, n)
		if err != nil {
			return tests, err
		}
		c.LogSHA256 = sums[i]
		if m.Baseline != "" {
			if err := addBaseline(ctx, root, m.Gates[i], &c); err != nil {
				return tests, err
			}
		}
		before.add(c.FailingTestsBefore)
		passing.add(c.PassingTestsAfter)
		failing.add(failingOf(c.Cases))
		if met && (c.ExitCode == nil || *c.ExitCode != c.ExpectExit) {
			met = false
			tests.ExitCode = c.ExitCode
		}
		tests.Commands = append(tests.Commands, c)
	}
	if met && len(tests.Commands) > 0 {
		tests.ExitCode = new(int)
	}
	tests.FailingTestsBefore = before.without(nil)
	tests.PassingTestsAfter = passing.without(failing)
	return tests, nil
}

// commandOf is one gate that ran.
func commandOf(ctx context.Context, root *os.Root, r *raw, n *Normalizer) (evidence.CommandTests, error) {
	c := evidence.CommandTests{
		Index: r.gate.Index, Command: r.gate.Cmd, Argv: r.gate.Argv, Kind: r.gate.Kind, ExpectExit: r.gate.ExpectExit,
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(),
		FailingTestsBefore: []string{},
	}
	var err error
	if c.LogsComplete, err = r.complete(ctx, root); err != nil {
		return c, err
	}
	found, err := r.parse(ctx, root)
	if err != nil {
		return c, err
	}
	c.Source, c.Problem, c.Counts, c.CasesDropped = found.Source, found.Problem, countsOf(found), found.Dropped
	c.Cases = found.Cases
	for i := range c.Cases {
		c.Cases[i].Message = clip(strings.TrimSpace(string(n.Text([]byte(c.Cases[i].Message)))), maxSaid)
	}
	slices.SortStableFunc(c.Cases, func(a, b evidence.Case) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Message, b.Message))
	})
	if c.Cases == nil {
		c.Cases = []evidence.Case{}
	}
	if c.Argv == nil {
		c.Argv = []string{}
	}
	passing, failing := set{}, set{}
	failing.add(failingOf(c.Cases))
	for _, test := range c.Cases {
		if test.Outcome == evidence.Passed {
			passing[test.ID] = true
		}
	}
	c.PassingTestsAfter = passing.without(failing)
	return c, nil
}

// parse reads what the gate says of its tests.
func (r *raw) parse(ctx context.Context, root *os.Root) (testreport.Report, error) {
	in := testreport.Input{ExitCode: r.exitCode()}
	stdout, err := r.stream(ctx, root, "stdout.log")
	if err != nil {
		return testreport.Report{}, err
	}
	defer stdout.close()
	report, err := r.stream(ctx, root, "report")
	if err != nil {
		return testreport.Report{}, err
	}
	defer report.close()
	in.Stdout, in.Report = stdout.reader(), report.reader()
	found := testreport.Parse(r.gate, in)
	return found, context.Cause(ctx) // a stream that ended with it is no problem of the report
}

// addBaseline adds the same gate on the baseline revision (RO-04).
func addBaseline(ctx context.Context, root *os.Root, g evidence.Gate, c *evidence.CommandTests) error {
	r, err := readRaw(root, evidence.BaselineSet, g)
	if err != nil || r == nil {
		return err
	}
	found, err := r.parse(ctx, root)
	if err != nil {
		return err
	}
	failing := set{}
	failing.add(failingOf(found.Cases))
	c.FailingTestsBefore = failing.without(nil)
	passing := set{}
	for _, test := range found.Cases {
		if test.Outcome == evidence.Passed || test.Outcome == evidence.XPassed {
			passing[test.ID] = true
		}
	}
	c.Baseline = &evidence.Baseline{
		Started: r.started(), Ending: r.result.Status.String(), ExitCode: r.exitCode(),
		Counts: countsOf(found), FailingTests: failing.without(nil), PassingTests: passing.without(failing),
	}
	return nil
}

// countsOf returns the counts of a report; nil without one.
func countsOf(found testreport.Report) *evidence.Counts {
	if found.Source == "" || found.Source == evidence.ReportNone {
		return nil
	}
	return &found.Counts
}

// failingOf are the IDs of the cases that failed.
func failingOf(cases []evidence.Case) (ids []string) {
	for _, c := range cases {
		if c.Outcome == evidence.Failed || c.Outcome == evidence.Errored {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// set is a set of names.
type set map[string]bool

func (s set) add(names []string) {
	for _, n := range names {
		s[n] = true
	}
}

// without are the names that are not in other, sorted; never nil.
func (s set) without(other set) []string {
	names := []string{}
	for n := range s {
		if !other[n] {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}
