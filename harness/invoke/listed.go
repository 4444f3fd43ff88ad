package invoke

import (
	"bytes"
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// listed is one artifact that a manifest names.
type listed struct {
	// path is as the manifest has it.
	path string
	// sha256 is the hash that it gives, empty for none.
	sha256 string
}

var sha256Pattern = regexp.MustCompile(`^(?i:sha256:)?([0-9a-fA-F]{64})$`)

// listedArtifacts reads the field artifacts of a manifest: a list of paths, a list of
// objects with a path and maybe a hash, or an object from paths to hashes or objects. It
// is pure. What is none of these is a problem, since nothing of it can be checked.
func listedArtifacts(value json.RawMessage) (all []listed, problems []*ArtifactError) {
	invalid := func(kind Kind, format string, args ...any) {
		problems = append(problems, artifactError(ManifestName, 0, kind, format, args...))
	}
	add := func(name string, hash json.RawMessage) {
		item := listed{path: name}
		if hash != nil && string(hash) != "null" {
			var text string
			found := []string(nil)
			if json.Unmarshal(hash, &text) == nil {
				found = sha256Pattern.FindStringSubmatch(text)
			}
			if found == nil {
				invalid(KindHashInvalid, "artifacts: the hash of %.200q is no SHA-256", name)
				return
			}
			item.sha256 = strings.ToLower(found[1])
		}
		all = append(all, item)
	}
	object := func(name string, value json.RawMessage) {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(value, &fields) // it is an object
		for _, key := range []string{"path", "file_path", "file", "name"} {
			if name == "" {
				_ = json.Unmarshal(fields[key], &name)
			}
		}
		if name == "" {
			invalid(KindInvalidList, "artifacts: an entry names no path")
			return
		}
		hash := fields["sha256"]
		if hash == nil {
			hash = fields["hash"]
		}
		add(name, hash)
	}
	switch typeOf(value) {
	case "an array":
		var items []json.RawMessage
		_ = json.Unmarshal(value, &items)
		for _, item := range items {
			switch item = bytes.TrimSpace(item); typeOf(item) {
			case "a string":
				var name string
				_ = json.Unmarshal(item, &name)
				add(name, nil)
			case "an object":
				object("", item)
			default:
				invalid(KindInvalidList, "artifacts: an entry is %s, and must be a path or an object with one", typeOf(item))
			}
		}
	case "an object":
		var items map[string]json.RawMessage
		_ = json.Unmarshal(value, &items)
		for _, name := range sortedNames(items) {
			if item := items[name]; typeOf(item) == "an object" {
				object(name, item)
			} else {
				add(name, item)
			}
		}
	default:
		invalid(KindInvalidList, "artifacts is %s, and must be a list", typeOf(value))
	}
	return all, problems
}

func sortedNames(items map[string]json.RawMessage) []string {
	var names []string
	for name := range items {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// insideName is a listed path relative to the output directory, with slashes. An
// absolute one must lie in the directory, by its name here or by that in the sandbox.
func insideName(name, dir string) (string, bool) {
	for _, prefix := range []string{filepath.ToSlash(dir), OutputDir} {
		if rest, inside := strings.CutPrefix(name, prefix+"/"); inside {
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
