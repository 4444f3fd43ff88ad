package sweep

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
	"github.com/moby/sys/atomicwriter"

	"github.com/evalbox/evalbox/internal/hostfile"
	"github.com/evalbox/evalbox/internal/hosttree"
	"github.com/evalbox/evalbox/sandbox"
)

// The names in the folder of a sweep, and in that of a run.
const (
	// ManifestName is the file that a sweep ends with.
	ManifestName = "sweep_manifest.json"
	// DefinitionName is the file that says what the sweep is.
	DefinitionName = "sweep.json"
	// RunsName is the folder of the folders of the runs.
	RunsName = "runs"
	// SpecName is the spec of a run, OutputName the folder that its tool fills.
	SpecName, OutputName = "spec.json", "output"
	// RunName says how a run ended; a run without it has not ended.
	RunName = "run.json"
	// StdoutName and StderrName are what the tool printed.
	StdoutName, StderrName = "stdout.log", "stderr.log"
	// toolManifest is the artifact whose hash the sweep's manifest has.
	toolManifest = "manifest.json"
)

// A FolderError is a folder that a sweep cannot use.
type FolderError struct {
	Path, Rule string
	// Err is the cause, if there is one.
	Err  error
	hint string
}

func (e *FolderError) Error() string {
	if e.Err != nil && !errors.Is(e.Err, sandbox.ErrBusy) && !errors.Is(e.Err, fs.ErrExist) {
		return "sweep folder " + strconv.Quote(e.Path) + ": " + e.Rule + ": " + cause(e.Err).Error()
	}
	return "sweep folder " + strconv.Quote(e.Path) + ": " + e.Rule
}

func (e *FolderError) Unwrap() error { return e.Err }

// Hint says how to get out of the way.
func (e *FolderError) Hint() string {
	if e.hint == "" {
		return "choose another folder with --output"
	}
	return e.hint
}

// folder is the folder of a sweep, open and locked.
type folder struct {
	path string // absolute
	root *os.Root
	lock *flock.Flock
}

// openFolder makes the folder of a sweep, which must not exist (MI-10), or, to go on,
// opens the one of the same definition. resumed says that it was there.
func openFolder(dir string, definition []byte, resume bool) (f *folder, resumed bool, err error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, false, &FolderError{Path: dir, Rule: "has no absolute name", Err: err}
	}
	if _, err := os.Lstat(path); resume && err == nil {
		f, err = resumeFolder(path, definition)
		return f, true, err
	}
	f, err = createFolder(path, definition)
	return f, false, err
}

func createFolder(path string, definition []byte) (*folder, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, &FolderError{Path: path, Rule: "cannot be made", Err: err}
	}
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil, &FolderError{Path: path, Rule: "exists already", Err: err,
			hint: "go on with the sweep that is there with --resume, or choose another folder with --output"}
	}
	if err != nil {
		return nil, &FolderError{Path: path, Rule: "cannot be made", Err: err}
	}
	if err := atomicwriter.WriteFile(filepath.Join(path, DefinitionName), definition, 0o644); err != nil {
		return nil, errors.Join(&FolderError{Path: path, Rule: "cannot be written", Err: err}, os.Remove(path))
	}
	return lockFolder(path)
}

// maxDefinition bounds the file that says what a sweep is, which has every value and seed.
const maxDefinition = 64 << 20

func resumeFolder(path string, definition []byte) (*folder, error) {
	text, err := hostfile.Read(filepath.Join(path, DefinitionName), maxDefinition)
	if err != nil {
		return nil, &FolderError{Path: path, Rule: "is not that of a sweep, which has " + DefinitionName, Err: err}
	}
	if !bytes.Equal(text, definition) {
		return nil, &FolderError{Path: path, Rule: "is of another sweep: " + differences(text, definition),
			hint: "give the same command again, or choose another folder with --output"}
	}
	return lockFolder(path)
}

