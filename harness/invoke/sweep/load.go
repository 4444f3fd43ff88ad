package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/fsx"
)

// Results is a sweep as its directory has it. Its Runs have no error.
type Results struct {
	Report

	// Config is what was swept over, and Complete says that the manifest was written.
	Config   Config
	Complete bool
	// Setup is what else the runs depend on, such as the command line.
	Setup map[string]string
	// Numbers are those of the manifest of each run, by name; nil for a run without one.
	Numbers []map[string]float64
}

// A FileError is a file of the directory of a sweep that cannot be read.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + fsx.Cause(e.Err).Error() }

func (e *FileError) Unwrap() error { return e.Err }

// Hint says how to go on.
func (e *FileError) Hint() string {
	return "restore the file, or give the sweep again with --resume, which runs again what is not as it was"
}

// Load reads the directory of a sweep, of which runs may be missing. It changes nothing. The error is
// a [*DirError], a [*FileError] or the cause of ctx.
func Load(ctx context.Context, dir string) (Results, error) {
	d, err := findDir(dir, true)
	if err != nil {
		return Results{}, err
	}
	if d.root == nil {
		return Results{}, &DirError{Path: d.path, Rule: "does not exist", hint: "name the directory of a sweep"}
	}
	defer d.root.Close()
	r := Results{}
	text, err := fsx.ReadIn(d.root, DefinitionName, maxDefinition)
	if errors.Is(err, fs.ErrNotExist) {
		return Results{}, &DirError{Path: d.path, Rule: notSweep, hint: "name the directory of a sweep"}
	}
	if err == nil {
		r.Config, r.Setup, err = readDefinition(text)
	}
	var plan Plan
	if err == nil {
		plan, err = NewPlan(r.Config, Spec{map[string]any{}})
	}
	if err != nil {
		return Results{}, &FileError{filepath.Join(dir, DefinitionName), err}
	}
	r.Report, r.Numbers = plan.Report(dir), make([]map[string]float64, plan.Len())
	at := map[string]int{}
	for i := range r.Runs {
		run := &r.Runs[i]
		at[run.Name] = i
		if err := context.Cause(ctx); err != nil {
			return Results{}, err
		}
		if err := d.readEnd(run); err != nil {
			return Results{}, &FileError{filepath.Join(dir, runDir(run.Name, RunName)), err}
		}
		if run.Status == StatusSucceeded {
			r.Numbers[i] = d.numbers(ctx, run.Name)
		}
	}
	r.Table = rows(r.Runs, func(run End) map[string]float64 { return r.Numbers[at[run.Name]] })
	if _, err := d.root.Lstat(ManifestName); err == nil {
		r.Complete, r.Manifest = true, Text(filepath.Join(dir, ManifestName))
	}
	return r, nil
}

// readDefinition reads what [Plan.definition] wrote.
func readDefinition(text []byte) (c Config, setup map[string]string, err error) {
	fields, err := readObject(text)
	if err != nil {
		return c, nil, err
	}
	if schema := fields["schema"]; schema != SchemaV1 {
		return c, nil, fmt.Errorf("schema is %s, want %q", shown(fmt.Sprint(schema)), SchemaV1)
	}
	var rest struct {
		Seeds   []invoke.Seed     `json:"seeds"`
		Adapter *string           `json:"adapter"`
		Setup   map[string]string `json:"setup"`
	}
	if err := json.Unmarshal(text, &rest); err != nil {
		return c, nil, fmt.Errorf("is not the definition of a sweep: %w", err)
	}
	axes, ok := fields["axes"].(map[string]any)
	if !ok {
		return c, nil, errors.New("axes must be an object")
	}
	for name, values := range axes {
		list, ok := values.([]any)
		if !ok {
			return c, nil, fmt.Errorf("the axis %s must be a list", shown(name))
		}
		c.Axes = append(c.Axes, Axis{name, list})
	}
	c.Seeds, c.Adapter = rest.Seeds, rest.Adapter
	slices.SortFunc(c.Axes, func(a, b Axis) int { return strings.Compare(a.Name, b.Name) })
	return c, rest.Setup, nil
}

// readEnd reads how a run ended.
func (d *sweepDir) readEnd(run *End) error {
	const most = 64 << 20 // it may name each artifact that a manifest lists
	text, err := fsx.ReadIn(d.root, runDir(run.Name, RunName), most)
	if errors.Is(err, fs.ErrNotExist) {
		run.Status = StatusMissing
		return nil
	}
	var r runFile
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	switch {
	case err != nil:
		return err
	case r.Schema != RunSchemaV1:
		return fmt.Errorf("schema is %s, want %q", shown(r.Schema), RunSchemaV1)
	case r.Status != StatusSucceeded && r.Status != StatusFailed:
		return fmt.Errorf("status is %s, want %q or %q", shown(string(r.Status)), StatusSucceeded, StatusFailed)
	}
	run.Status, run.ManifestHash, run.ExitCode, run.TimedOut, run.Failure = r.Status, Text(r.ManifestHash), r.ExitCode, r.TimedOut, Text(r.Failure)
	return nil
}
