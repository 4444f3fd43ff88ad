package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evalbox/evalbox/internal/strict"
)

// profilesSchema is the version of profile files that [ParseProfiles] reads.
const profilesSchema = "evalbox/profiles/v1"

// A Range is the default of one limit, and its inclusive bounds.
type Range struct{ Default, Min, Max int64 }

// Has reports whether a value is within the bounds.
func (r Range) Has(value int64) bool { return r.Min <= value && value <= r.Max }

// A Profile is a set of limits for contracts: a default and bounds for each. A value out of
// bounds is refused, never clamped (resolution 6).
type Profile struct {
	// Description says in a sentence what the profile is for.
	Description string
	// TimeoutMS is in milliseconds, MemoryMB in MiB, CPUCores in processors,
	// MaxChildren in processes and threads beside the program itself (CX-02).
	TimeoutMS, MemoryMB, CPUCores, MaxChildren Range
	// Bounds of the captured outputs, in bytes (CX-05).
	StdoutBytes, StderrBytes, OutputFilesBytes, ArtifactsBytes Range
}

// Profiles are profiles by their names.
type Profiles map[string]Profile

// profilesDocument is the wire form of a profile file.
type profilesDocument struct {
	Schema   string                 `yaml:"schema"`
	Profiles map[string]profileWire `yaml:"profiles"`
}

type profileWire struct {
	Description      string     `yaml:"description"`
	TimeoutMS        *rangeWire `yaml:"timeout_ms"`
	MemoryMB         *rangeWire `yaml:"memory_mb"`
	CPUCores         *rangeWire `yaml:"cpu_cores"`
	MaxChildren      *rangeWire `yaml:"max_children"`
	StdoutBytes      *rangeWire `yaml:"stdout_bytes"`
	StderrBytes      *rangeWire `yaml:"stderr_bytes"`
	OutputFilesBytes *rangeWire `yaml:"output_files_bytes"`
	ArtifactsBytes   *rangeWire `yaml:"artifacts_bytes"`
}

type rangeWire struct {
	Default *int64 `yaml:"default"`
	Min     *int64 `yaml:"min"`
	Max     *int64 `yaml:"max"`
}

// maxCapture bounds one kind of output of every profile.
const maxCapture = 1 << 40

// maxCaptureText bounds a captured stream of every profile, which is held in memory.
const maxCaptureText = 1 << 30

// ParseProfiles reads a profile file. Source is its name in messages. The format is
// strict: each limit has a default and bounds, and the default lies within them. The
// error joins every problem, with its line.
func ParseProfiles(text []byte, source string) (Profiles, error) {
	var doc profilesDocument
	lines := map[string]int{}
	problems := strict.Decode(text, &doc, strict.Options{Schema: profilesSchema, Lines: lines})
	if len(problems) > 0 {
		return nil, strict.Join(source, problems)
	}
	profiles := Profiles{}
	var errs []error
	report := func(path, rule string) {
		errs = append(errs, errors.New(strict.Problem{Line: lines[path], Path: path, Rule: rule}.At(source)))
	}
	if len(doc.Profiles) == 0 {
		report("profiles", "must have at least one profile")
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Profiles)) {
		path := "profiles." + name
		if err := CheckName("name", name); err != nil {
			report("profiles", err.Error())
			continue
		}
		wire, p := doc.Profiles[name], Profile{}
		p.Description = wire.Description
		if p.Description == "" {
			report(path, "must have a description")
		}
		for _, limit := range []struct {
			key       string
			from      *rangeWire
			to        *Range
			low, high int64
		}{
			{"timeout_ms", wire.TimeoutMS, &p.TimeoutMS, 1, maxTimeout.Milliseconds()},
			{"memory_mb", wire.MemoryMB, &p.MemoryMB, int64(minMemory / MiB), 1 << 30},
			{"cpu_cores", wire.CPUCores, &p.CPUCores, 1, 4096},
			{"max_children", wire.MaxChildren, &p.MaxChildren, 0, 4 << 20},
			{"stdout_bytes", wire.StdoutBytes, &p.StdoutBytes, 0, maxCaptureText},
			{"stderr_bytes", wire.StderrBytes, &p.StderrBytes, 0, maxCaptureText},
			{"output_files_bytes", wire.OutputFilesBytes, &p.OutputFilesBytes, 0, maxCapture},
			{"artifacts_bytes", wire.ArtifactsBytes, &p.ArtifactsBytes, 0, maxCapture},
		} {
			at := path + "." + limit.key
			if limit.from == nil {
				report(path, "must have "+limit.key)
				continue
			}
			if rule := limit.from.read(limit.to, limit.low, limit.high); rule != "" {
				report(at, rule)
			}
		}
		profiles[name] = p
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return profiles, nil
}

// read sets a range, or returns the rule that it breaks.
func (w rangeWire) read(to *Range, low, high int64) string {
	if w.Default == nil || w.Min == nil || w.Max == nil {
		return "must have default, min and max"
	}
	*to = Range{*w.Default, *w.Min, *w.Max}
	switch {
	case to.Min < low || to.Max > high:
		return fmt.Sprintf("must be between %d and %d", low, high)
	case to.Min > to.Max:
		return fmt.Sprintf("has a min of %d above its max of %d", to.Min, to.Max)
	case !to.Has(to.Default):
		return fmt.Sprintf("has a default of %d outside of %d to %d", to.Default, to.Min, to.Max)
	}
	return ""
}
