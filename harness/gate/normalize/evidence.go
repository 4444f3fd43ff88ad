package normalize

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
)

// maxResult bounds the result of one gate, in bytes.
const maxResult = 64 << 20

// Evidence is node 3 of a gate (RT-12). It reads the run manifest and the raw files of
// node 2, and writes the normalized log, the test cases, the observations, the counts of
// the rules, and the behaviour hash. It replaces files of an earlier call.
//
// A gate that never ran has no entry in tests.json and observations.json. Errors are those
// of files that cannot be read or written, and name them.
func Evidence(ctx context.Context, root *os.Root) error {
	var m evidence.RunManifest
	if err := evidence.Read(root, evidence.RunManifestFile, evidence.MaxDocument, &m); err != nil {
		return err
	}
	runs, n, err := readRuns(root, "", m)
	if err != nil {
		return err
	}
	var baseline []run
	if m.Baseline != "" {
		if baseline, _, err = readRuns(root, evidence.BaselinePass, m); err != nil {
			return err
		}
	}
	// The messages of test cases are not counted: they are in the log too.
	tests, err := testsOf(ctx, m, runs, baseline, &Normalizer{rules: n.rules, counts: make([]int, len(n.counts))})
	if err != nil {
		return err
	}
	found := newDetection(m.Allowed)
	for _, c := range tests.Commands {
		for _, one := range c.Cases {
			found.know(one.ID)
			found.know(one.Name)
		}
	}
	sources := map[int]evidence.ReportFormat{}
	for _, c := range tests.Commands {
		sources[c.Index] = c.Source
	}
	parts, behavior, err := writeLog(ctx, root, runs, n, found, sources)
	if err != nil {
		return fmt.Errorf("writing %s: %w", evidence.RunLogFile, err)
	}
	for i := range tests.Commands {
		c := &tests.Commands[i]
		c.LogSHA256, c.UnorderedSHA256 = parts[c.Index].sha256, parts[c.Index].unordered
	}
	observations, err := observationsOf(ctx, root, m)
	if err != nil {
		return err
	}
	all := evidence.Normalization{Schema: evidence.NormalizationV1, Rules: n.Counts(), Suspects: found.suspects, SuspectsTotal: found.total}
	if n.unstable {
		all.SuspectsTotal++
		all.Suspects = slices.Insert(all.Suspects, 0, evidence.Suspect{Detector: "unstable-rules", Text: "the rules of the wish change their own replacements again and again"})
	}
	return errors.Join(
		evidence.WriteText(root, evidence.BehaviorHashFile, []byte(behavior+"\n")),
		evidence.Write(root, evidence.NormalizationFile, all),
		evidence.Write(root, evidence.TestsFile, tests),
		evidence.Write(root, evidence.ObservationsFile, observations))
}

// run is one gate in one set of runs.
type run struct {
	root   *os.Root
	gate   evidence.Gate
	set    string
	result *result.Result // nil if the gate never ran
	// complete is true if the raw logs have every byte that the command wrote.
	complete bool
}

// readRuns reads the results of all gates of a set, and returns their normalizer.
func readRuns(root *os.Root, set string, m evidence.RunManifest) (all []run, n *Normalizer, err error) {
	c := Context{Roots: []string{evidence.Boundary}}
	for _, g := range m.Gates {
		r := run{root: root, gate: g, set: set, result: &result.Result{}}
		name := evidence.RawFile(set, g.Index, "result.json")
		switch err := evidence.Read(root, name, maxResult, r.result); {
		case errors.Is(err, fs.ErrNotExist):
			r.result = nil
		case err != nil:
			return nil, nil, fmt.Errorf("result of gate %d: %w", g.Index, err)
		default:
			c.Names = append(c.Names, r.result.ID)
			r.complete = r.result.OutputComplete && r.size("stdout.log") == r.result.StdoutBytes && r.size("stderr.log") == r.result.StderrBytes
		}
		all = append(all, r)
	}
	n, err = New(m.Rules, c)
	return all, n, err
}

func (r run) started() bool { return r.result.Status != result.StatusStartFailed }

// exitCode is the exit code of the command, nil if it has none.
func (r run) exitCode() *int {
	if r.result.ExitCode < 0 {
		return nil
	}
	return &r.result.ExitCode
}

