package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	gatereport "github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/report"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
)

// kind is what a path is.
type kind int

const (
	kindNone kind = iota // not there
	kindBatch
	kindSweep
	kindGate
	kindOther // nothing that there are reports on
)

// resultsName is the results file in a directory.
const resultsName = "results.jsonl"

// kindOf recognizes what is at a path by its files; at is where they are.
func kindOf(path string) (k kind, at string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return kindNone, path
	case info.IsDir():
		for _, mark := range []struct {
			name string
			kind kind
		}{{sweep.DefinitionName, kindSweep}, {evidence.RunManifestFile, kindGate}, {evidence.VerdictFile, kindGate}} {
			if isFile(filepath.Join(path, mark.name)) {
				return mark.kind, path
			}
		}
		if file := filepath.Join(path, resultsName); isFile(file) {
			return kindBatch, file
		}
		return kindOther, path
	}
	switch filepath.Base(path) {
	case sweep.DefinitionName, sweep.ManifestName:
		return kindSweep, filepath.Dir(path)
	case evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile:
		return kindGate, filepath.Dir(path)
	}
	if strings.HasSuffix(path, ".jsonl") || isResults(path) {
		return kindBatch, path
	}
	return kindOther, path
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// isResults reports whether a file begins as a results file does.
func isResults(path string) bool {
	file, err := fsx.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	start := []byte(`{"schema":"` + evaluate.ResultSchemaV1 + `"`)
	there := make([]byte, len(start))
	_, err = io.ReadFull(file, there)
	return err == nil && bytes.Equal(there, start)
}

// loader reads what reports are about.
type loader struct {
	ctx context.Context //nolint:containedctx // lives as long as the one command that it belongs to
	app *cli.App
	s   settings.Settings
}

const whatHint = "name the results file of a batch, the directory of a sweep, a gate directory, or a run as 'sandbox ls' lists them"

// document makes the document of a path or of a run.
func (l loader) document(arg string) (report.Document, error) {
	k, at := kindOf(arg)
	switch k {
	case kindBatch:
		b, err := l.batch(arg)
		return report.BatchDocument(b), err
	case kindSweep:
		results, err := sweep.Load(l.ctx, at)
		if err != nil {
			return report.Document{}, err
		}
		return report.SweepDocument(report.Sweep{Title: title(at), Results: results}), nil
	case kindGate:
		return l.gate(at)
	case kindNone, kindOther:
	}
	d, err := l.run(arg)
	if errors.Is(err, record.ErrNoRecord) || errors.As(err, new(*policy.FieldError)) { // a path cannot be an ID
		rule := "is not a path, and not a run"
		if k == kindOther {
			rule = "is not a results file, a sweep or a gate directory"
		}
		return d, cli.WithHint(fmt.Errorf("report: %q %s", arg, rule), whatHint)
	}
	return d, err
}

// title is the name of a directory.
func title(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		return filepath.Base(whole)
	}
	return filepath.Base(dir)
}

// maxRunPoints bounds the points of each metric in the report of one run, maxBatchPoints in that of a
// batch.
const maxRunPoints, maxBatchPoints = 600, 150

func (l loader) run(handle string) (report.Document, error) {
	store, err := l.s.Store()
	if err != nil {
		return report.Document{}, err
	}
	each, err := store.Get(handle)
	if err != nil {
		return report.Document{}, err
	}
	run := report.Run{Record: each}
	if run.Curves, run.LeftCurves, err = report.Curves(metrics.Read(each.Dir), maxRunPoints); err != nil {
		return report.Document{}, cli.WithHint(err, "delete this file to get a report without the curves, or restore it")
	}
	return report.RunDocument(run), nil
}

