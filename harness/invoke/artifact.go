package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Names of the artifacts in an output directory (M3-04).
const (
	ManifestName        = "manifest.json"
	TracePackName       = "trace_pack.jsonl"
	AdapterMetadataName = "adapter_metadata.json"
)

// Kind says what is wrong with an artifact.
type Kind string

// Kinds of an [ArtifactError].
const (
	KindMissing       Kind = "missing"
	KindNotRegular    Kind = "not_regular"
	KindNotDirectory  Kind = "not_directory"
	KindUnreadable    Kind = "unreadable"
	KindStale         Kind = "stale"
	KindTooLarge      Kind = "too_large"
	KindInvalidJSON   Kind = "invalid_json"
	KindNotObject     Kind = "not_object"
	KindMissingFields Kind = "missing_fields"
	KindMissingStep   Kind = "missing_step"
	KindLineTooLong   Kind = "line_too_long"
	KindDuplicateKey  Kind = "duplicate_key"
	KindTooMany       Kind = "too_many"
	KindInvalidList   Kind = "invalid_list"
	KindOutside       Kind = "outside"
	KindHashInvalid   Kind = "hash_invalid"
	KindHashMismatch  Kind = "hash_mismatch"
)

// ArtifactError is one thing that is wrong with one artifact (MI-05).
type ArtifactError struct {
	// Path is the artifact, as it was named.
	Path string `json:"path"`
	// Line is the physical line, from 1; 0 for none.
	Line int64 `json:"line,omitempty"`
	Kind Kind  `json:"kind"`
	// Missing are the names of missing fields, sorted.
	Missing []string `json:"missing,omitempty"`
	Text    string   `json:"text"`
}

func (e *ArtifactError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Text)
	}
	return e.Path + ": " + e.Text
}

func artifactError(path string, line int64, kind Kind, format string, args ...any) *ArtifactError {
	return &ArtifactError{Path: path, Line: line, Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// requireFields is the error of an object without some of the fields; nil for none.
func requireFields[V any](object map[string]V, fields []string, path string, line int64) *ArtifactError {
	var missing []string
	for _, name := range fields {
		if _, has := object[name]; !has {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	e := artifactError(path, line, KindMissingFields, "required fields are missing: %s", strings.Join(missing, ", "))
	e.Missing = missing
	return e
}

// openError is the problem of a file or a directory that cannot be opened.
func openError(path string, err error) *ArtifactError {
	var special *fsx.NotRegularError
	var other *fsx.NotDirectoryError
	switch {
	case errors.As(err, &special):
		return artifactError(path, 0, KindNotRegular, "%s", special)
	case errors.As(err, &other) && other.Mode&fs.ModeSymlink != 0:
		return artifactError(path, 0, KindNotRegular, "lies behind a symbolic link")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), other != nil:
		return artifactError(path, 0, KindMissing, "does not exist")
	}
	return artifactError(path, 0, KindUnreadable, "cannot be read: %s", fsx.Cause(err))
}

// readError is the error of ctx if it ended the reading, and otherwise the problem of a
// file that cannot be read.
func readError(ctx context.Context, path string, err error) error {
	if canceled := context.Cause(ctx); canceled != nil {
		return canceled
	}
	return artifactError(path, 0, KindUnreadable, "cannot be read: %s", fsx.Cause(err))
}

// HashArtifact is the SHA-256 of a file's bytes, in lower-case hex (M3-04, M3-10). The
// file must be regular; links are followed. The error is an [*ArtifactError] or that of
// ctx.
func HashArtifact(ctx context.Context, path string) (string, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return "", openError(path, err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, fsx.WithContext(ctx, file)); err != nil {
		return "", readError(ctx, path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
