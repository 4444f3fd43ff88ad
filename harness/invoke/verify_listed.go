package invoke

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
)

// maxListed bounds how many artifacts a manifest lists.
const maxListed = 100_000

// list checks what the manifest lists.
func (v *verification) list(ctx context.Context) error {
	if v.report.Manifest == nil {
		return nil
	}
	items := 0
	return eachListed(v.report.Manifest["artifacts"], func(item listed, problem *ArtifactError) error {
		if items++; items > maxListed {
			v.report.add(artifactError(ManifestName, 0, KindTooMany, "artifacts: more than %d are listed, and the rest is not looked at", maxListed))
			return errEnough
		}
		if problem != nil {
			v.report.add(problem)
			return nil
		}
		return v.listed(ctx, item)
	})
}

// listed checks one artifact that the manifest lists.
func (v *verification) listed(ctx context.Context, item listed) error {
	name, inside := insideName(item.path, v.names)
	if !inside {
		v.report.add(artifactError(text.Short(item.path, maxName), 0, KindOutside, "is listed, and must be the path of a file below the output directory"))
		return nil
	}
	if err := v.bytes(ctx, name, RoleListed, false); err != nil {
		return err
	}
	if v.absent[name] {
		delete(v.absent, name) // it is told
		v.report.add(artifactError(text.Short(name, maxName), 0, KindMissing, "is listed, but does not exist"))
		return nil
	}
	i, read := v.at[name]
	if !read {
		return nil // the problem is told
	}
	a := &v.report.Artifacts[i]
	a.Listed = true
	if item.sha256 == "" {
		return nil
	}
	a.HashListed = true
	if item.sha256 != a.SHA256 {
		v.report.add(artifactError(text.Short(name, maxName), 0, KindHashMismatch, "has the SHA-256 %s, and the manifest lists %s", a.SHA256, item.sha256))
	}
	return nil
}

// insideName is a listed path relative to the output directory, with slashes. An
// absolute one must lie in the directory, by one of its names.
func insideName(name string, dirs []string) (string, bool) {
	if strings.HasSuffix(name, "/") || strings.HasSuffix(name, "/.") {
		return "", false // a folder
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
