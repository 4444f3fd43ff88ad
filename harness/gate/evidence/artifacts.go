package evidence

// Artifacts is artifacts.json (RT-13, RO-07).
type Artifacts struct {
	Artifacts []HashedFile `json:"artifacts"`
}

// ManifestVersion is the version of [Manifest] (RO-07).
const ManifestVersion = "1.0.0"

// Manifest is evidence.manifest: every file of nodes 1 to 4.
type Manifest struct {
	SchemaVersion string       `json:"schema_version"`
	Files         []HashedFile `json:"files"`
}

// HashedFile is one file of a gate directory, relative to it.
type HashedFile struct {
	FilePath string `json:"file_path"`
	SHA256   string `json:"sha256"`
	Role     Role   `json:"role"`
}

// Role says what a file is for (RO-07).
type Role string

// Roles of files.
const (
	RolePlan     Role = "plan"
	RoleLog      Role = "log"
	RoleTest     Role = "test"
	RoleArtifact Role = "artifact"
	RoleProof    Role = "proof"
	RoleSnapshot Role = "snapshot"
)

// Changes is changes.json: what differs between baseline and workspace, with the hashes
// before and after (RO-04). A file that was not there has an empty hash.
type Changes struct {
	Baseline string   `json:"baseline"`
	Files    []Change `json:"files"`
}

// Change is one file of [Changes].
type Change struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	After  string `json:"after"`
}
