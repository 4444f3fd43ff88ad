package normalize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
	"github.com/evalbox/evalbox/internal/fsx"
)

// maxManifest bounds the run manifest, in bytes.
const maxManifest = evidence.MaxDocument

// Evidence is node 3 of a gate (RT-12). It reads the run manifest and the raw files of
// node 2, and writes the normalized log, the test cases, the observations, what was
// normalized, and the behaviour hash. Files of an earlier call are replaced.
//
// A gate that never ran has no entry in tests.json and observations.json. Errors are
// those of files that cannot be read or written, and name them; what the gates did wrong
// is in the evidence.
func Evidence(ctx context.Context, root *os.Root) error {
	var m evidence.RunManifest
	if err := evidence.Read(root, evidence.RunManifestFile, maxManifest, &m); err != nil {
		return err
	}
	ran, err := readAll(root, "", m)
	if err != nil {
		return err
	}
	n, err := New(m.Rules, contextOf(ran))
	if err != nil {
		return err
	}
	written, err := writeLog(ctx, root, m, ran, n)
	if err != nil {
		return err
	}
	// What follows is normalized too, but is no part of the log: it is not counted there.
	other, err := New(m.Rules, contextOf(ran))
	if err != nil {
		return err
	}
	tests, err := testsOf(ctx, root, m, ran, other, written.sums)
	if err != nil {
		return err
	}
	if err := writeNormalization(ctx, root, m, n, written.ours, tests); err != nil {
		return err
	}
	if err := writeHash(ctx, root); err != nil {
		return err
	}
	if err := evidence.Write(root, evidence.TestsFile, tests); err != nil {
		return err
	}
	observations, err := observationsOf(ctx, root, m)
	if err != nil {
		return err
	}
	return evidence.Write(root, evidence.ObservationsFile, observations)
}

// readAll reads the results of all gates of a set of runs; those that never ran are nil.
func readAll(root *os.Root, set string, m evidence.RunManifest) ([]*raw, error) {
	all := make([]*raw, 0, len(m.Gates))
	for _, g := range m.Gates {
		r, err := readRaw(root, set, g)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// contextOf has the names that only these runs have.
func contextOf(ran []*raw) Context {
	c := Context{Roots: []string{evidence.Boundary}}
	for _, r := range ran {
		if r != nil && r.result.ID != "" {
			c.Names = append(c.Names, r.result.ID)
		}
	}
	return c
}

// Log writes the normalized log of one set of runs, such as a repeat, in the form of
// run_log.txt.
func Log(ctx context.Context, root *os.Root, m evidence.RunManifest, set string, w io.Writer) error {
	ran, err := readAll(root, set, m)
	if err != nil {
		return err
	}
	n, err := New(m.Rules, contextOf(ran))
	if err != nil {
		return err
	}
	_, err = logOf(ctx, root, m, ran, n, w)
	return err
}

// writeLog writes run_log.txt.
func writeLog(ctx context.Context, root *os.Root, m evidence.RunManifest, ran []*raw, n *Normalizer) (written written, err error) {
	if err := root.Remove(evidence.RunLogFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return written, fmt.Errorf("writing %s: %w", evidence.RunLogFile, err)
	}
	file, err := root.OpenFile(evidence.RunLogFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return written, fmt.Errorf("writing %s: %w", evidence.RunLogFile, err)
	}
	defer func() {
		if closing := file.Close(); err == nil && closing != nil {
			err = fmt.Errorf("writing %s: %w", evidence.RunLogFile, closing)
		}
	}()
	return logOf(ctx, root, m, ran, n, file)
}

// writeNormalization looks for what is left in the log. Our own lines, such as the
// commands, are as the wish has them.
func writeNormalization(ctx context.Context, root *os.Root, m evidence.RunManifest, n *Normalizer, ours map[int]bool, tests evidence.Tests) error {
	file, err := root.Open(evidence.RunLogFile)
	if err != nil {
		return fmt.Errorf("reading %s: %w", evidence.RunLogFile, err)
	}
	defer file.Close()
	d := detection{allowed: patternsOf(m.Allowed)}
	for _, c := range tests.Commands {
		for _, test := range c.Cases {
			d.know(test.ID)
			d.know(test.Name)
		}
	}
	lines := logline.NewReader(fsx.WithContext(ctx, file), 2*maxLine)
	for {
		piece, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", evidence.RunLogFile, err)
		}
		if ours[d.line+1] {
			d.line++
			continue
		}
		d.look(piece.Text)
	}
	out := evidence.Normalization{Schema: evidence.NormalizationV1, Rules: n.Counts(), Suspects: d.suspects, SuspectsTotal: d.total}
	if n.unstable {
		// Rules that undo or feed each other make a log that depends on how often it
		// was normalized.
		out.SuspectsTotal++
		out.Suspects = append([]evidence.Suspect{{Detector: "unstable-rules", Line: 0, Text: "the rules of the wish change their own replacements again and again"}}, out.Suspects...)
	}
	if out.Suspects == nil {
		out.Suspects = []evidence.Suspect{}
	}
	return evidence.Write(root, evidence.NormalizationFile, out)
}

// writeHash writes the behaviour hash of the log.
func writeHash(ctx context.Context, root *os.Root) error {
	file, err := root.Open(evidence.RunLogFile)
	if err != nil {
		return fmt.Errorf("reading %s: %w", evidence.RunLogFile, err)
	}
	defer file.Close()
	sum, err := hashLines(fsx.WithContext(ctx, file), sortBytes)
	if err != nil {
		return fmt.Errorf("hashing %s: %w", evidence.RunLogFile, err)
	}
	if err := root.WriteFile(evidence.BehaviorHashFile, []byte(sum+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", evidence.BehaviorHashFile, err)
	}
	return nil
}
