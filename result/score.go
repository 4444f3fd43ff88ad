package result

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxScoreToken bounds the kept bytes of a score value, far above the length of
// a number.
const maxScoreToken = 4096

// scoreLabel is the text before a score (EX-011).
var scoreLabel = []byte("Final Validation Performance:")

// ParseScore returns the score that a program printed (EX-011): the number
// after the last "Final Validation Performance:" that has one.
//
// It gives the answer of Python's
//
//	float(re.findall(r'Final Validation Performance:\s*([\d.eE+-]+)', stdout)[-1])
//
// so the last match decides even if it is not a number ("1.2.3"): ok is then
// false. White space is Python's and may cross lines, a label without a match
// ("nan") is passed over, and 1e999 is +Inf. Two things differ: digits are ASCII
// only, and a value of more than 4096 bytes is not a score.
//
// ParseScore takes linear time, well below 10 ms for 1 MB (EX-036).
func ParseScore(stdout string) (score float64, ok bool) {
	var s ScoreScanner
	feed(&s, stdout)
	return s.Score()
}

// ScoreScanner is [ParseScore] for a stream: write stdout to it in pieces of
// any size and ask at any time. The pieces do not change the answer. It keeps
// a few kilobytes however long the stream is.
//
// The zero value is ready to use. It is not safe for concurrent use.
type ScoreScanner struct {
	state scoreState
	label needle
	// wide holds the bytes of an unfinished multi-byte character after the
	// label, which may turn out to be white space.
	wide    [utf8.UTFMax]byte
	wideLen int

	// token is the value of the last match so far.
	token   []byte
	matched bool
	tooLong bool
	// rest is what follows it, as far as [ScoreCut] looks.
	rest []byte
	// bare says that a label came after that match and has no match itself.
	bare bool
}

// scoreState is the part of a score line that the scanner expects next.
type scoreState uint8

const (
	scoreSeek  scoreState = iota // the label
	scoreSpace                   // white space or the value
	scoreValue                   // more of the value
	scoreRest                    // what follows the value
)

// Write scans the next piece of stdout. It returns len(p) and never an error.
func (s *ScoreScanner) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		switch s.state {
		case scoreSeek:
			p = s.seek(p)
		case scoreSpace:
			p = s.skipSpace(p)
		case scoreValue:
			p = s.takeValue(p)
		case scoreRest:
			p = s.takeRest(p)
		}
	}
	return n, nil
}

// seek drops everything up to the end of the next label.
func (s *ScoreScanner) seek(p []byte) []byte {
	used, found := s.label.find(scoreLabel, p)
	if found {
		s.state = scoreSpace
		s.bare = true
	}
	return p[used:]
}

// skipSpace drops white space after a label. The first other byte decides
// whether the label has a match, and is left for the next state.
func (s *ScoreScanner) skipSpace(p []byte) []byte {
	for i, c := range p {
		if s.wideLen > 0 || c >= utf8.RuneSelf {
			s.wide[s.wideLen] = c
			s.wideLen++
			wide := s.wide[:s.wideLen]
			if !utf8.FullRune(wide) {
				continue
			}
			s.wideLen = 0
			// A broken character is U+FFFD after decoding, which is not white space.
			if r, _ := utf8.DecodeRune(wide); !isSpace(r) {
				s.state = scoreSeek
				return p[i:]
			}
			continue
		}
		if isSpace(rune(c)) {
			continue
		}
		if !isScoreByte(c) {
			s.state = scoreSeek
			return p[i:]
		}
		s.state = scoreValue
		s.token, s.rest = s.token[:0], s.rest[:0]
		s.matched, s.tooLong, s.bare = true, false, false
		return p[i:]
	}
	return nil
}

// takeValue appends to the value up to the first byte that cannot belong to it.
func (s *ScoreScanner) takeValue(p []byte) []byte {
	end := 0
	for end < len(p) && isScoreByte(p[end]) {
		end++
	}
	room := maxScoreToken - len(s.token)
	if end > room {
		s.tooLong = true
	}
	s.token = append(s.token, p[:min(end, room)]...)
	if end < len(p) {
		s.state = scoreRest
	}
	return p[end:]
}

// takeRest keeps a separator and the byte behind it. Neither can begin a label.
func (s *ScoreScanner) takeRest(p []byte) []byte {
	c := p[0]
	if len(s.rest) == 0 && (c == '%' || isSeparator(c)) || len(s.rest) == 1 && isDigit(c) {
		s.rest = append(s.rest, c)
		return p[1:]
	}
	s.state = scoreSeek
	return p
}

// ScoreCut says, for a number that was taken out of a line as a score, that the text behind it belongs to
// the number: a comma or an underscore with a digit, or a percent sign. It returns an empty text without
// a doubt.
func ScoreCut(number, rest string) string {
	if !strings.HasPrefix(rest, "%") && (len(rest) < 2 || !isSeparator(rest[0]) || !isDigit(rest[1])) {
		return ""
	}
	return fmt.Sprintf("the score %s is cut at %q: print a plain number, such as 28341.22 or 0.95", quoteShort([]byte(number)), rest[:1])
}

func isSeparator(c byte) bool { return c == ',' || c == '_' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isScoreByte is the class [\d.eE+-] with ASCII digits.
func isScoreByte(c byte) bool {
	switch c {
	case '.', 'e', 'E', '+', '-':
		return true
	}
	return isDigit(c)
}

// Score returns the score of the stream so far, as [ParseScore] does. It may be
// infinite; use [ScoreScanner.Finite] for a number that JSON can carry.
func (s *ScoreScanner) Score() (score float64, ok bool) {
	if !s.matched || s.tooLong {
		return 0, false
	}
	score, err := strconv.ParseFloat(string(s.token), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return score, true // out of range is ±Inf, as in Python
}

// Finite returns the score; nil without one, and for an infinite one.
func (s *ScoreScanner) Finite() *float64 {
	score, ok := s.Score()
	if !ok || math.IsInf(score, 0) {
		return nil
	}
	return &score
}

// Cut reports whether the score is finite, and [ScoreCut] doubts it.
func (s *ScoreScanner) Cut() bool {
	return s.Finite() != nil && ScoreCut(string(s.token), string(s.rest)) != ""
}

// Warnings returns sentences about a doubtful score: a last score line without
// a number, which the rule passes over, so that the score is an earlier one; a
// value that is not a number, not finite, cut or too long. It returns nil
// without a doubt.
func (s *ScoreScanner) Warnings() []string {
	var w []string
	score, ok := s.Score()
	switch {
	case !s.matched:
	case s.tooLong:
		w = append(w, fmt.Sprintf("the last score value is longer than %d bytes and was ignored", maxScoreToken))
	case !ok:
		w = append(w, fmt.Sprintf("the last score value %s is not a number", quoteShort(s.token)))
	case math.IsInf(score, 0):
		w = append(w, fmt.Sprintf("the score %s is not finite", quoteShort(s.token)))
	case s.Cut():
		w = append(w, ScoreCut(string(s.token), string(s.rest)))
	}
	switch {
	case s.bare && s.matched:
		w = append(w, "the last score line has no number; an earlier score line was used")
	case s.bare:
		w = append(w, "the last score line has no number")
	}
	return w
}

// quoteShort quotes the start of a value for a message.
func quoteShort(b []byte) string {
	const limit = 64
	if len(b) <= limit {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(string(b[:limit])) + "…"
}
