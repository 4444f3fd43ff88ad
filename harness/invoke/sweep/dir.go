package sweep

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"
)

// The names in the directory of a sweep, and in the directory of a run.
const (
	// ManifestName is the file that a sweep ends with.
	ManifestName = "sweep_manifest.json"
	// DefinitionName is the file that defines the sweep.
	DefinitionName = "sweep.json"
	// RunsName holds the directories of the runs.
	RunsName = "runs"
	// SpecName is the spec of a run, OutputName the directory that its tool fills.
	SpecName, OutputName = "spec.json", "output"
	// RunName says how a run ended; a run without it has not ended.
	RunName = "run.json"
	// StdoutName and StderrName are the output of the tool.
	StdoutName, StderrName = "stdout.log", "stderr.log"
)

// A DirError is a directory that a sweep cannot use.
type DirError struct {
	Path, Rule string
	// Err is the cause, if there is one.
	Err  error
	hint string
}

func (e *DirError) Error() string {
	text := "sweep directory " + strconv.Quote(e.Path) + ": " + e.Rule
	if e.Err != nil && !errors.Is(e.Err, sandbox.ErrBusy) && !errors.Is(e.Err, fs.ErrExist) {
		text += ": " + fsx.Cause(e.Err).Error()
	}
	return text
}

func (e *DirError) Unwrap() error { return e.Err }

// Hint says how to go on.
func (e *DirError) Hint() string { return cmp.Or(e.hint, "choose another directory with --output") }

// maxDefinition bounds a definition, which has every value and seed, in bytes.
const maxDefinition = 64 << 20

const notSweep = "is not that of a sweep, which has " + DefinitionName

// sweepDir is the directory of a sweep, open and locked.
type sweepDir struct {
	path string // absolute
	root *os.Root
	lock io.Closer
}

// openDir creates the directory of a sweep, which must not exist (MI-10), or opens that of
// the same definition. begun means that it may hold runs.
func openDir(dir string, definition []byte, resume bool) (d *sweepDir, begun bool, err error) {
	d, err = findDir(dir, resume)
	if err != nil {
		return nil, false, err
	}
	if d.root == nil {
		err := os.MkdirAll(filepath.Dir(d.path), 0o755)
		if err == nil {
			err = os.Mkdir(d.path, 0o755)
		}
		if err == nil {
			d.root, err = os.OpenRoot(d.path)
		}
		if err != nil {
			return nil, false, d.cannot("be created", err)
		}
	}
	d.lock, err = fsx.Lock(d.root)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		err = &DirError{Path: d.path, Rule: "is in use by another sweep", Err: sandbox.ErrBusy, hint: "wait for its end"}
	case err != nil:
		err = d.cannot("be locked", err)
	default:
		begun, err = d.recognize(definition)
	}
	if err == nil {
		err = d.cannot("be written", d.prepare(definition, begun))
	}
	if err != nil {
		return nil, false, errors.Join(err, d.close())
	}
	return d, begun, nil
}

// findDir opens a directory, or returns one without a root if it does not exist. Nothing is
// changed.
func findDir(dir string, resume bool) (*sweepDir, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Lstat(path)
	}
	d := &sweepDir{path: path}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d, nil
	case err != nil:
		return nil, d.cannot("be looked at", err)
	case !resume:
		return nil, &DirError{Path: path, Rule: "exists already", Err: fs.ErrExist,
			hint: "choose another directory with --output"}
	}
	if d.root, err = fsx.OpenRoot(path); err != nil {
		return nil, &DirError{Path: path, Rule: notSweep, Err: err}
	}
	return d, nil
}

// prepare writes the definition, unless it is there, and creates the directory of the runs.
func (d *sweepDir) prepare(definition []byte, begun bool) error {
	if !begun {
		if err := fsx.WriteIn(d.root, DefinitionName, definition, 0o644, true); err != nil {
			return err
		}
	}
	err := d.root.Mkdir(RunsName, 0o755)
	switch {
	case !errors.Is(err, fs.ErrExist):
		return err
	case !d.isDir(RunsName):
		return errors.New(RunsName + " is not a directory")
	}
	return nil
}

// cannot is the error of a directory with which something cannot be done; nil for none.
func (d *sweepDir) cannot(rule string, err error) error {
	if err == nil {
		return nil
	}
	return &DirError{Path: d.path, Rule: "cannot " + rule, Err: err}
}

func (d *sweepDir) close() error {
	err := d.root.Close()
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// recognize reports whether the directory is that of the sweep of a definition. An empty
// directory is not yet; any other one is refused.
func (d *sweepDir) recognize(definition []byte) (begun bool, err error) {
	there, err := fsx.ReadIn(d.root, DefinitionName, maxDefinition)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.isNew():
		return false, nil
	case err != nil:
		return false, &DirError{Path: d.path, Rule: notSweep, Err: err}
	case bytes.Equal(there, definition):
		return true, nil
	}
	return false, &DirError{Path: d.path, Rule: "is of another sweep: " + differences(there, definition),
		hint: "give the same command again, or choose another directory with --output"}
}

