package normalize

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
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
	tests, err := testsOf(ctx, m, runs, baseline, &Normalizer{rules: n.rules, counts: make([]int, len(n.counts))})
	if err != nil {
		return err
	}
	log := newLog(io.Discard, newDetection(m.Allowed))
	for _, c := range tests.Commands {
		for _, one := range c.Cases {
			log.found.know(one.ID)
			log.found.know(one.Name)
		}
	}
	if err := log.create(ctx, root, runs, n); err != nil {
		return fmt.Errorf("writing %s: %w", evidence.RunLogFile, err)
	}
	for i := range tests.Commands {
		tests.Commands[i].LogSHA256 = log.sums[tests.Commands[i].Index]
	}
	observations, err := observationsOf(ctx, root, m)
	if err != nil {
		return err
	}
	return errors.Join(
		writeHash(root),
		evidence.Write(root, evidence.NormalizationFile, log.normalization(n)),
		evidence.Write(root, evidence.TestsFile, tests),
		evidence.Write(root, evidence.ObservationsFile, observations))
}

// writeHash writes the behaviour hash of the log.
func writeHash(root *os.Root) error {
	file, err := root.Open(evidence.RunLogFile)
	if err != nil {
		return fmt.Errorf("reading %s: %w", evidence.RunLogFile, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading %s: %w", evidence.RunLogFile, err)
	}
	sum, err := BehaviorHash(file, info.Size())
	if err != nil {
		return fmt.Errorf("hashing %s: %w", evidence.RunLogFile, err)
	}
	if err := root.WriteFile(evidence.BehaviorHashFile, []byte(sum+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", evidence.BehaviorHashFile, err)
	}
	return nil
}

// Log writes the normalized log of one set of runs, such as a repeat, as run_log.txt has
// it.
func Log(ctx context.Context, root *os.Root, m evidence.RunManifest, set string, w io.Writer) error {
	runs, n, err := readRuns(root, set, m)
	if err != nil {
		return err
	}
	return newLog(w, nil).write(ctx, runs, n)
}

// run is one gate in one set of runs.
type run struct {
	root   *os.Root
	gate   evidence.Gate
	set    string
	result *result.Result // nil if the gate never ran
}

// readRuns reads the results of all gates of a set, and makes their normalizer.
func readRuns(root *os.Root, set string, m evidence.RunManifest) (all []run, n *Normalizer, err error) {
	c := Context{Roots: []string{evidence.Boundary}}
	for _, g := range m.Gates {
		r := run{root: root, gate: g, set: set, result: &result.Result{}}
		name := evidence.RawFile(set, g.Index, "result.json")
		switch err := evidence.Read(root, name, maxResult, r.result); {
		case errors.Is(err, fs.ErrNotExist):
			r.result = nil
		case err != nil:
			return nil, nil, fmt.Errorf("result of gate %d, %s: %w", g.Index, name, err)
		case r.result.ID != "":
			c.Names = append(c.Names, r.result.ID)
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

// stream is a raw file. Without a file it is nil, and Close does nothing.
type stream struct {
	io.Reader
	file *os.File
}

// open opens a raw stream or report, which ends with the context; nil if there is none.
func (r run) open(ctx context.Context, name string) (*stream, error) {
	file, _, err := fsx.OpenIn(r.root, evidence.RawFile(r.set, r.gate.Index, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("raw log of gate %d: %w", r.gate.Index, err)
	}
	return &stream{fsx.WithContext(ctx, file), file}, nil
}

func (s *stream) close() {
	if s != nil {
		s.file.Close()
	}
}

// logsComplete reports whether the raw logs have every byte that the command wrote.
func (r run) logsComplete() (bool, error) {
	complete := r.result.OutputComplete
	for name, wrote := range map[string]int64{"stdout.log": r.result.StdoutBytes, "stderr.log": r.result.StderrBytes} {
		size := int64(0)
		info, err := r.root.Lstat(evidence.RawFile(r.set, r.gate.Index, name))
		switch {
		case err == nil:
			size = info.Size()
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
		complete = complete && size == wrote
	}
	return complete, nil
}

// log writes the log of all gates of a set, in their order: lines keep theirs (RT-06).
type log struct {
	w    *bufio.Writer
	open bool // the last line has no LF yet
	// found is nil if leftovers are not wanted.
	found *detection
	// gate is the hash of the log of the current gate, and sums are those of all gates by
	// their index.
	gate hash.Hash
	sums map[int]string
}

func newLog(w io.Writer, found *detection) *log {
	return &log{w: bufio.NewWriterSize(w, 256<<10), found: found, gate: sha256.New(), sums: map[int]string{}}
}

// create writes run_log.txt.
func (l *log) create(ctx context.Context, root *os.Root, runs []run, n *Normalizer) error {
	if err := root.Remove(evidence.RunLogFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(evidence.RunLogFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	l.w.Reset(file)
	return errors.Join(l.write(ctx, runs, n), file.Close())
}

// write writes each gate with its command, both streams and its end. Our own lines, such
// as the command, are not searched for leftovers.
func (l *log) write(ctx context.Context, runs []run, n *Normalizer) error {
	for _, r := range runs {
		l.gate.Reset()
		l.say("$ %s", r.gate.Cmd)
		if r.result == nil {
			l.say("# did not run")
			continue
		}
		for _, name := range []string{"stdout", "stderr"} {
			l.say("# %s", name)
			if err := l.stream(ctx, r, n, name); err != nil {
				return fmt.Errorf("%s of gate %d: %w", name, r.gate.Index, err)
			}
		}
		complete, err := r.logsComplete()
		if err != nil {
			return err
		}
		if !complete {
			l.say("# bytes are missing: the output was longer than what is kept, or its end was not seen")
		}
		if code := r.exitCode(); code != nil {
			l.say("# %s, exit code %d", r.result.Status, *code)
		} else {
			l.say("# %s, no exit code", r.result.Status)
		}
		l.sums[r.gate.Index] = hex.EncodeToString(l.gate.Sum(nil))
	}
	return l.w.Flush()
}

func (l *log) stream(ctx context.Context, r run, n *Normalizer, name string) error {
	s, err := r.open(ctx, name+".log")
	if err != nil || s == nil {
		return err
	}
	defer s.close()
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
		l.open = false
	}
	l.add([]byte(line))
	if l.found != nil {
		l.found.line++
	}
}

// Write takes whole lines of a gate.
func (l *log) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.open = line[len(line)-1] != '\n'
		if l.found != nil {
			l.found.look(line)
		}
	}
	return len(p), l.add(p)
}

func (l *log) add(p []byte) error {
	l.gate.Write(p) // a hash takes everything
	_, err := l.w.Write(p)
	return err
}

// normalization is normalization.json.
func (l *log) normalization(n *Normalizer) evidence.Normalization {
	all := evidence.Normalization{Schema: evidence.NormalizationV1, Rules: n.Counts(), Suspects: l.found.suspects, SuspectsTotal: l.found.total}
	if n.unstable {
		all.SuspectsTotal++
		all.Suspects = append([]evidence.Suspect{{Detector: "unstable-rules", Text: "the rules of the wish change their own replacements again and again"}}, all.Suspects...)
	}
	return all
}
