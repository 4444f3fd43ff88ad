package rung

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// roles are what files of a manifest may be for (RO-07).
var roles = []evidence.Role{
	evidence.RolePlan, evidence.RoleLog, evidence.RoleTest, evidence.RoleArtifact, evidence.RoleProof, evidence.RoleSnapshot,
}

// manifest compares the files with the hashes of the manifest.
func (r *verification) manifest() {
	o := r.object(manifestFile, "manifest")
	if o == nil {
		return
	}
	version, ok := as[string](o, "schema_version")
	switch {
	case !ok || version == "":
		r.fail("manifest_no_schema_version", "%s has no schema_version", manifestFile)
	case version != evidence.ManifestVersion:
		r.fail("manifest_schema_version_unknown", "%s has the schema_version %q; %q is known", manifestFile, version, evidence.ManifestVersion)
	}
	entries, ok := as[[]json.RawMessage](o, "files")
	if !ok || len(entries) == 0 {
		r.fail("manifest_no_files", "%s lists no files", manifestFile)
		return
	}
	seen := map[string]bool{}
	for i, raw := range entries {
		var f evidence.HashedFile
		if evidence.Decode(raw, &f) != nil || f.FilePath == "" || f.SHA256 == "" || f.Role == "" {
			r.fail("manifest_entry_incomplete", "%s: files[%d] must have file_path, sha256 and role", manifestFile, i)
			continue
		}
		if seen[f.FilePath] {
			r.fail("manifest_entry_twice_"+f.FilePath, "%s lists %q twice", manifestFile, f.FilePath)
			continue
		}
		seen[f.FilePath] = true
		if !slices.Contains(roles, f.Role) {
			r.fail("manifest_role_unknown", "%s: %q has the role %q", manifestFile, f.FilePath, f.Role)
		}
		r.file(f)
	}
}

func (r *verification) file(f evidence.HashedFile) {
	sum, err := hashFile(r.dir, f.FilePath)
	switch {
	case errors.Is(err, errOutside):
		r.fail("manifest_path_outside_root", "%s: %q %s", manifestFile, f.FilePath, err)
	case errors.Is(err, fs.ErrNotExist):
		r.fail("manifest_file_missing_"+f.FilePath, "%q of %s is missing", f.FilePath, manifestFile)
	case err != nil:
		r.fail("manifest_file_unreadable_"+f.FilePath, "%q of %s: %s", f.FilePath, manifestFile, err)
	case sum != f.SHA256:
		r.fail("manifest_sha256_mismatch_"+f.FilePath, "%q is not what was hashed", f.FilePath)
	}
}
