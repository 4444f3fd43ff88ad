package images

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/docker/docker/pkg/jsonmessage"
)

// A BuildError is a command of the Dockerfile that failed.
type BuildError struct {
	// Dockerfile is the name of the file.
	Dockerfile string
	// Code is the exit code of the command.
	Code int
	// Log holds the last lines of what the build printed, indented.
	Log string
	// Requirements is the name of the file of Python packages, empty for none.
	Requirements string
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("a command of %s ended with code %d\n%s", e.Dockerfile, e.Code, e.Log)
}

// Hint says what to do about it, as far as pip's words tell.
func (e *BuildError) Hint() string {
	switch {
	case e.Requirements == "":
		return ""
	case strings.Contains(e.Log, "DO NOT MATCH THE HASHES"):
		return "the package index serves another file than " + e.Requirements + " pins: nothing of it was kept; " +
			"try another index with --pip-index, and never take a hash over unseen"
	case strings.Contains(e.Log, "No matching distribution"), strings.Contains(e.Log, "Failed to establish a new connection"):
		return "the build needs the package index: choose a network with --build-network (such as host), " +
			"or a mirror with --pip-index URL"
	}
	return ""
}

// buildFailed makes a BuildError of what the builder says about a command. Its
// text repeats the whole command, and says nothing of what that printed.
func buildFailed(entry Entry, err error, log string) error {
	var said *jsonmessage.JSONError
	if !errors.As(err, &said) || said.Code == 0 {
		return err
	}
	return &BuildError{Dockerfile: entry.Dockerfile, Code: said.Code, Log: log, Requirements: entry.Requirements}
}

// plain passes text on without control characters: the packages of a base and an
// index have a say in what a build prints.
type plain struct{ out io.Writer }

func (p plain) Write(data []byte) (int, error) {
	_, err := io.WriteString(p.out, visible(string(data)))
	return len(data), err
}

// escapeSequence is what colours text or moves the cursor.
var escapeSequence = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

// visible drops the control characters that could drive a terminal, and what would
// be left of their sequences.
func visible(text string) string {
	text = escapeSequence.ReplaceAllString(text, "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
