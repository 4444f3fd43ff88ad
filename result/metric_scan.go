package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Bounds of the metrics that a program prints.
const (
	// MaxMetricLine is the longest line of metrics, in bytes.
	MaxMetricLine = 4 << 10
	// MaxMetrics is the number of different names; lines with others are rejected.
	MaxMetrics = 64
	// MaxMetricName is the longest name, in bytes.
	MaxMetricName = 64
)

// stepName is the name in a line of metrics that counts the program's steps.
const stepName = "step"

// A MetricLine is one line of metrics.
type MetricLine struct {
	// Index counts the accepted lines from 1.
	Index int64
	// Step is the value of "step"; nil without one.
	Step *float64
	// Values has at least one element. A value may be NaN or infinite.
	Values map[string]float64
}

// MetricScanner finds the metrics in the stdout of a program: write the stream to it in pieces of any
// size. The pieces do not change the answer.
//
// A line of metrics is a JSON object with the only member "metric", an object of names and numbers:
//
//	{"metric": {"loss": 0.31, "step": 120}}
//
// It stands alone on its line. NaN, Infinity and -Infinity are numbers, as Python's json module writes
// them, also as strings. Every other line is the program's own business. A line that begins like one of
// metrics is rejected if it is longer than [MaxMetricLine], has no number, another value than a
// number, a name that is not printable or longer than [MaxMetricName], or a new name beyond
// [MaxMetrics].
//
// It keeps a few kilobytes however long the stream is, and takes linear time. It is not safe for
// concurrent use.
type MetricScanner struct {
	// Each, if set, gets every accepted line. It must not keep Values.
	Each func(MetricLine)

	line     []byte
	values   map[string]float64 // of the last line
	state    metricState
	index    int64
	rejected int64
	sums     map[string]*CustomMetric
}

// metricState says what the scanner does with the rest of a line.
type metricState uint8

const (
	metricStart metricState = iota // the line may be one of metrics
	metricTake                     // it begins with a brace
	metricSkip                     // it is not
	metricLong                     // it is too long
)

// Write scans the next piece of stdout. It returns len(p) and never an error.
func (s *MetricScanner) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if s.state == metricStart {
			s.line = s.line[:0]
			s.state = metricSkip
			if c := p[0]; c == '{' || c == ' ' || c == '\t' {
				s.state = metricTake
			}
		}
		end := bytes.IndexByte(p, '\n')
		piece := p
		if end >= 0 {
			piece = p[:end]
		}
		if s.state == metricTake {
			s.take(piece)
		}
		if end < 0 {
			break
		}
		s.End()
		p = p[end+1:]
	}
	return n, nil
}

// take keeps a piece of a line.
func (s *MetricScanner) take(piece []byte) {
	room := MaxMetricLine + 1 - len(s.line) // 1 for a carriage return
	s.line = append(s.line, piece[:min(len(piece), room)]...)
	if len(piece) <= room {
		return
	}
	s.state = metricSkip
	if _, ours := metricBody(s.line); ours {
		s.state = metricLong
	}
}

// End ends the last line, which may have no line feed. More may follow.
func (s *MetricScanner) End() {
	switch s.state {
	case metricTake:
		if body, ours := metricBody(s.line); ours {
			if err := s.accept(body); err != nil {
				s.rejected++
			}
		}
	case metricLong:
		s.rejected++
	case metricStart, metricSkip:
	}
	s.state = metricStart
}

// metricBody returns what follows `{"metric":`, with any white space in between. ours is false for a
// line that does not begin so.
func metricBody(line []byte) (body []byte, ours bool) {
	for _, token := range []string{"{", `"metric"`, ":"} {
		line = bytes.TrimLeft(line, " \t\r")
		if !bytes.HasPrefix(line, []byte(token)) {
			return nil, false
		}
		line = line[len(token):]
	}
	return line, true
}

var errMetric = errors.New("not a line of metrics")

