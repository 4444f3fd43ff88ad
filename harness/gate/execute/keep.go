package execute

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/result"
)

// keep writes what a run left into the evidence. It is not canceled: everything it
// copies is bounded, and what was run is to be known.
func (x *run) keep(s *set, g evidence.Gate, id string, res result.Result) error {
	if err := x.root.MkdirAll(evidence.SetDir(s.name), 0o755); err != nil {
		return fmt.Errorf("gate directory: %w", err)
	}
	file := func(name string) string { return evidence.RawFile(s.name, g.Index, name) }
	record := x.o.Store.RecordDir(id)
	limit := logBytes(x.m.TimeoutCaps)
	stdout, err1 := x.copyLog(filepath.Join(record, "stdout.log"), file("stdout.log"), limit)
	stderr, err2 := x.copyLog(filepath.Join(record, "stderr.log"), file("stderr.log"), limit)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	outputs, err := x.keepOutputs(s, g, id, res)
	if err != nil {
		return err
	}
	if err := evidence.Write(x.root, file("outputs.json"), outputs); err != nil {
		return err
	}
	// The streams are the files beside it; cut is what those do not have.
	res.Stdout, res.Stderr = "", ""
	res.StdoutTruncated = stdout < res.StdoutBytes
	res.StderrTruncated = stderr < res.StderrBytes
	text, err := res.Encode()
	if err != nil {
		return err
	}
	if err := x.root.WriteFile(file("result.json"), text, 0o644); err != nil {
		return fmt.Errorf("gate directory: %w", err)
	}
	return nil
}

// copyLog copies at most limit bytes of a stream's record. A run that never started has
// none.
func (x *run) copyLog(from, to string, limit int64) (n int64, err error) {
	in, err := fsx.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, x.root.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return 0, fmt.Errorf("record of the run: %w", err)
	}
	defer in.Close()
	return x.copyFile(in, to, limit)
}

// copyFile writes a new file of the gate directory.
func (x *run) copyFile(from io.Reader, to string, limit int64) (n int64, err error) {
	n, err = fsx.Create(x.root, to, io.LimitReader(from, limit), 0o644)
	if err != nil {
		return n, fmt.Errorf("gate directory: %s: %w", to, err)
	}
	return n, nil
}

// discard removes the record of a run: what is of use is in the evidence.
func (x *run) discard(id string) error {
	if x.o.Keep {
		return nil
	}
	if err := x.o.Store.Remove(id); err != nil && !errors.Is(err, record.ErrNoRecord) {
		return fmt.Errorf("removing the record of run %s: %w", id, err)
	}
	return nil
}
