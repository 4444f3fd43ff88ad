package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
)

// compareRepeats normalizes each repetition as the first pass was, and tells the first
// difference of logs, of test cases and of outputs. What the gates tried in a repetition
// is judged with everything else.
func (g *run) compareRepeats(ctx context.Context, artifacts evidence.Artifacts) ([]evidence.Finding, error) {
	found := []evidence.Finding{}
	for k := 2; k <= g.m.Mode.Repeats; k++ {
		differences, err := g.compareRepeat(ctx, k, artifacts)
		found = append(found, differences...)
		if err != nil {
			return found, fmt.Errorf("repeat %d: %w", k, err)
		}
	}
	return found, nil
}

func (g *run) compareRepeat(ctx context.Context, k int, artifacts evidence.Artifacts) (found []evidence.Finding, err error) {
	temp, err := os.MkdirTemp(g.o.TempDir, "evalbox-gate-repeat-")
	if err != nil {
		return nil, err
	}
	// At once: of many repetitions, the disk has to hold one copy.
	defer func() { err = errors.Join(err, fsx.Remove(temp)) }()
	other, err := os.OpenRoot(temp)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	if err := g.copyRepeat(ctx, k, other); err != nil {
		return nil, err
	}
	m := g.m
	m.Baseline, m.Mode.Repeats = "", 1
	if err := evidence.Write(other, evidence.RunManifestFile, m); err != nil {
		return nil, err
	}
	if err := normalize.Evidence(ctx, other); err != nil {
		return nil, err
	}
	differs := func(gate int, subject, detail string) {
		found = append(found, evidence.Finding{Reason: evidence.ReasonNonReproducible, Gate: gate, Subject: subject, Detail: detail})
	}
	line, err := firstDifference(g.root, other, evidence.RunLogFile)
	if err != nil {
		return nil, err
	}
	if line != nil {
		differs(0, evidence.RunLogFile, fmt.Sprintf("Line %d is %q, and %q in run %d.", line.Line, line.Want, line.Got, k))
	}
	if err := compareTests(g.root, other, k, differs); err != nil {
		return nil, err
	}
	if name, what := outputsDiffer(artifacts, k); name != "" {
		differs(0, name, fmt.Sprintf("The file %s in run %d.", what, k))
	}
	return found, nil
}

// copyRepeat copies what is normalized of a repetition, which is not what it made, to
// where the files of a first pass are.
func (g *run) copyRepeat(ctx context.Context, k int, to *os.Root) error {
	if err := to.MkdirAll(evidence.RawDir, 0o755); err != nil {
		return err
	}
	for _, gate := range g.m.Gates {
		for _, name := range []string{"stdout.log", "stderr.log", "result.json", "report"} {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			err := copyFile(g.root, evidence.RawFile(evidence.RepeatSet(k), gate.Index, name), to, evidence.RawFile("", gate.Index, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// copyFile copies a regular file to a new one.
func copyFile(from *os.Root, name string, to *os.Root, as string) error {
	in, _, err := fsx.OpenIn(from, name)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = fsx.Create(to, as, in, 0o644)
	return err
}

// compareTests tells the first difference between the results of two passes.
func compareTests(one, other *os.Root, k int, differs func(gate int, subject, detail string)) error {
	var a, b evidence.Tests
	if err := errors.Join(
		evidence.Read(one, evidence.TestsFile, evidence.MaxDocument, &a),
		evidence.Read(other, evidence.TestsFile, evidence.MaxDocument, &b),
	); err != nil {
		return err
	}
	if len(a.Commands) != len(b.Commands) {
		differs(0, evidence.TestsFile, fmt.Sprintf("%d commands have a result, and %d in run %d.", len(a.Commands), len(b.Commands), k))
		return nil
	}
	for i := range a.Commands {
		if subject, detail := commandsDiffer(a.Commands[i], b.Commands[i], k); subject != "" {
			differs(a.Commands[i].Index, subject, detail)
			return nil
		}
	}
	return nil
}

// commandsDiffer compares how two runs of a gate ended, and its cases. It is pure.
func commandsDiffer(a, b evidence.CommandTests, k int) (subject, detail string) {
	if a.Ending != b.Ending || !reflect.DeepEqual(a.ExitCode, b.ExitCode) {
		return a.Command, fmt.Sprintf("It %s, and %s in run %d.", ended(a), ended(b), k)
	}
	switch {
	case a.LogsComplete != b.LogsComplete:
		return a.Command, fmt.Sprintf("Its output is %s, and %s in run %d.", whole(a), whole(b), k)
	case a.Source != b.Source:
		return a.Command, fmt.Sprintf("Its tests were read from %s, and from %s in run %d.", source(a), source(b), k)
	case a.Problem != b.Problem:
		return a.Command, fmt.Sprintf("Its report is %s, and %s in run %d.", usable(a), usable(b), k)
	}
	for i := range max(len(a.Cases), len(b.Cases)) {
		switch {
		case i >= len(b.Cases):
			return a.Cases[i].ID, fmt.Sprintf("The test is not there in run %d.", k)
		case i >= len(a.Cases):
			return b.Cases[i].ID, fmt.Sprintf("The test is there only in run %d.", k)
		case a.Cases[i].ID != b.Cases[i].ID:
			return min(a.Cases[i].ID, b.Cases[i].ID), fmt.Sprintf("The test is there in one run only; compared with run %d.", k)
		case a.Cases[i].Outcome != b.Cases[i].Outcome:
			return a.Cases[i].ID, fmt.Sprintf("The test %s, and %s in run %d.", a.Cases[i].Outcome, b.Cases[i].Outcome, k)
		}
	}
	if first, now := a.Counts.Value(), b.Counts.Value(); first != now {
		return a.Command, fmt.Sprintf("%d of %d tests passed, and %d of %d in run %d.", first.Passed, first.Total, now.Passed, now.Total, k)
	}
	return "", ""
}

func whole(c evidence.CommandTests) string {
	if c.LogsComplete {
		return "complete"
	}
	return "not complete"
}

func source(c evidence.CommandTests) string {
	return cmp.Or(string(c.Source), "nothing")
}

// usable says what is wrong with a report.
func usable(c evidence.CommandTests) string {
	if c.Problem == "" {
		return "as it should be"
	}
	return fmt.Sprintf("one that cannot be relied on (%.200s)", c.Problem)
}

// ended says how a gate ended.
func ended(c evidence.CommandTests) string {
	if c.ExitCode == nil {
		return "ended as " + c.Ending
	}
	return fmt.Sprintf("%s with code %d", c.Ending, *c.ExitCode)
}

// outputsDiffer is the first output that is not the same in the k-th run. It is pure.
func outputsDiffer(artifacts evidence.Artifacts, k int) (name, what string) {
	mine, theirs := map[string]string{}, map[string]string{}
	var names []string
	for _, f := range artifacts.Artifacts {
		if rest, ok := strings.CutPrefix(f.FilePath, evidence.OutputsDir+"/"); ok {
			mine[rest] = f.SHA256
			names = append(names, rest)
		} else if rest, ok := strings.CutPrefix(f.FilePath, path.Join(evidence.SetDir(evidence.RepeatSet(k)), "outputs")+"/"); ok {
			theirs[rest] = f.SHA256
			names = append(names, rest)
		}
	}
	for _, name := range names { // sorted, the first run's first
		full := path.Join(evidence.OutputsDir, name)
		switch {
		case theirs[name] == "":
			return full, "is missing"
		case mine[name] == "":
			return full, "is there only"
		case mine[name] != theirs[name]:
			return full, "has other content"
		}
	}
	return "", ""
}
