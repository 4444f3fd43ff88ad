package evaluate

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

const (
	// maxScorePattern bounds a pattern, in bytes.
	maxScorePattern = 1000
	// maxScoreLine bounds the part of a line of stdout that is searched, in bytes.
	maxScoreLine = 64 << 10
)

// scorePattern compiles a pattern of [TaskDescription.ScorePattern]; nil for an empty one.
func scorePattern(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil //nolint:nilnil // no pattern is not a failure
	}
	refuse := func(rule string) error {
		return &policy.FieldError{Field: "score_pattern", Value: shown(pattern), Rule: rule}
	}
	if len(pattern) > maxScorePattern {
		return nil, refuse(fmt.Sprintf("must have at most %d bytes", maxScorePattern))
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, refuse("is not a regular expression: " + err.Error())
	}
	if n := compiled.NumSubexp(); n != 1 {
		return nil, refuse(fmt.Sprintf("must have one group, which is the number, as in \"accuracy: ([0-9.]+)\"; it has %d", n))
	}
	return compiled, nil
}

// scoreScanner looks for a score in the lines of a stream. It keeps one line.
type scoreScanner struct {
	pattern *regexp.Regexp
	line    []byte
	last    string
	cut     string // what is wrong with the text behind it
	matched bool
}

// Write never fails.
func (s *scoreScanner) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		s.line = append(s.line, part[:min(len(part), maxScoreLine-len(s.line))]...)
		if ended {
			s.endLine()
		}
		p = rest
	}
	return n, nil
}

func (s *scoreScanner) endLine() {
	for _, match := range s.pattern.FindAllSubmatchIndex(s.line, -1) {
		s.last, s.matched = "", true
		if match[2] >= 0 {
			s.last = string(s.line[match[2]:match[3]])
		}
		s.cut = ""
		if match[2] >= 0 && len(bytes.Trim(s.line[match[3]:match[1]], "0123456789")) == 0 { // else the pattern says what follows the number
			s.cut = result.ScoreCut(s.last, string(s.line[match[1]:min(match[1]+2, len(s.line))]))
		}
	}
	s.line = s.line[:0]
}

// score returns the score of the stream. It is nil without a match, and when the last match is not a
// finite number; the warning then says so. It also says that the number is cut; see [result.ScoreCut].
func (s *scoreScanner) score() (score *float64, warning string) {
	s.endLine()
	if !s.matched {
		return nil, ""
	}
	number, err := strconv.ParseFloat(s.last, 64)
	if err != nil || !isFinite(number) {
		return nil, fmt.Sprintf("the last score value %s is not a finite number", shown(s.last))
	}
	return &number, s.cut
}
