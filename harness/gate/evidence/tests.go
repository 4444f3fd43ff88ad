package evidence

import (
	"slices"
	"strings"
)

// Summarize sets what follows from the commands: the keys of RO-07, for each command and for all of them.
// A gate of the manifest without a command did not run. Lists are sorted (resolution 47).
func (t *Tests) Summarize(m RunManifest) {
	var before, failing, passing []string
	byGate := map[int]*CommandTests{}
	for i := range t.Commands {
		c := &t.Commands[i]
		c.FailingTestsBefore = nil
		if c.Baseline != nil {
			c.FailingTestsBefore = c.Baseline.FailingTests
		}
		broken := CaseIDs(c.Cases, nil, Failed, Errored)
		c.PassingTestsAfter = CaseIDs(c.Cases, broken, Passed)
		before, failing, passing = append(before, c.FailingTestsBefore...), append(failing, broken...), append(passing, c.PassingTestsAfter...)
		if byGate[c.Index] == nil {
			byGate[c.Index] = c
		}
	}
	t.Command, t.ExitCode = strings.Join(m.GateCommands, " && "), nil
	t.FailingTestsBefore, t.PassingTestsAfter = SortedNames(before, nil), SortedNames(passing, SortedNames(failing, nil))
	for _, g := range m.Gates {
		c := byGate[g.Index]
		if c == nil {
			return
		}
		if c.ExitCode == nil || *c.ExitCode != c.ExpectExit {
			t.ExitCode = c.ExitCode
			return
		}
	}
	if len(t.Commands) > 0 {
		t.ExitCode = new(int)
	}
}

// CaseIDs are the IDs of the cases with one of these outcomes, as [SortedNames] returns them.
func CaseIDs(cases []Case, except []string, outcomes ...Outcome) (ids []string) {
	for _, c := range cases {
		if slices.Contains(outcomes, c.Outcome) {
			ids = append(ids, c.ID)
		}
	}
	return SortedNames(ids, except)
}

// SortedNames are the names in their order, each once, but for those in except, which is sorted.
func SortedNames(names, except []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		_, found := slices.BinarySearch(except, name)
		return found
	})
}
