package invoke

import (
	"encoding/json"
)

// ReportSchemaV1 names the wire form of [Report].
const ReportSchemaV1 = "evalbox/verification/v1"

// Report is what the artifacts of an output directory are, and what is wrong with them.
// The same files give the same report.
type Report struct {
	// Schema is always [ReportSchemaV1].
	Schema string `json:"schema"`
	// OK says that there is no problem.
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
	// Records counts those of a trace or another JSONL file; nil for what has none.
	Records *int64 `json:"records"`
	// Listed says that the manifest lists the file, HashListed that it gives its hash,
	// which is the right one unless a problem says otherwise.
	Listed     bool `json:"listed"`
	HashListed bool `json:"hash_listed"`
}

// Role is what a file is for.
type Role string

// Roles of artifacts.
const (
	RoleManifest        Role = "manifest"
	RoleTracePack       Role = "trace_pack"
	RoleAdapterMetadata Role = "adapter_metadata"
	RoleDeclared        Role = "declared"
	RoleListed          Role = "listed"
)

// maxProblems bounds what a report tells.
const maxProblems = 100

func (r *Report) add(problems ...*ArtifactError) {
	for _, p := range problems {
		if p == nil {
			continue
		}
		if len(r.Problems) == maxProblems {
			r.ProblemsDropped++
			continue
		}
		r.Problems = append(r.Problems, p)
	}
	r.OK = len(r.Problems) == 0
}