// differences names what differs between two definitions.
func differences(there, wanted []byte) string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(there, &a) != nil || json.Unmarshal(wanted, &b) != nil {
		return DefinitionName + " is not as it was written"
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(a[name], b[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return DefinitionName + " is not as it was written"
	}
	return strings.Join(names, ", ") + " differ"
}

// lockFolder takes the folder for this process.
func lockFolder(path string) (*folder, error) {
	lock := flock.New(filepath.Join(path, DefinitionName))
	got, err := lock.TryLock()
	if err == nil && !got {
		return nil, &FolderError{Path: path, Rule: "is in use by another sweep", Err: sandbox.ErrBusy, hint: "wait for its end"}
	}
	if err != nil {
		return nil, &FolderError{Path: path, Rule: "cannot be locked", Err: err}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errors.Join(&FolderError{Path: path, Rule: "cannot be opened", Err: err}, lock.Close())
	}
	f := &folder{path, root, lock}
	if err := f.makeRuns(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// makeRuns makes the folder of the runs, unless it is there and ours.
func (f *folder) makeRuns() error {
	if err := f.root.Mkdir(RunsName, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return &FolderError{Path: f.path, Rule: "cannot be written", Err: err}
	}
	ours, err := Inside(f.path, filepath.Join(f.path, RunsName))
	if err != nil || !ours {
		return &FolderError{Path: f.path, Rule: RunsName + " leads out of it", Err: err}
	}
	return nil
}

func (f *folder) close() error { return errors.Join(f.root.Close(), f.lock.Close()) }

// runFolder is the name of the folder of a run, below the root.
func runFolder(name string) string { return filepath.Join(RunsName, name) }

// begin makes the folder of a run, whose former one is deleted on request, with its spec.
func (f *folder) begin(name string, spec []byte, again bool) (Job, error) {
	dir := runFolder(name)
	if again {
		if err := hosttree.Remove(filepath.Join(f.path, dir)); err != nil {
			return Job{}, fmt.Errorf("run %s: its former folder cannot be deleted: %w", name, err)
		}
	}
	if err := f.root.Mkdir(dir, 0o755); err != nil {
		return Job{}, fmt.Errorf("run %s: its folder cannot be made: %w", name, err)
	}
	if err := f.root.Mkdir(filepath.Join(dir, OutputName), 0o755); err != nil {
		return Job{}, fmt.Errorf("run %s: its folder cannot be made: %w", name, err)
	}
	if err := f.root.WriteFile(filepath.Join(dir, SpecName), spec, 0o644); err != nil {
		return Job{}, fmt.Errorf("run %s: its spec cannot be written: %w", name, err)
	}
	return Job{
		Name: name, Config: filepath.Join(f.path, dir, SpecName), OutputDir: filepath.Join(f.path, dir, OutputName),
	}, nil
}

// RunSchemaV1 is the schema of the file that says how a run ended.
const RunSchemaV1 = "evalbox/sweep-run/v1"

// maxRunFile bounds it.
const maxRunFile = 1 << 20

// runFile is how a run ended.
type runFile struct {
	Schema       string `json:"schema"`
	Status       Status `json:"status"`
	ManifestHash string `json:"manifest_hash,omitempty"`
	ExitCode     *int   `json:"exit_code"`
	TimedOut     bool   `json:"timed_out"`
	Failure      string `json:"failure,omitempty"`
}

// end writes down how a run ended, that of its end last.
func (f *folder) end(end End, outcome Outcome) error {
	dir := runFolder(end.Name)
	text, err := json.MarshalIndent(runFile{RunSchemaV1, end.Status, end.ManifestHash, end.ExitCode, end.TimedOut, end.Failure}, "", "  ")
	err = errors.Join(err,
		f.root.WriteFile(filepath.Join(dir, StdoutName), []byte(outcome.Stdout), 0o644),
		f.root.WriteFile(filepath.Join(dir, StderrName), []byte(outcome.Stderr), 0o644))
	if err == nil {
		err = atomicwriter.WriteFile(filepath.Join(f.path, dir, RunName), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("run %s: its end cannot be written down: %w", end.Name, err)
	}
	return nil
}

// known is how a run ended that needs not be done again: it succeeded, its spec is the
// same, and so is what it wrote as its manifest.
func (f *folder) known(name string, spec []byte) (runFile, bool) {
	dir := runFolder(name)
	text, err := f.read(filepath.Join(dir, RunName), maxRunFile)
	var r runFile
	if err != nil || json.Unmarshal(text, &r) != nil || r.Schema != RunSchemaV1 || r.Status != StatusSucceeded || !f.hasSpec(name, spec) {
		return runFile{}, false
	}
	hash, err := f.manifestHash(name)
	return r, err == nil && hash == r.ManifestHash
}

// hasSpec says that the spec of a run is what was written there.
func (f *folder) hasSpec(name string, spec []byte) bool {
	text, err := f.read(filepath.Join(runFolder(name), SpecName), int64(len(spec)))
	return err == nil && bytes.Equal(text, spec)
}

// read reads a regular file of at most limit bytes.
func (f *folder) read(name string, limit int64) ([]byte, error) {
	file, info, err := hostfile.OpenIn(f.root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// manifestHash is the SHA-256 of what a run wrote as its manifest, 64 hexadecimal digits.
func (f *folder) manifestHash(name string) (string, error) {
	output := filepath.Join(runFolder(name), OutputName)
	info, err := f.root.Lstat(output)
	if err == nil && !info.IsDir() {
		err = errors.New(OutputName + " is " + hostfile.Kind(info.Mode()))
	}
	if err != nil {
		return "", err
	}
	file, _, err := hostfile.OpenIn(f.root, filepath.Join(output, toolManifest))
	if err != nil {
		return "", fmt.Errorf("%s: %w", toolManifest, cause(err))
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("%s: %w", toolManifest, cause(err))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// forgetManifest takes away the manifest of what is not the case any more.
func (f *folder) forgetManifest() error {
	if err := f.root.Remove(ManifestName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &FolderError{Path: f.path, Rule: "its former manifest cannot be deleted", Err: err}
	}
	return nil
}

func (f *folder) writeManifest(text []byte) (string, error) {
	path := filepath.Join(f.path, ManifestName)
	if err := atomicwriter.WriteFile(path, text, 0o644); err != nil {
		return "", &FolderError{Path: f.path, Rule: "its manifest cannot be written", Err: err}
	}
	return path, nil
}
