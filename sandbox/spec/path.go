package spec

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/policy"
)

const maxPath = 1024

// CheckPath permits clean absolute paths of the container. The error is a
// [*policy.FieldError] of the field.
func CheckPath(field, target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || len(target) > maxPath || !utf8.ValidString(target) ||
		strings.ContainsFunc(target, unicode.IsControl) {
		return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", target),
			Rule: fmt.Sprintf("must be a clean absolute path inside the container, without control characters, of at most %d bytes", maxPath)}
	}
	return nil
}

// Below reports whether a clean path of the container lies strictly below another.
func Below(inner, outer string) bool { return strings.HasPrefix(inner, outer+"/") }

// Within reports whether a clean path of the container is another or lies below it.
func Within(inner, outer string) bool { return inner == outer || Below(inner, outer) }

// Rel returns a path relative to a target at which it is or below which it lies; "." for the
// target itself.
func Rel(inner, target string) string {
	if inner == target {
		return "."
	}
	return strings.TrimPrefix(inner, target+"/")
}

// ByDepth orders paths so that each comes after the paths above it.
func ByDepth(a, b string) int {
	return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
}

// A PathError names a host path of a request that breaks a rule.
type PathError struct {
	// Field is the name of the field, such as script, input, final, mount or tree.
	Field, Path, Rule string
	// Err is the cause; it may be nil.
	Err error
}

func (e *PathError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s %q: %s: %v", e.Field, e.Path, e.Rule, e.Err)
	}
	return fmt.Sprintf("%s %q: %s", e.Field, e.Path, e.Rule)
}

func (e *PathError) Unwrap() error { return e.Err }

// Is makes a path that does not exist match [fs.ErrNotExist].
func (e *PathError) Is(target error) bool {
	return target == fs.ErrNotExist && e.Rule == RuleMissing
}

// RuleMissing is the rule of a [PathError] of a path that does not exist.
const RuleMissing = "does not exist"
