package invoke

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Bounds of one JSON value. They are far above what tools mean, and below what readers of
// the artifacts can bear.
const (
	// MaxDocument bounds the bytes of a manifest, and of every other JSON document that is
	// not a trace.
	MaxDocument = 16 << 20

	maxFields = 100_000 // of one object
	maxDepth  = 1000    // of nested values
	maxListed = 100_000 // artifacts of a manifest
)

// manifestFields are the required fields, sorted (M3-07).
var manifestFields = []string{"artifacts", "run_id", "seed", "timestamp"}

// Manifest is a valid manifest.json. The required fields exist; their values are for the
// readers of the manifest (MI-05).
type Manifest struct {
	// Fields are all fields as they are written.
	Fields map[string]json.RawMessage
	// SHA256 is the hash of the bytes that were read.
	SHA256    string
	SizeBytes int64
}

// LoadManifest reads a manifest (M3-11). The error is an [*ArtifactError] or that of ctx.
func LoadManifest(ctx context.Context, path string) (Manifest, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return Manifest{}, openError(path, err)
	}
	defer file.Close()
	text, sum, err := readDocument(ctx, file, path)
	if err != nil {
		return Manifest{}, err
	}
	fields, problem := ParseManifest(text, path)
	if problem != nil {
		return Manifest{}, problem
	}
	return Manifest{fields, sum, int64(len(text))}, nil
}

// ParseManifest reads the text of a manifest. It is pure; path is for the error.
func ParseManifest(text []byte, path string) (map[string]json.RawMessage, *ArtifactError) {
	return parseDocument(text, path, manifestFields)
}

// parseDocument reads an object that has each field once, and the required fields.
func parseDocument(text []byte, path string, required []string) (map[string]json.RawMessage, *ArtifactError) {
	fields, twice, problem := parseObject(text, path, 0)
	switch {
	case problem != nil:
		return nil, problem
	case twice != "":
		return nil, artifactError(path, 0, KindDuplicateKey, "has the field %s twice: readers differ in which one they take", twice)
	}
	if problem := requireFields(fields, required, path, 0); problem != nil {
		return nil, problem
	}
	return fields, nil
}

// readDocument reads a bounded file and hashes the bytes that it read.
func readDocument(ctx context.Context, r io.Reader, path string) (text []byte, sum string, err error) {
	text, err = io.ReadAll(io.LimitReader(fsx.WithContext(ctx, r), MaxDocument+1))
	if err != nil {
		return nil, "", readError(ctx, path, err)
	}
	if len(text) > MaxDocument {
		return nil, "", artifactError(path, 0, KindTooLarge, "has more than %d bytes", MaxDocument)
	}
	hash := sha256.Sum256(text)
	return text, hex.EncodeToString(hash[:]), nil
}

// parseObject reads one JSON object in UTF-8. Values stay as they are written, so that no
// number is rounded; of a field that is given twice the last one counts, and twice is the
// first such field, quoted. Path and line are for the error.
func parseObject(text []byte, path string, line int64) (fields map[string]json.RawMessage, twice string, problem *ArtifactError) {
	invalid := func(format string, args ...any) (map[string]json.RawMessage, string, *ArtifactError) {
		return nil, "", artifactError(path, line, KindInvalidJSON, format, args...)
	}
	if !utf8.Valid(text) {
		return invalid("is not UTF-8 text")
	}
	in := decoder(text)
	fields = map[string]json.RawMessage{}
	name, start, deep := "", int64(0), false
	for {
		token, err := in.ReadToken()
		if err != nil {
			return invalid("is not valid JSON: %s", syntaxError(text, err))
		}
		at := in.InputOffset()
		if in.StackDepth() == 0 {
			if more := bytes.TrimLeft(text[at:], " \t\r\n"); len(more) > 0 {
				return invalid("is not valid JSON: invalid character %q after top-level value, at byte %d", more[0], len(text)-len(more))
			}
			break
		}
		deep = deep || in.StackDepth() > maxDepth
		kind, n := in.StackIndex(1)
		switch {
		case kind != '{' || in.StackDepth() > 1 || n == 0: // not a name or the end of a value of the object
		case n%2 == 1:
			name, start = token.String(), at
		default:
			if _, has := fields[name]; has && twice == "" {
				twice = fmt.Sprintf("%.200q", name)
			}
			if fields[name] = bytes.TrimLeft(text[start:at], ": \t\r\n"); len(fields) > maxFields {
				return nil, "", artifactError(path, line, KindTooMany, "has more than %d fields", maxFields)
			}
		}
	}
	switch {
	case typeOf(text) != "an object":
		return nil, "", artifactError(path, line, KindNotObject, "is not a JSON object but %s", typeOf(text))
	case deep:
		return invalid("is nested deeper than %d levels", maxDepth)
	}
	return fields, twice, nil
}

