package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Names of the artifacts in an output directory (M3-04).
const (
	ManifestName        = "manifest.json"
	TracePackName       = "trace_pack.jsonl"
	AdapterMetadataName = "adapter_metadata.json"
)

// MaxDocument bounds a manifest and every other JSON document that is no trace.
const MaxDocument = 16 << 20

// manifestFields are the required fields, sorted (M3-07).
var manifestFields = []string{"artifacts", "run_id", "seed", "timestamp"}

// Manifest is a valid manifest.json. What its fields hold is for their readers: only
// that they are there is required (MI-05).
type Manifest struct {
	// Fields are all fields as they are written.
	Fields map[string]json.RawMessage
	// SHA256 is the hash of the bytes that were read.
	SHA256    string
	SizeBytes int64
}

// LoadManifest reads a manifest (M3-11). Its error is an [*ArtifactError] or that of ctx.
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

// parseDocument reads an object with required fields.
func parseDocument(text []byte, path string, required []string) (map[string]json.RawMessage, *ArtifactError) {
	fields, problem := parseObject(text, path, 0)
	if problem != nil {
		return nil, problem
	}
	if name, found := twice(text, len(fields)); found {
		return nil, artifactError(path, 0, KindDuplicateKey, "has the field %.200q twice: readers differ in which one they take", name)
	}
	if missing := without(fields, required); len(missing) > 0 {
		return nil, missingFields(path, 0, missing)
	}
	return fields, nil
}

// readDocument reads a bounded file and hashes what it read.
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
