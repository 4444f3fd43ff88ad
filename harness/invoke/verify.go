package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
)

// ReportSchemaV1 names the wire form of [Report].
const ReportSchemaV1 = "evalbox/verification/v1"

// Report describes the artifacts of an output directory and their problems. The same files
// give the same report.
type Report struct {
	// Schema is always [ReportSchemaV1].
	Schema string `json:"schema"`
	// OK means that there is no problem.
	OK bool `json:"ok"`
	// Manifest are the fields of the manifest as they are written; nil if it is not valid.
	Manifest map[string]json.RawMessage `json:"manifest"`
	// Artifacts are the files that were read, each once: those of every tool, those of the
	// profile, those that the manifest lists.
	Artifacts []Artifact `json:"artifacts"`
	// Problems are the first 100; ProblemsDropped counts the rest.
	Problems        []*ArtifactError `json:"problems"`
	ProblemsDropped int              `json:"problems_dropped"`
}

// Artifact is one file.
type Artifact struct {
	// Path is relative to the output directory, with slashes.
	Path string `json:"path"`
	// Role is manifest, trace_pack, adapter_metadata, declared (in the profile) or listed
	// (in the manifest only).
	Role      Role   `json:"role"`
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256"`
	// Records counts those of a trace or another JSONL file; nil for other files.
	Records *int64 `json:"records"`
	// Listed means that the manifest lists the file, HashListed that it gives its hash,
	// which is the right one unless a problem says otherwise.
	Listed     bool `json:"listed"`
	HashListed bool `json:"hash_listed"`
}

// Role is the use of a file.
type Role string

// Roles of artifacts.
const (
	RoleManifest        Role = "manifest"
	RoleTracePack       Role = "trace_pack"
	RoleAdapterMetadata Role = "adapter_metadata"
	RoleDeclared        Role = "declared"
	RoleListed          Role = "listed"
)

const (
	// maxProblems bounds the problems of a report.
	maxProblems = 100
	// maxName bounds a name that a tool chose in a message, in bytes.
	maxName = 200
)

// VerifyOptions are the demands on artifacts.
type VerifyOptions struct {
	// Mode is for traces.
	Mode Mode
	// Profile declares further artifacts.
	Profile Profile
}

// Verify reads the artifacts of an output directory, checks them and hashes the bytes
// that it checked (M3-04, M3-07, M3-08). It needs no engine. It opens regular files only,
// never through a link, reads traces of any size line by line, and changes nothing.
// Problems of artifacts are in the report. The error is an [*ArtifactError] for a directory
// that cannot be read, or that of ctx.
func Verify(ctx context.Context, dir string, opts VerifyOptions) (Report, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Report{}, err
	}
	return verify(ctx, dir, opts, nil, []string{abs, OutputDir})
}

// verification is one look at a directory.
type verification struct {
	root *os.Root
	opts VerifyOptions
	// created has the SHA-256 of the files of the run; nil if all files count.
	created map[string]string
	// names are the absolute names that a manifest may give to the directory.
	names  []string
	report Report
	// at are the artifacts of the report by path. tried also has those with a problem,
	// and absent the optional ones that do not exist.
	at            map[string]int
	tried, absent map[string]bool
}

func verify(ctx context.Context, dir string, opts VerifyOptions, created map[string]string, names []string) (Report, error) {
	if err := opts.Profile.check(nil, "profile"); err != nil {
		return Report{}, err
	}
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		var other *fsx.NotDirectoryError
		if errors.As(err, &other) {
			return Report{}, artifactError(dir, 0, KindNotDirectory, "%s", other)
		}
		return Report{}, openError(dir, err)
	}
	defer root.Close()
	v := &verification{
		root: root, opts: opts, created: created, names: names, at: map[string]int{}, tried: map[string]bool{}, absent: map[string]bool{},
		report: Report{Schema: ReportSchemaV1, OK: true, Artifacts: []Artifact{}, Problems: []*ArtifactError{}},
	}
	if err := errors.Join(v.known(ctx), v.list(ctx)); err != nil {
		return Report{}, err
	}
	return v.report, nil
}

// problem adds a problem to the report. Any other error is returned.
func (v *verification) problem(err error) error {
	var problem *ArtifactError
	if !errors.As(err, &problem) {
		return err
	}
	v.add(problem)
	return nil
}

func (v *verification) add(problem *ArtifactError) {
	v.report.OK = false
	if len(v.report.Problems) == maxProblems {
		v.report.ProblemsDropped++
		return
	}
	v.report.Problems = append(v.report.Problems, problem)
}

// addAt adds a problem of a name that the tool chose.
func (v *verification) addAt(name string, kind Kind, format string, args ...any) {
	v.add(artifactError(text.Short(name, maxName), 0, kind, format, args...))
}

