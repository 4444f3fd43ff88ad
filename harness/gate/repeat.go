package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
	"github.com/evalbox/evalbox/internal/fsx"
)

// compareRepeats normalizes each repetition as the first pass was, and reports the first
// difference of logs, of test cases and of outputs. The judge sees what the gates
// tried in a repetition.
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
	temp, remove, err := g.box.Store().Temp("repeat")
	if err != nil {
		return nil, err
	}
	// At once: of many repetitions, the disk has to hold one copy.
	defer func() { err = errors.Join(err, remove()) }()
	other, err := os.OpenRoot(temp)
	if err != nil {
		return nil, err
	}
	defer other.Close()
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
	var first, again evidence.Tests
	line, err := compareLogs(g.root, other)
	if err := errors.Join(err,
		evidence.Read(g.root, evidence.TestsFile, evidence.MaxDocument, &first),
		evidence.Read(other, evidence.TestsFile, evidence.MaxDocument, &again),
	); err != nil {
		return nil, err
	}
	differs := func(gate int, subject, format string, args ...any) {
		found = append(found, evidence.Finding{
			Reason: evidence.ReasonNonReproducible, Gate: gate, Subject: subject, Detail: fmt.Sprintf(format, args...) + fmt.Sprintf(" in run %d.", k),
		})
	}
	if line != nil && !reordered(first, again) {
		differs(0, evidence.RunLogFile, "Line %d is %q, and %q", line.Line, line.Want, line.Got)
	}
	if d := compareTests(first, again); d != nil {
		differs(d.Gate, d.Subject, "Its %s is %s, and %s", d.Signal, d.Want, d.Got)
	}
	mine := outputsIn(artifacts, evidence.OutputsDir+"/")
	theirs := outputsIn(artifacts, path.Join(evidence.PassDir(evidence.RepeatPass(k)), "outputs")+"/")
	if all := compareFiles(mine, theirs, true); len(all) > 0 {
		d, what := all[0], "has other content"
		if d.Got == "" {
			what = "is missing"
		} else if d.Want == "" {
			what = "is there only"
		}
		differs(0, path.Join(evidence.OutputsDir, d.Subject), "The file %s", what)
	}
	return found, nil
}

// copyRepeat copies the raw files of a repetition to the places of a first pass.
func (g *run) copyRepeat(ctx context.Context, k int, to *os.Root) error {
	if err := to.MkdirAll(evidence.RawDir, 0o755); err != nil {
		return err
	}
	for _, gate := range g.m.Gates {
		for _, name := range []string{"stdout.log", "stderr.log", "result.json", "report"} {
			in, _, err := fsx.OpenIn(g.root, evidence.RawFile(evidence.RepeatPass(k), gate.Index, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				_, err = fsx.Create(to, evidence.RawFile("", gate.Index, name), fsx.WithContext(ctx, in), 0o644)
				err = errors.Join(err, in.Close())
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// outputsIn lists the outputs of a pass, by their paths in its directory.
func outputsIn(artifacts evidence.Artifacts, dir string) (all []evidence.HashedFile) {
	for _, f := range artifacts.Artifacts {
		if rest, ok := strings.CutPrefix(f.FilePath, dir); ok {
			all = append(all, evidence.HashedFile{FilePath: rest, SHA256: f.SHA256})
		}
	}
	return all
}