// size is the size of a raw stream, 0 without one, and -1 if it cannot be seen.
func (r run) size(name string) int64 {
	info, err := r.root.Lstat(evidence.RawFile(r.set, r.gate.Index, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0
	case err != nil:
		return -1
	}
	return info.Size()
}

// open opens a raw stream or report, which ends with the context; nil if there is none.
func (r run) open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, _, err := fsx.OpenIn(r.root, evidence.RawFile(r.set, r.gate.Index, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("raw log of gate %d: %w", r.gate.Index, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{fsx.WithContext(ctx, file), file}, nil
}

// log takes the normalized output of the gates, and our own lines.
type log struct {
	out  io.Writer
	open bool // the last line has no LF yet
	// found searches the output for leftovers, and not our own lines, such as the command.
	found *detection
	// parallel says that the output of a gate is one of tests that ran in parallel.
	parallel bool
	// size is the size of the log, and streams are where a gate and its streams begin in it.
	size    int64
	streams []int64
}

// part is what is known of the log of one gate. unordered is the hash of its lines, sorted in each stream,
// stdout before stderr; empty if their order counts.
type part struct{ sha256, unordered string }

// writeLog writes run_log.txt: each gate in its order with its command, both streams and its
// end; lines keep their order (RT-06). sources are where the test cases of the gates come from. It returns
// the parts of the gates by their index, and the behaviour hash.
func writeLog(ctx context.Context, root *os.Root, runs []run, n *Normalizer, found *detection, sources map[int]evidence.ReportFormat) (parts map[int]part, behavior string, err error) {
	if err := root.Remove(evidence.RunLogFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	file, err := root.OpenFile(evidence.RunLogFile, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	parts = map[int]part{}
	w := bufio.NewWriterSize(file, 256<<10)
	l := &log{found: found}
	for _, r := range runs {
		sum := sha256.New()
		l.out, l.parallel, l.streams = io.MultiWriter(w, sum), sources[r.gate.Index] == evidence.ReportGoTest, []int64{l.size}
		n.progress.on = sources[r.gate.Index] == evidence.ReportPytest
		if err := l.add(ctx, r, n); err != nil {
			return nil, "", err
		}
		if r.result == nil {
			continue
		}
		p := part{sha256: hex.EncodeToString(sum.Sum(nil))}
		if l.parallel {
			if err := w.Flush(); err != nil {
				return nil, "", err
			}
			if p.unordered, err = unorderedHash(file, append(l.streams, l.size)); err != nil {
				return nil, "", err
			}
		}
		parts[r.gate.Index] = p
	}
	if err := w.Flush(); err != nil {
		return nil, "", err
	}
	behavior, err = BehaviorHash(file, l.size)
	return parts, behavior, err
}

func (l *log) add(ctx context.Context, r run, n *Normalizer) error {
	l.say("$ %s", r.gate.Cmd)
	if r.result == nil {
		l.say("# did not run")
		return nil
	}
	for _, name := range []string{"stdout", "stderr"} {
		l.streams = append(l.streams, l.size)
		l.say("# %s", name)
		if err := l.stream(ctx, r, n, name); err != nil {
			return fmt.Errorf("%s of gate %d: %w", name, r.gate.Index, err)
		}
	}
	if !r.complete {
		l.say("# bytes are missing: the output was longer than what is kept, or its end was not seen")
	}
	if code := r.exitCode(); code != nil {
		l.say("# %s, exit code %d", r.result.Status, *code)
	} else {
		l.say("# %s, no exit code", r.result.Status)
	}
	return nil
}

func (l *log) stream(ctx context.Context, r run, n *Normalizer, name string) error {
	s, err := r.open(ctx, name+".log")
	if err != nil || s == nil {
		return err
	}
	defer s.Close()
	if name == "stderr" || !testreport.MayHaveEvents(r.gate) {
		return n.Copy(l, s)
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(testreport.CopyText(write, s)) }()
	err = n.Copy(l, read)
	read.CloseWithError(err) // ends the goroutine if the log could not be written
	return err
}

// say writes a line of our own. The buffered writer keeps its error until Flush.
func (l *log) say(format string, args ...any) {
	line := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + "\n"
	if l.open {
		line = "\n" + line
	}
	l.open = false
	l.found.line++
	l.size += int64(len(line))
	_, _ = io.WriteString(l.out, line)
}

// Write takes whole lines of a gate.
func (l *log) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.open = line[len(line)-1] != '\n'
		l.found.look(line)
		l.parallel = l.parallel || isParallel(line)
	}
	l.size += int64(len(p))
	return l.out.Write(p)
}