// batch reads a results file, and the records of its runs as far as they are there.
func (l loader) batch(arg string) (b report.Batch, err error) {
	_, path := kindOf(arg)
	read, err := evaluate.ReadResults(path, evaluate.ReadOptions{})
	if err != nil {
		return b, err
	}
	if len(read.Results) == 0 {
		return b, cli.WithHint(fmt.Errorf("results %s: has no evaluations", path), "name another file, or wait until the first evaluation of the batch has ended")
	}
	b = report.Batch{Title: filepath.Base(path)}
	if read.Torn > 0 {
		b.Notes = append(b.Notes, fmt.Sprintf("Line %d of the file was cut and is left out.", read.Torn))
	}
	latest, replaced := evaluate.Latest(read.Results)
	if note := render.Replaced(replaced); note != "" {
		b.Notes = append(b.Notes, note+".")
	}
	if len(evaluate.Competitions(latest)) > 1 {
		b.Notes = append(b.Notes, "The evaluations are of several competitions, whose scores cannot be compared.")
	}
	b.Results = latest
	directions := map[evaluate.MetricDirection]bool{}
	for _, r := range latest {
		if r.MetricDirection != "" {
			directions[r.MetricDirection], b.Direction = true, r.MetricDirection
		}
	}
	if len(directions) != 1 {
		b.Direction = ""
		b.Notes = append(b.Notes, "The results do not say which scores are better: nothing is ranked.")
	}
	b.Runs, err = l.records(latest)
	return b, err
}

// maxWarnings bounds the records that are named because they cannot be read.
const maxWarnings = 5

// records reads the records of results. One that cannot be read is left out with a warning; a deleted
// one without.
func (l loader) records(results []evaluate.Result) (map[string]report.Run, error) {
	store, err := l.s.Store()
	if err != nil {
		return nil, err
	}
	runs := map[string]report.Run{}
	failed := map[string]error{}
	var lock sync.Mutex
	var group sync.WaitGroup
	ids := make(chan string)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for id := range ids {
				run, err := readRun(store, id)
				lock.Lock()
				if err != nil {
					failed[id] = err
				} else if run.Result != nil {
					runs[id] = run
				}
				lock.Unlock()
			}
		})
	}
	for _, r := range results {
		if r.Run != nil && r.Run.ID != "" && l.ctx.Err() == nil {
			ids <- r.Run.ID
		}
	}
	close(ids)
	group.Wait()
	maps.DeleteFunc(failed, func(_ string, err error) bool {
		return errors.Is(err, record.ErrNoRecord) || errors.Is(err, fs.ErrNotExist)
	})
	for i, id := range slices.Sorted(maps.Keys(failed)) {
		if i == maxWarnings {
			l.app.Warn("%s cannot be read either", text.Count(len(failed)-i, "further record"))
			break
		}
		l.app.Warn("the record of run %s cannot be read and is left out: %v", text.Brief(id), failed[id])
	}
	return runs, context.Cause(l.ctx)
}

// readRun reads the record of a run without its streams, which the results file has.
func readRun(store *record.Store, id string) (run report.Run, err error) {
	if run.Record, err = store.Load(id); err != nil || run.Result == nil {
		return run, err
	}
	run.Result.Stdout, run.Result.Stderr = "", ""
	run.Curves, run.LeftCurves, err = report.Curves(metrics.Read(run.Dir), maxBatchPoints)
	return run, err
}

// gate reads a gate directory, and checks it against its hashes.
func (l loader) gate(dir string) (report.Document, error) {
	const tail = 40 // lines
	verified, err := gate.Verify(l.ctx, dir, gate.VerifyOptions{})
	if err != nil {
		return report.Document{}, err
	}
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return report.Document{}, err
	}
	defer root.Close()
	g := report.Gate{Report: gate.Report{Dir: dir, Verdict: verified.Verdict}, Problems: verified.Problems, Tails: map[int][]string{}}
	var files evidence.Manifest
	for _, file := range []struct {
		name string
		into any
		must bool
	}{
		{evidence.RunManifestFile, &g.Manifest, true}, {evidence.TestsFile, &g.Tests, false}, {evidence.EnvSnapshotFile, &g.Environment, false}, {evidence.ManifestFile, &files, false},
	} {
		err := evidence.Read(root, file.name, evidence.MaxDocument, file.into)
		if err != nil && (file.must || !errors.Is(err, fs.ErrNotExist)) {
			return report.Document{}, cli.WithHint(fmt.Errorf("gate directory %q: %w", dir, err), "see what is wrong with it with: sandbox gate verify "+text.ShellWord(dir))
		}
	}
	g.Files, g.Signed = files.Files, isFile(filepath.Join(dir, evidence.AttestationFile))
	g.Times = g.Report.Times(l.ctx)
	for _, c := range g.Tests.Commands {
		if c.Started && !gatereport.Met(c) {
			// What cannot be read has no tail; Problems has the reason.
			g.Tails[c.Index], _ = g.Tail(c.Index, tail)
		}
	}
	return report.GateDocument(g), context.Cause(l.ctx)
}