// known reads the artifacts of every tool and those of the profile.
func (v *verification) known(ctx context.Context) error {
	fields, err := v.document(ctx, ManifestName, RoleManifest, manifestFields, false)
	if err != nil {
		return err
	}
	v.report.Manifest = fields
	if err := v.records(ctx, TracePackName, RoleTracePack, false, func(text []byte, line int64) *ArtifactError {
		return checkRecord(text, TracePackName, line, v.opts.Mode)
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
				record, _, problem := parseObject(text, d.Path, line)
				if problem != nil {
					return problem
				}
				return requireFields(record, d.Keys, d.Path, line)
			})
		default:
			err = v.hash(ctx, d.Path, RoleDeclared, d.Optional, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list checks the artifacts that the manifest lists.
func (v *verification) list(ctx context.Context) error {
	if v.report.Manifest == nil {
		return nil
	}
	items := 0
	return eachListed(v.report.Manifest["artifacts"], func(item listed, problem *ArtifactError) error {
		if items++; items > maxListed {
			v.add(artifactError(ManifestName, 0, KindTooMany, "artifacts: more than %d are listed, and the rest is not looked at", maxListed))
			return errEnough
		}
		if problem != nil {
			v.add(problem)
			return nil
		}
		return v.listed(ctx, item)
	})
}

// listed checks one artifact that the manifest lists.
func (v *verification) listed(ctx context.Context, item listed) error {
	name, inside := insideName(item.path, v.names)
	if !inside {
		v.addAt(item.path, KindOutside, "is listed, and must be the path of a file below the output directory")
		return nil
	}
	if err := v.hash(ctx, name, RoleListed, false, nil); err != nil {
		return err
	}
	if v.absent[name] {
		delete(v.absent, name) // one problem for it is enough
		v.addAt(name, KindMissing, "is listed, but does not exist")
		return nil
	}
	i, read := v.at[name]
	if !read {
		return nil // the report has its problem
	}
	a := &v.report.Artifacts[i]
	a.Listed, a.HashListed = true, a.HashListed || item.sha256 != ""
	if item.sha256 != "" && item.sha256 != a.SHA256 {
		v.addAt(name, KindHashMismatch, "has the SHA-256 %s, and the manifest lists %s", a.SHA256, item.sha256)
	}
	return nil
}

// insideName is a listed path relative to the output directory, with slashes. An
// absolute one must lie in the directory, by one of its names.
func insideName(name string, dirs []string) (string, bool) {
	if strings.HasSuffix(name, "/") || strings.HasSuffix(name, "/.") {
		return "", false // a directory
	}
	for _, dir := range dirs {
		if rest, inside := strings.CutPrefix(name, filepath.ToSlash(dir)+"/"); inside {
			name = rest
			break
		}
	}
	name = path.Clean(name)
	if name == "." || path.IsAbs(name) || strings.ContainsRune(name, 0) || !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", false
	}
	return name, true
}

// open opens an artifact once. Nil means that there is none to read: it was read before, it
// is optional and does not exist, or the report has its problem.
func (v *verification) open(name string, optional bool) *os.File {
	if v.tried[name] {
		return nil
	}
	v.tried[name] = true
	file, _, err := fsx.OpenBelow(v.root, filepath.FromSlash(name))
	if err != nil {
		problem := openError(text.Short(name, maxName), err)
		if v.absent[name] = optional && problem.Kind == KindMissing; !v.absent[name] {
			v.add(problem)
		}
		return nil
	}
	if _, created := v.created[name]; v.created != nil && !created {
		v.addAt(name, KindStale, notOfThisRun)
		_ = file.Close() // was not read
		return nil
	}
	return file
}

// took adds an artifact to the report.
func (v *verification) took(a Artifact) {
	if sum := v.created[a.Path]; sum != "" && sum != a.SHA256 {
		v.addAt(a.Path, KindStale, "was changed by somebody else since the run")
	}
	v.at[a.Path] = len(v.report.Artifacts)
	v.report.Artifacts = append(v.report.Artifacts, a)
}

// document reads one JSON object; nil if it has a problem.
func (v *verification) document(ctx context.Context, name string, role Role, required []string, optional bool) (map[string]json.RawMessage, error) {
	file := v.open(name, optional)
	if file == nil {
		return nil, nil
	}
	defer file.Close()
	text, sum, err := readDocument(ctx, file, name)
	if err != nil {
		return nil, v.problem(err)
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: int64(len(text)), SHA256: sum})
	fields, problem := parseDocument(text, name, required)
	if problem != nil {
		v.add(problem)
	}
	return fields, nil
}

// records reads lines up to the first wrong one, and hashes all bytes.
func (v *verification) records(ctx context.Context, name string, role Role, optional bool, check func(text []byte, line int64) *ArtifactError) error {
	return v.hash(ctx, name, role, optional, func(read io.Reader) (int64, error) { return scanRecords(ctx, read, name, check, nil) })
}

// hash adds an artifact with the hash and the number of all its bytes. scan, unless it is
// nil, reads its records.
func (v *verification) hash(ctx context.Context, name string, role Role, optional bool, scan func(io.Reader) (int64, error)) error {
	file := v.open(name, optional)
	if file == nil {
		return nil
	}
	defer file.Close()
	a, sum := Artifact{Path: name, Role: role}, sha256.New()
	if scan != nil {
		records, err := scan(io.TeeReader(file, sum))
		if err := v.problem(err); err != nil {
			return err
		}
		a.Records = &records
	}
	_, err := io.Copy(sum, fsx.WithContext(ctx, file)) // the rest
	if err == nil {
		a.SizeBytes, err = file.Seek(0, io.SeekCurrent)
	}
	if err != nil {
		return v.problem(readError(ctx, name, err))
	}
	a.SHA256 = hex.EncodeToString(sum.Sum(nil))
	v.took(a)
	return nil
}
