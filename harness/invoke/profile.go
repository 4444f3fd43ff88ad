package invoke

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"
)

// ProfileSchemaV1 names the wire form of [Profile].
const ProfileSchemaV1 = "evalbox/artifacts/v1"

// Profile declares artifacts beside those that every tool leaves.
type Profile struct {
	Schema    string     `yaml:"schema"`
	Artifacts []Declared `yaml:"artifacts"`
}

// Declared is one artifact of a profile.
type Declared struct {
	// Path is relative to the output directory, with slashes.
	Path string `yaml:"path"`
	// Format is json (one object), jsonl (one object in each line), or bytes for any
	// content, which is the default.
	Format Format `yaml:"format"`
	// Keys are fields that each object must have.
	Keys []string `yaml:"keys"`
	// Optional artifacts may be missing.
	Optional bool `yaml:"optional"`
}

// Format is the format of a declared artifact.
type Format string

// Formats of artifacts.
const (
	FormatBytes Format = "bytes"
	FormatJSON  Format = "json"
	FormatJSONL Format = "jsonl"
)

// maxDeclared bounds a profile.
const maxDeclared = 1000

// ParseProfile reads a profile, YAML or JSON, strictly. Source is the name of the file
// in messages; the error joins every problem, with its line.
func ParseProfile(text []byte, source string) (Profile, error) {
	var p Profile
	lines := map[string]int{}
	problems := strict.Decode(text, &p, strict.Options{Schema: ProfileSchemaV1, Lines: lines})
	if len(problems) > 0 {
		return Profile{}, strict.Join(source, problems)
	}
	return p, p.check(lines, source)
}

// check reports all problems of a profile.
func (p Profile) check(lines map[string]int, source string) error {
	var errs []error
	seen := map[string]bool{ManifestName: true, TracePackName: true, AdapterMetadataName: true}
	if len(p.Artifacts) > maxDeclared {
		errs = append(errs, fmt.Errorf("%s: artifacts: has %d; at most %d", source, len(p.Artifacts), maxDeclared))
	}
	for i, d := range p.Artifacts {
		at := fmt.Sprintf("artifacts[%d]", i)
		report := func(field, value, rule string) {
			line := lines[at+"."+field]
			if line == 0 {
				line = lines[at]
			}
			errs = append(errs, errors.New(strict.Problem{Line: line, Path: at + "." + field, Value: value, Rule: rule}.At(source)))
		}
		switch {
		case d.Path == "" || !filepath.IsLocal(d.Path) || path.Clean(d.Path) != d.Path || d.Path == "." || strings.ContainsAny(d.Path, "\\\x00"):
			report("path", strict.Quoted(d.Path), "must be a path below the output directory, such as plots/loss.json")
		case seen[d.Path]:
			report("path", strict.Quoted(d.Path), "is declared already")
		}
		seen[d.Path] = true
		if d.Format != "" && !slices.Contains([]Format{FormatBytes, FormatJSON, FormatJSONL}, d.Format) {
			report("format", strict.Quoted(string(d.Format)), "must be one of bytes, json, jsonl")
		}
		if len(d.Keys) > 0 && d.Format != FormatJSON && d.Format != FormatJSONL {
			report("keys", "", "needs the format json or jsonl")
		}
		if slices.Contains(d.Keys, "") {
			report("keys", "", "must not be empty")
		}
	}
	return errors.Join(errs...)
}

// names are all artifacts that a run may make, those of every tool first.
func (p Profile) names() []string {
	all := []string{ManifestName, TracePackName, AdapterMetadataName}
	for _, d := range p.Artifacts {
		all = append(all, d.Path)
	}
	return all
}

// required are all artifacts that a run must make.
func (p Profile) required() []string {
	names := []string{ManifestName, TracePackName}
	for _, d := range p.Artifacts {
		if !d.Optional {
			names = append(names, d.Path)
		}
	}
	return names
}
