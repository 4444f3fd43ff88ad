package invoke

import (
	"fmt"
	"strings"
)

// Kind is what is wrong with an artifact.
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
	// Line is the physical line, from 1, where there is one.
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

func missingFields(path string, line int64, names []string) *ArtifactError {
	e := artifactError(path, line, KindMissingFields, "required fields are missing: %s", strings.Join(names, ", "))
	e.Missing = names
	return e
}

// maxName bounds a name that a tool chose in a message, in bytes.
const maxName = 200
