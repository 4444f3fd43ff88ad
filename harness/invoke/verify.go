package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// VerifyOptions say what is demanded of artifacts.
type VerifyOptions struct {
	// Mode is about traces.
	Mode Mode
	// Profile declares further artifacts.
	Profile Profile
}

// Verify reads the artifacts of an output directory, checks them and hashes the bytes
// that it checked (M3-04, M3-07, M3-08). It opens regular files only, never through a
// link, reads traces of any size line by line, and changes nothing. What is wrong is in
// the report; the error means that the directory could not be read, or is that of ctx.
func Verify(ctx context.Context, dir string, opts VerifyOptions) (Report, error) {
	return verify(ctx, dir, opts, nil)
}

// Verify is [Verify] of the output directory of a run that ended well. In addition
// whatever the manifest lists must be of this run, not from before.
func (r RunResult) Verify(ctx context.Context, opts VerifyOptions) (Report, error) {
	if r.ManifestPath == "" {
		return Report{}, errors.New("invoke: the run left no manifest to verify")
	}
	return verify(ctx, filepath.Dir(r.ManifestPath), opts, r.unchanged)
}

// verification is one look at a directory.
type verification struct {
	dir    string
	root   *os.Root
	opts   VerifyOptions
	report Report
	// at are the artifacts of the report by path; tried also those that have a problem.
	at    map[string]int
	tried map[string]bool
}

func verify(ctx context.Context, dir string, opts VerifyOptions, stale map[string]bool) (Report, error) {
	if err := opts.Profile.check(nil, "profile"); err != nil {
		return Report{}, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Report{}, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return Report{}, openError(dir, err)
	}
	defer root.Close()
	v := &verification{
		dir: abs, root: root, opts: opts, at: map[string]int{}, tried: map[string]bool{},
		report: Report{Schema: ReportSchemaV1, OK: true, Artifacts: []Artifact{}, Problems: []*ArtifactError{}},
	}
	if err := errors.Join(v.known(ctx), v.list(ctx, stale)); err != nil {
		return Report{}, err
	}
	return v.report, nil
}

// known reads what every tool leaves, and what the profile declares.
func (v *verification) known(ctx context.Context) error {
	v.report.Manifest = nil
	fields, err := v.document(ctx, ManifestName, RoleManifest, manifestFields, false)
	if err != nil {
		return err
	}
	v.report.Manifest = fields
	mode := v.opts.Mode
	if err := v.records(ctx, TracePackName, RoleTracePack, false, func(text []byte, line int64) *ArtifactError {
		return checkRecord(text, TracePackName, line, mode)
	}); err != nil {
		return err
	}
	if _, err := v.document(ctx, AdapterMetadataName, RoleAdapterMetadata, nil, true); err != nil {
		return err
	}
	for _, d := range v.opts.Profile.Artifacts {
		switch d.Format {
		case FormatJSON:
			_, err = v.document(ctx, d.Path, RoleDeclared, d.Keys, d.Optional)
		case FormatJSONL:
			err = v.records(ctx, d.Path, RoleDeclared, d.Optional, func(text []byte, line int64) *ArtifactError {
				record, problem := parseObject(text, d.Path, line)
				if missing := without(record, d.Keys); problem == nil && len(missing) > 0 {
					return missingFields(d.Path, line, missing)
				}
				return problem
			})
		default:
			err = v.bytes(ctx, d.Path, RoleDeclared, d.Optional)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list checks what the manifest lists.
func (v *verification) list(ctx context.Context, stale map[string]bool) error {
	if v.report.Manifest == nil {
		return nil
	}
	items, problems := listedArtifacts(v.report.Manifest["artifacts"])
	v.report.add(problems...)
	for _, item := range items {
		name, inside := insideName(item.path, v.dir)
		if !inside {
			v.report.add(artifactError(shortened(item.path), 0, KindOutside, "is listed, and must be a path below the output directory"))
			continue
		}
		if stale[name] {
			v.report.add(artifactError(name, 0, KindStale, "is listed, but was there before the run, which did not change it"))
			continue
		}
		if err := v.bytes(ctx, name, RoleListed, false); err != nil {
			return err
		}
		i, read := v.at[name]
		if !read {
			continue // the problem is told
		}
		a := &v.report.Artifacts[i]
		a.Listed = true
		if item.sha256 == "" {
			continue
		}
		a.HashListed = true
		if item.sha256 != a.SHA256 {
			v.report.add(artifactError(name, 0, KindHashMismatch, "has the SHA-256 %s, and the manifest lists %s", a.SHA256, item.sha256))
		}
	}
	return nil
}

// open opens an artifact once. Nil without an error means that there is none to read:
// it was read before, or that there is none is told, or no problem.
func (v *verification) open(name string, optional bool) *os.File {
	if v.tried[name] {
		return nil
	}
	v.tried[name] = true
	file, problem := openIn(v.root, filepath.FromSlash(name))
	if problem != nil && !(optional && problem.Kind == KindMissing) {
		problem.Path = name
		v.report.add(problem)
	}
	return file
}

// took adds an artifact to the report.
func (v *verification) took(a Artifact) {
	v.at[a.Path] = len(v.report.Artifacts)
	v.report.Artifacts = append(v.report.Artifacts, a)
}

// document reads one JSON object; nil fields if it has a problem, which is told.
func (v *verification) document(ctx context.Context, name string, role Role, required []string, optional bool) (map[string]json.RawMessage, error) {
	file := v.open(name, optional)
	if file == nil {
		return nil, nil
	}
	defer file.Close()
	text, sum, err := readDocument(ctx, file, name)
	if err != nil {
		return nil, v.judge(err)
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: int64(len(text)), SHA256: sum})
	fields, problem := parseDocument(text, name, required)
	v.report.add(problem)
	return fields, nil
}

// records reads lines, and hashes all bytes whatever is wrong with one of them.
func (v *verification) records(ctx context.Context, name string, role Role, optional bool, check func(text []byte, line int64) *ArtifactError) error {
	file := v.open(name, optional)
	if file == nil {
		return nil
	}
	defer file.Close()
	sum := sha256.New()
	counted := &counter{w: sum}
	read := io.TeeReader(file, counted)
	records, err := scanRecords(ctx, read, name, check, nil)
	if err := v.judge(err); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, patient{ctx, read}); err != nil {
		return v.judge(readError(ctx, name, err))
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: counted.n, SHA256: sumText(sum), Records: &records})
	return nil
}

// bytes reads a file of which nothing is demanded.
func (v *verification) bytes(ctx context.Context, name string, role Role, optional bool) error {
	file := v.open(name, optional)
	if file == nil {
		return nil
	}
	defer file.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, patient{ctx, file})
	if err != nil {
		return v.judge(readError(ctx, name, err))
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: n, SHA256: sumText(sum)})
	return nil
}

// judge tells of an artifact's problem in the report, and returns any other error.
func (v *verification) judge(err error) error {
	var problem *ArtifactError
	if errors.As(err, &problem) {
		v.report.add(problem)
		return nil
	}
	return err
}

// counter counts what passes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

// shortened bounds a name that a tool chose.
func shortened(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}