// isNew reports whether the directory holds no more than a crash leaves there while the
// definition is written: a part of it under another name.
func (d *sweepDir) isNew() bool {
	return fsx.ReadDir(context.Background(), d.root, ".", func(name string) error {
		if !strings.HasPrefix(name, DefinitionName) {
			return fs.ErrExist
		}
		return nil
	}) == nil
}

func (d *sweepDir) isDir(name string) bool {
	info, err := d.root.Lstat(name)
	return err == nil && info.IsDir()
}

// RunSchemaV1 is the schema of the file that says how a run ended.
const RunSchemaV1 = "evalbox/sweep-run/v1"

// runFile says how a run ended.
type runFile struct {
	Schema       string `json:"schema"`
	Status       Status `json:"status"`
	ManifestHash string `json:"manifest_hash,omitempty"`
	// Artifacts are the SHA-256 of the artifacts of a run that succeeded, by their paths
	// below the output directory.
	Artifacts map[string]string `json:"artifacts,omitempty"`
	ExitCode  *int              `json:"exit_code"`
	TimedOut  bool              `json:"timed_out"`
	Failure   string            `json:"failure,omitempty"`
}

// runDir is the name of the directory of a run, or of something in it.
func runDir(run string, names ...string) string {
	return filepath.Join(append([]string{RunsName, run}, names...)...)
}

// begin creates the directory of a run with its spec. own says that the sweep made an earlier one,
// which is deleted first.
func (d *sweepDir) begin(run string, spec []byte, own bool) error {
	if own {
		if err := fsx.Remove(filepath.Join(d.path, runDir(run))); err != nil {
			return fmt.Errorf("run %s: its former directory cannot be deleted: %w", run, err)
		}
	}
	for _, name := range []string{runDir(run), runDir(run, OutputName)} {
		if err := d.root.Mkdir(name, 0o755); err != nil {
			return fmt.Errorf("run %s: its directory cannot be created: %w", run, err)
		}
	}
	if _, err := fsx.Create(d.root, runDir(run, SpecName), bytes.NewReader(spec), 0o644); err != nil {
		return fmt.Errorf("run %s: its spec cannot be written: %w", run, err)
	}
	return nil
}

// end records how a run ended; run.json comes last.
func (d *sweepDir) end(run string, r runFile, stdout, stderr string) error {
	r.Schema = RunSchemaV1
	text, err := json.MarshalIndent(r, "", "  ")
	_, outErr := fsx.Create(d.root, runDir(run, StdoutName), strings.NewReader(stdout), 0o644)
	_, errErr := fsx.Create(d.root, runDir(run, StderrName), strings.NewReader(stderr), 0o644)
	if err = errors.Join(err, outErr, errErr); err == nil {
		err = fsx.WriteIn(d.root, runDir(run, RunName), append(text, '\n'), 0o644, true)
	}
	if err != nil {
		return fmt.Errorf("run %s: its end cannot be written: %w", run, err)
	}
	return nil
}

// known returns how a run ended that need not run again: it succeeded, its spec is the
// same, its artifacts are as they were, and they meet the demands of now. The error
// means that this could not be found out, or is that of ctx.
func (d *sweepDir) known(ctx context.Context, run string, spec []byte, demands invoke.VerifyOptions) (r runFile, known bool, err error) {
	if r, known = d.succeeded(run, spec); !known {
		return r, false, nil
	}
	report, err := invoke.Verify(ctx, filepath.Join(d.path, runDir(run, OutputName)), demands)
	if err != nil {
		return r, false, fmt.Errorf("run %s: its artifacts cannot be checked: %w", run, err)
	}
	now := map[string]string{}
	for _, a := range report.Artifacts {
		now[a.Path] = a.SHA256
	}
	known = report.OK && now[invoke.ManifestName] == r.ManifestHash
	for name, want := range r.Artifacts {
		got, read := now[name]
		if known && !read { // it is not demanded any more
			got = d.hash(ctx, runDir(run, OutputName), name)
		}
		known = known && got == want
	}
	return r, known, context.Cause(ctx)
}

// succeeded returns how a run of this spec ended, and whether it succeeded.
func (d *sweepDir) succeeded(run string, spec []byte) (r runFile, ok bool) {
	const most = 64 << 20 // it may name each artifact that a manifest lists
	text, err := fsx.ReadIn(d.root, runDir(run, RunName), most)
	if err != nil || json.Unmarshal(text, &r) != nil || r.Schema != RunSchemaV1 || r.Status != StatusSucceeded {
		return r, false
	}
	was, err := fsx.ReadIn(d.root, runDir(run, SpecName), int64(len(spec)))
	return r, err == nil && bytes.Equal(was, spec) && d.isDir(runDir(run)) && d.isDir(runDir(run, OutputName))
}

// hash is the SHA-256 of a regular file below a directory; empty if it cannot be read.
func (d *sweepDir) hash(ctx context.Context, dir, name string) string {
	if name = filepath.FromSlash(name); !filepath.IsLocal(name) {
		return ""
	}
	file, info, err := fsx.OpenBelow(d.root, filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer file.Close()
	sum, _ := fsx.Sum(ctx, sha256.New(), file, info) // an error has no hash
	return sum
}
