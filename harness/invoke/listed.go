package invoke

import (
	"encoding/json"
	"errors"
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

// errEnough ends the reading of a list.
var errEnough = errors.New("enough")

// eachListed reads the field artifacts of a manifest: a list of paths, a list of objects
// with a path and maybe a hash, or an object from paths to hashes or objects. It calls
// each with every entry, or with what is wrong with it, one at a time, and so holds one
// whatever their number is. An error of each ends it, errEnough without being told.
func eachListed(value json.RawMessage, each func(listed, *ArtifactError) error) error {
	var err error
	switch typeOf(value) {
	case "an array":
		err = eachItem(value, func(item json.RawMessage) error { return each(listedItem(item)) })
	case "an object":
		err = eachField(value, func(name string, item json.RawMessage) error {
			if typeOf(item) == "an object" {
				return each(listedObject(name, item))
			}
			return each(listedHash(name, item))
		})
	default:
		err = each(listed{}, invalidList(KindInvalidList, "artifacts is %s, and must be a list", typeOf(value)))
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func invalidList(kind Kind, format string, args ...any) *ArtifactError {
	return artifactError(ManifestName, 0, kind, format, args...)
}

// listedItem reads an entry of a list.
func listedItem(item json.RawMessage) (listed, *ArtifactError) {
	switch typeOf(item) {
	case "a string":
		var name string
		_ = json.Unmarshal(item, &name)
		return listed{path: name}, nil
	case "an object":
		return listedObject("", item)
	}
	return listed{}, invalidList(KindInvalidList, "artifacts: an entry is %s, and must be a path or an object with one", typeOf(item))
}

// pathKeys are the fields that may hold the path, hashKeys those that may hold the hash,
// the first one that is there first.
var (
	pathKeys = []string{"path", "file_path", "file", "name"}
	hashKeys = []string{"sha256", "hash"}
)

// listedObject reads an entry that is an object. What the entry is called where it has a
// name already is its path.
func listedObject(name string, value json.RawMessage) (listed, *ArtifactError) {
	fields, twice := map[string]json.RawMessage{}, ""
	_ = eachField(value, func(key string, value json.RawMessage) error {
		if !slices.Contains(pathKeys, key) && !slices.Contains(hashKeys, key) {
			return nil
		}
		if fields[key] != nil {
			twice = key
			return errEnough
		}
		fields[key] = slices.Clone(value)
		return nil
	})
	if twice != "" {
		return listed{}, invalidList(KindDuplicateKey, "artifacts: an entry has the field %s twice", twice)
	}
	for _, key := range pathKeys {
		if name == "" {
			_ = json.Unmarshal(fields[key], &name)
		}
	}
	if name == "" {
		return listed{}, invalidList(KindInvalidList, "artifacts: an entry names no path")
	}
	hash := fields["sha256"]
	if hash == nil {
		hash = fields["hash"]
	}
	return listedHash(name, hash)
}

// listedHash reads the hash of an entry, which may be none.
func listedHash(name string, hash json.RawMessage) (listed, *ArtifactError) {
	if hash == nil || string(hash) == "null" {
		return listed{path: name}, nil
	}
	var text string
	found := []string(nil)
	if json.Unmarshal(hash, &text) == nil {
		found = sha256Pattern.FindStringSubmatch(text)
	}
	if found == nil {
		return listed{}, invalidList(KindHashInvalid, "artifacts: the hash of %.200q is no SHA-256", name)
	}
	return listed{name, strings.ToLower(found[1])}, nil
}
