package evaluate

import (
	"fmt"
	"slices"

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

// maxShown bounds a stranger's text in a message.
const maxShown = 80

// shown quotes the beginning of a stranger's text for a message.
func shown(text string) string {
	if short := clipped(text); len(short) < len(text) {
		return fmt.Sprintf("%q…", short)
	}
	return fmt.Sprintf("%q", text)
}

// clipped is the beginning of a text.
func clipped(text string) string {
	count := 0
	for at := range text {
		if count == maxShown {
			return text[:at]
		}
		count++
	}
	return text
}
