package normalize

import (
	"bytes"
	"regexp"
	"sync"
)

// slowest finds the lists of the slowest tests that pytest and unittest print with --durations.
// Which tests are in a list, and in which order, changes from run to run: the list becomes
// [slowestTests].
type slowest struct {
	// inside says that the lines belong to a list, and begun that it has a line in the log.
	inside, begun bool
	// count are the lines that were replaced.
	count int
}

const slowestTests = "<slowest tests>"

var (
	slowestHead = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:=+ slowest (?:\d+ )?(?:test )?durations =+|Slowest test durations)$`)
	})
	// slowestLine matches normalized lines of a list, and those that say what is not in it.
	slowestLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:<duration> +(?:call|setup|teardown) +\S.*|<duration> {4,}\w.*|\((?:\d+ )?durations < .* hidden.*\)|-{40,}|` + slowestTests + `)?$`)
	})
)

// take returns what a normalized line becomes. It returns false if the line is left out.
func (s *slowest) take(line []byte) ([]byte, bool) {
	switch {
	case slowestHead().Match(line):
		s.inside, s.begun = true, false
		return line, true
	case !s.inside:
		return line, true
	case !slowestLine().Match(line):
		s.inside = false
		return line, true
	}
	if !bytes.Equal(line, []byte(slowestTests)) {
		s.count++
	}
	if s.begun {
		return nil, false
	}
	s.begun = true
	return []byte(slowestTests), true
}
