package sweep

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
)

// A Spec is the configuration that every run's own is made of: a JSON object.
type Spec struct{ fields map[string]any }

// MaxSpec bounds the file of a spec, in bytes.
const MaxSpec = 16 << 20

// A SpecError is a base spec that cannot be used.
type SpecError struct {
	// Path is empty for a text that is of no file.
	Path, Rule string
	// Err is the cause, if there is one.
	Err error
}

func (e *SpecError) Error() string {
	if e.Path == "" {
		return "base spec: " + e.Rule
	}
	return "base spec " + strconv.Quote(e.Path) + ": " + e.Rule
}

func (e *SpecError) Unwrap() error { return e.Err }

// Hint says what a spec is.
func (e *SpecError) Hint() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return "name the file with --spec"
	}
	return "the base spec is a JSON object; each run gets it with its own perturbations and seed"
}

// LoadSpec reads the file of a base spec, which must be a regular one.
func LoadSpec(path string) (Spec, error) {
	text, err := fsx.Read(path, MaxSpec)
	if errors.Is(err, fs.ErrNotExist) {
		return Spec{}, &SpecError{path, "not found", err}
	}
	if err != nil {
		return Spec{}, &SpecError{path, fsx.Cause(err).Error(), err}
	}
	spec, err := ParseSpec(text)
	if refused := new(SpecError); errors.As(err, &refused) {
		refused.Path = path
	}
	return spec, err
}

// ParseSpec reads a base spec.
func ParseSpec(text []byte) (Spec, error) {
	if !utf8.Valid(text) {
		return Spec{}, &SpecError{Rule: "is not UTF-8"}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return Spec{}, &SpecError{Rule: "is no JSON: " + err.Error(), Err: err}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, &SpecError{Rule: "is no JSON: there is more behind the first value"}
	}
	if at := loneSurrogate(text); at >= 0 {
		return Spec{}, &SpecError{Rule: fmt.Sprintf("has half of a character at byte %d, which cannot be passed on", at)}
	}
	if key, twice := duplicateKey(text); twice {
		return Spec{}, &SpecError{Rule: "has the key " + shown(key) + " twice in one object"}
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return Spec{}, &SpecError{Rule: "must be a JSON object"}
	}
	return Spec{fields}, nil
}

// escaped are the escapes of valid JSON, pairs of surrogates as one.
var escaped = regexp.MustCompile(`(?i)\\u(?:d[89ab][0-9a-f]{2}\\ud[c-f]|d[89a-f])[0-9a-f]{2}|\\.`)

// loneSurrogate is where valid JSON escapes half of a surrogate pair, which the decoder
// would replace without a word; -1 for nowhere.
func loneSurrogate(text []byte) int {
	for _, found := range escaped.FindAllIndex(text, -1) {
		if found[1]-found[0] == len(`\ud800`) {
			return found[0]
		}
	}
	return -1
}

// SHA256 is the hash of what the spec says, 64 hexadecimal digits: spaces and the order of
// keys do not count.
func (s Spec) SHA256() (string, error) {
	text, err := DeterministicJSON(s.fields)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}

// At is the spec of one run (MI-10): perturbations and seed take the place of what the
// base says of them. Everything else is as there, numbers in their spelling. Keys are
// sorted, a level is two spaces, and there is no newline at the end. s is not changed.
func (s Spec) At(point Point) ([]byte, error) {
	fields := maps.Clone(s.fields)
	if fields == nil {
		fields = map[string]any{}
	}
	fields["perturbations"], fields["seed"] = point.Values, point.Seed
	return indentedJSON(fields)
}