// decoder reads JSON. It does not refuse half a surrogate pair: Python writes one for a
// byte that is not UTF-8.
func decoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// syntaxError describes an error of a decoder.
func syntaxError(text []byte, err error) string {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("%v, at byte %d", syntax.Err, syntax.ByteOffset)
	}
	return fmt.Sprintf("unexpected end of JSON input, at byte %d", len(text))
}

var typeNames = map[jsontext.Kind]string{
	'{': "an object", '[': "an array", '"': "a string", 't': "a boolean", 'f': "a boolean", 'n': "null", '0': "a number",
}

// typeOf names the type of a valid JSON value.
func typeOf(text []byte) string { return typeNames[jsontext.Value(text).Kind()] }

// eachElement calls each for every field of a valid object, with its name, or for every
// item of a valid array. It holds one of them at a time. The first error of each ends it.
func eachElement(value []byte, each func(name string, value json.RawMessage) error) error {
	in := decoder(value)
	open, err := in.ReadToken()
	if err != nil {
		return err
	}
	object := open.Kind() == '{'
	for in.PeekKind() != ']' && in.PeekKind() != '}' {
		name := ""
		if object {
			token, err := in.ReadToken()
			if err != nil {
				return err
			}
			name = token.String()
		}
		element, err := in.ReadValue()
		if err != nil {
			return err
		}
		if err := each(name, json.RawMessage(element)); err != nil {
			return err
		}
	}
	return nil
}

// listed is one artifact that a manifest lists.
type listed struct {
	// path is as the manifest has it.
	path string
	// sha256 is the listed hash, empty for none.
	sha256 string
}

var sha256Pattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?i:sha256:)?([0-9a-fA-F]{64})$`) })

// errEnough ends the reading of a list.
var errEnough = errors.New("enough")

// eachListed reads the field artifacts of a manifest: a list of paths, a list of objects
// with a path and maybe a hash, or an object from paths to hashes or objects. It calls
// each with every entry, or with the problem of an entry. An error of each ends it;
// errEnough is not returned.
func eachListed(value json.RawMessage, each func(listed, *ArtifactError) error) error {
	kind := typeOf(value)
	if kind != "an array" && kind != "an object" {
		return each(listed{}, invalidList(KindInvalidList, "artifacts is %s, and must be a list", kind))
	}
	err := eachElement(value, func(name string, item json.RawMessage) error {
		switch of := typeOf(item); {
		case of == "an object":
			return each(listedObject(name, item))
		case kind == "an object":
			return each(listedHash(name, item))
		case of == "a string":
			return each(listed{path: textOf(item)}, nil)
		default:
			return each(listed{}, invalidList(KindInvalidList, "artifacts: an entry is %s, and must be a path or an object with one", of))
		}
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func invalidList(kind Kind, format string, args ...any) *ArtifactError {
	return artifactError(ManifestName, 0, kind, format, args...)
}

// textOf is the text of a JSON string; empty for any other value.
func textOf(value json.RawMessage) (text string) {
	_ = json.Unmarshal(value, &text) // any other value is not a text
	return text
}

// entryKeys are the fields of an entry that may hold its path or its hash.
var entryKeys = []string{"path", "file_path", "file", "name", "sha256", "hash"}

// listedObject reads an entry that is an object. name, unless it is empty, is its path.
func listedObject(name string, value json.RawMessage) (listed, *ArtifactError) {
	fields, twice := map[string]json.RawMessage{}, ""
	_ = eachElement(value, func(key string, value json.RawMessage) error {
		if !slices.Contains(entryKeys, key) {
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
	name = cmp.Or(name, textOf(fields["path"]), textOf(fields["file_path"]), textOf(fields["file"]), textOf(fields["name"]))
	if name == "" {
		return listed{}, invalidList(KindInvalidList, "artifacts: an entry names no path")
	}
	hash := fields["sha256"]
	if hash == nil {
		hash = fields["hash"]
	}
	return listedHash(name, hash)
}

// listedHash reads the hash of an entry, which may have none.
func listedHash(name string, hash json.RawMessage) (listed, *ArtifactError) {
	if hash == nil || string(hash) == "null" {
		return listed{path: name}, nil
	}
	found := sha256Pattern().FindStringSubmatch(textOf(hash))
	if found == nil {
		return listed{}, invalidList(KindHashInvalid, "artifacts: the hash of %.200q is not a SHA-256", name)
	}
	return listed{name, strings.ToLower(found[1])}, nil
}
