package normalize

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	// workersLine matches lines that pytest-xdist prints before its workers run tests.
	workersLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:bringing up nodes\.\.\.|(?:created|ready): \d+/\d+ workers?|\d+ workers? \[\d+ items?\]|gw\d+ \[\d+\](?: / gw\d+ \[\d+\])*) *$`)
	})
	// parallelLine matches lines of other programs that print their tests in the order in which these end:
	// prove -j, jest, and libtest. prove and jest say it of their files at the end.
	parallelLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:Files=(?:[2-9]|\d\d+), Tests=\d+,|Test Suites: .*\d+ total$|test result: (?:ok|FAILED)\. )`)
	})
	// letters matches the letters that pytest prints for tests, and crash those before a worker ended.
	letters = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([.FEsxXRu,-]+)(?: *\[ *\d+(?:%|/\d+)\])?$`)
	})
	crash = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([.FEsxXRu,-]*)\[(?:gw\d+|<worker>)\]( node down: .*)$`)
	})
)

// isParallel reports whether a normalized line says that tests ran in parallel.
func isParallel(line []byte) bool {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return workersLine().Match(line) || parallelLine().Match(line)
}

// progress counts the letters that pytest prints for tests that ran in parallel. Their order changes
// from run to run, and so does how many are in a line: the lines become one line with the counts.
type progress struct {
	// on says that a report has the outcome of each test. The counts alone would hide which test failed.
	on bool
	// inside says that the next line can have letters.
	inside bool
	counts map[byte]int
	// end is the end of the last line that was counted.
	end string
	// lines are all that were counted.
	lines int
}

// take writes a normalized line, or keeps it until the last line of letters is known.
func (p *progress) take(out *bytes.Buffer, line []byte, end string) {
	switch {
	case !p.on:
	case workersLine().Match(line):
		p.flush(out)
		p.inside = true
	case !p.inside || len(line) == 0 || bytes.HasPrefix(line, []byte("replacing crashed worker ")):
	default:
		if m := letters().FindSubmatch(line); m != nil {
			p.count(m[1])
			p.end = end
			p.lines++
			return
		}
		if m := crash().FindSubmatch(line); m != nil {
			p.count(m[1])
			line = slices.Concat([]byte("[<worker>]"), m[2])
			break
		}
		p.flush(out)
	}
	out.Write(line)
	out.WriteString(end)
}

func (p *progress) count(letters []byte) {
	if p.counts == nil {
		p.counts, p.end = map[byte]int{}, "\n"
	}
	for _, l := range letters {
		p.counts[l]++
	}
}

// flush writes the counts. No letters are expected then.
func (p *progress) flush(out *bytes.Buffer) {
	p.inside = false
	if len(p.counts) == 0 {
		return
	}
	var all []string
	for _, l := range slices.Sorted(maps.Keys(p.counts)) {
		all = append(all, fmt.Sprintf("%d of %q", p.counts[l], string(l)))
	}
	fmt.Fprintf(out, "<progress> %s%s", strings.Join(all, ", "), p.end)
	p.counts = nil
}
