package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/kballard/go-shellquote"
)

const (
	maxCommands = 100      // of a wish
	maxCommand  = 16 << 10 // bytes
	maxWords    = 1000     // arguments of a command
)

var (
	assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`) })
	// expansion is text that a shell would replace, and escaped text that it would not.
	expansion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("`|\\$[({A-Za-z_0-9@*#?!$-]") })
	escaped   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\\.`) })
	// shellToken is a part of a command in which a character may have a meaning.
	shellToken = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(escaped().String() + `|'[^']*'|"(?:\\.|[^"\\])*"|[|&;<>]+|` + expansion().String())
	})
)

// split splits a command into its arguments by the rules of a shell for quotes and backslashes.
// It expands nothing. An error names the part that only a shell understands, and says how to
// call one.
func split(cmd string) ([]string, error) {
	switch {
	case strings.TrimSpace(cmd) == "":
		return nil, errors.New("must not be empty")
	case len(cmd) > maxCommand:
		return nil, fmt.Errorf("has %d bytes; at most %d", len(cmd), maxCommand)
	case !utf8.ValidString(cmd):
		return nil, errors.New("is not UTF-8")
	case strings.ContainsFunc(cmd, unicode.IsControl):
		return nil, errors.New("must be one line without control characters; write a script, or one command for each line")
	}
	words, err := shellquote.Split(cmd)
	if err != nil {
		return nil, fmt.Errorf("cannot be split into words: %s", strings.ToLower(err.Error()))
	}
	if what := shellOnly(cmd); what != "" {
		return nil, fmt.Errorf("has %s, which only a shell understands, and there is none: quote it, or write sh -c '…'", what)
	}
	switch {
	case len(words) > maxWords:
		return nil, fmt.Errorf("has %d words; at most %d", len(words), maxWords)
	case words[0] == "":
		return nil, errors.New("names no program: its first word is empty")
	case assignment().MatchString(words[0]):
		return nil, errors.New("begins with a variable: give it in env")
	}
	return words, nil
}

// shellOnly is the first part of a command that only a shell understands: an operator outside
// of quotes, or text that it would replace. The quotes of the command are balanced.
func shellOnly(cmd string) string {
	for _, token := range shellToken().FindAllString(cmd, -1) {
		switch {
		case strings.ContainsAny(token[:1], `\'`):
		case strings.ContainsAny(token[:1], "|&;<>"):
			return "the operator " + token
		default:
			if found := expansion().FindString(escaped().ReplaceAllString(token, " ")); found != "" {
				return "the expansion " + found
			}
		}
	}
	return ""
}

// join is the command that [split] splits into argv.
func join(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", errors.New("command line: must have at least one word")
	}
	cmd := shellquote.Join(argv...)
	words, err := split(cmd)
	if err != nil {
		return "", fmt.Errorf("command line: %w", err)
	}
	if !slices.Equal(words, argv) {
		return "", errors.New("command line: cannot be written as one line")
	}
	return cmd, nil
}
