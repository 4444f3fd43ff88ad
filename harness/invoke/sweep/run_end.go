package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// RunSchemaV1 is the schema of the file that says how a run ended.
const RunSchemaV1 = "evalbox/sweep-run/v1"

// maxRunFile bounds it: it may name each artifact that a manifest lists.
const maxRunFile = 64 << 20

// runFile is how a run ended.
type runFile struct {
	Schema       string `json:"schema"`
	Status       Status `json:"status"`
	ManifestHash string `json:"manifest_hash,omitempty"`
	// Artifacts are the SHA-256 of what the run left, by path below the output folder.
	Artifacts map[string]string `json:"artifacts,omitempty"`
	ExitCode  *int              `json:"exit_code"`
	TimedOut  bool              `json:"timed_out"`
	Failure   string            `json:"failure,omitempty"`
}

// end writes down how a run ended, that of its end last.
func (f *folder) end(end End, outcome Outcome, artifacts map[string]string) error {
	dir := runFolder(end.Name)
	text, err := json.MarshalIndent(runFile{
		RunSchemaV1, end.Status, end.ManifestHash, artifacts, end.ExitCode, end.TimedOut, end.Failure,
	}, "", "  ")
	// No link is followed that a tool has put there, and no pipe is waited for.
	_, outErr := fsx.Create(f.root, filepath.Join(dir, StdoutName), strings.NewReader(outcome.Stdout), 0o644)
	_, errErr := fsx.Create(f.root, filepath.Join(dir, StderrName), strings.NewReader(outcome.Stderr), 0o644)
	if err = errors.Join(err, outErr, errErr); err == nil {
		err = fsx.WriteIn(f.root, filepath.Join(dir, RunName), append(text, '\n'), 0o644, true)
	}
	if err != nil {
		return fmt.Errorf("run %s: its end cannot be written down: %w", end.Name, err)
	}
	return nil
}

// takeAway deletes what a run put where its end is to be written, which a tool on the
// host can do, and names it; empty for nothing.
func (f *folder) takeAway(name string) (planted string, err error) {
	for _, file := range []string{StdoutName, StderrName, RunName} {
		at := filepath.Join(runFolder(name), file)
		_, lookErr := f.root.Lstat(at)
		if errors.Is(lookErr, fs.ErrNotExist) {
			continue
		}
		planted = file
		if lookErr == nil {
			lookErr = fsx.Remove(filepath.Join(f.path, at))
		}
		if lookErr != nil {
			return planted, fmt.Errorf("run %s: %s, which it made, cannot be deleted: %w", name, file, fsx.Cause(lookErr))
		}
	}
	return planted, nil
}
