package invoke

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/evalbox/evalbox/policy"
)

// SplitCommand splits a command line into words by the rules of a POSIX shell (M3-05,
// M3-06): quotes and backslashes, and nothing else. Nothing is expanded: variables,
// patterns, pipes and comments are words as they stand.
func SplitCommand(text string) ([]string, error) {
	refuse := func(rule string) ([]string, error) {
		return nil, &policy.FieldError{Field: "executable", Value: fmt.Sprintf("%.200q", text), Rule: rule}
	}
	if strings.TrimSpace(text) == "" {
		return refuse("must not be empty")
	}
	if strings.ContainsRune(text, 0) {
		return refuse("holds a NUL byte")
	}
	words, err := shellquote.Split(text)
	switch {
	case errors.Is(err, shellquote.UnterminatedEscapeError):
		return refuse("No escaped character: it ends with a backslash")
	case err != nil:
		return refuse("No closing quotation")
	}
	return words, nil
}
