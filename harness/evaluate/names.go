package evaluate

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// readName sets target from its wire name and refuses any name that is not one of
// all. A value that nobody set stays empty and is refused where it is needed.
func readName[T ~string](target *T, field string, all []T, text []byte) error {
	if !slices.Contains(all, T(text)) {
		return oneOf(field, T(text), all)
	}
	*target = T(text)
	return nil
}

func oneOf[T ~string](field string, got T, all []T) error {
	return &policy.FieldError{Field: field, Value: shown(string(got)), Rule: fmt.Sprintf("must be one of %s", joinNames(all))}
}

func joinNames[T ~string](all []T) string {
	text := ""
	for i, name := range all {
		if i > 0 {
			text += ", "
		}
		text += string(name)
	}
	return text
}

// maxShown bounds an untrusted text in a message, in bytes.
const maxShown = 80

// shown quotes the beginning of an untrusted text for a message.
func shown(untrusted string) string { return text.Quote(untrusted, maxShown) }