// accept reads the rest of a line: an object, and the closing brace.
func (s *MetricScanner) accept(body []byte) error {
	if len(body) > MaxMetricLine {
		return errMetric
	}
	if s.values == nil {
		s.values = map[string]float64{}
	}
	clear(s.values)
	line := MetricLine{Values: s.values}
	rest, err := metricMembers(body, func(name string, value float64) error {
		if name == stepName {
			if isFinite(value) {
				line.Step = &value
			}
			return nil
		}
		if !metricName(name) {
			return errMetric
		}
		line.Values[name] = value
		return nil
	})
	rest = bytes.TrimSpace(rest)
	if err != nil || string(rest) != "}" || len(line.Values) == 0 {
		return errMetric
	}
	fresh := 0
	for name := range line.Values {
		if s.sums[name] == nil {
			fresh++
		}
	}
	if len(s.sums)+fresh > MaxMetrics {
		return errMetric
	}
	s.index++
	line.Index = s.index
	for name, value := range line.Values {
		s.add(name, value, line.Step)
	}
	if s.Each != nil {
		s.Each(line)
	}
	return nil
}

func isFinite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// metricName reports whether a name is printable, short and in UTF-8.
func metricName(name string) bool {
	if name == "" || len(name) > MaxMetricName || !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// metricMembers reads a JSON object of names and numbers, and returns what follows it.
func metricMembers(text []byte, each func(name string, value float64) error) ([]byte, error) {
	skip := func(token byte) bool {
		text = bytes.TrimLeft(text, " \t\r")
		if len(text) == 0 || text[0] != token {
			return false
		}
		text = text[1:]
		return true
	}
	if !skip('{') {
		return nil, errMetric
	}
	if skip('}') {
		return text, nil
	}
	for {
		text = bytes.TrimLeft(text, " \t\r")
		name, rest, ok := jsonString(text)
		if !ok {
			return nil, errMetric
		}
		if text = rest; !skip(':') {
			return nil, errMetric
		}
		text = bytes.TrimLeft(text, " \t\r")
		value, rest, ok := jsonNumber(text)
		if !ok {
			return nil, errMetric
		}
		text = rest
		if err := each(name, value); err != nil {
			return nil, err
		}
		switch {
		case skip(','):
		case skip('}'):
			return text, nil
		default:
			return nil, errMetric
		}
	}
}

// jsonString reads a string, and returns what follows it.
func jsonString(text []byte) (value string, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", nil, false
	}
	plain := true
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c >= utf8.RuneSelf:
			plain = false
		case c == '"':
			quoted, rest := text[:i+1], text[i+1:]
			if plain {
				return string(quoted[1:i]), rest, true
			}
			ok = utf8.Valid(quoted) && json.Unmarshal(quoted, &value) == nil
			return value, rest, ok
		}
	}
	return "", nil, false
}

// jsonNumber reads a number, and returns what follows it.
func jsonNumber(text []byte) (value float64, rest []byte, ok bool) {
	if word, rest, quoted := jsonString(text); quoted {
		value, known := notFinite[word]
		return value, rest, known
	}
	if len(text) > 1 && (text[0] == 'N' || text[0] == 'I' || text[1] == 'I') {
		for word, value := range notFinite {
			if bytes.HasPrefix(text, []byte(word)) {
				return value, text[len(word):], true
			}
		}
	}
	end := 0
	for end < len(text) && isScoreByte(text[end]) {
		end++
	}
	number := text[:end]
	if !json.Valid(number) {
		return 0, nil, false
	}
	value, err := strconv.ParseFloat(string(number), 64)
	return value, text[end:], err == nil || errors.Is(err, strconv.ErrRange)
}

// notFinite are the numbers that JSON does not have.
var notFinite = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// add adds a value to the sum of its metric.
func (s *MetricScanner) add(name string, value float64, step *float64) {
	sum := s.sums[name]
	if sum == nil {
		if s.sums == nil {
			s.sums = map[string]*CustomMetric{}
		}
		sum = &CustomMetric{Name: name}
		s.sums[name] = sum
	}
	sum.Count++
	if !isFinite(value) {
		sum.NotFinite++
		return
	}
	sum.Last, sum.LastStep = &value, step
	if sum.Min == nil || value < *sum.Min {
		sum.Min = &value
	}
	if sum.Max == nil || value > *sum.Max {
		sum.Max = &value
	}
}

// Metrics returns the sums of all metrics so far, sorted by name.
func (s *MetricScanner) Metrics() []CustomMetric {
	all := []CustomMetric{}
	for _, name := range slices.Sorted(maps.Keys(s.sums)) {
		all = append(all, *s.sums[name])
	}
	return all
}

// Rejected counts the lines that were rejected.
func (s *MetricScanner) Rejected() int64 { return s.rejected }
