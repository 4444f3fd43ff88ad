// Package stop decides that a run is not worth going on: by rules over the metrics that its program
// prints, and over its silence. It reads no clock and does no I/O.
package stop

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// A Rule ends a run when it is fulfilled. The zero Rule is not valid; see [Parse].
type Rule struct {
	text   string
	kind   kind
	metric string
	// op compares a value, or the best value so far, with a number, or with the median of the batch
	// plus a number.
	op     string
	number float64
	// steps is the length of a plateau, in steps of the program.
	steps float64
	// silence is the longest time without output.
	silence time.Duration
}

type kind int

const (
	isNaN kind = iota + 1
	isInf
	compares
	plateau
	silent
	median
)

// Forms are the rules that [Parse] reads, for messages.
var Forms = []string{
	"metric.loss is nan", "metric.loss is inf", "metric.loss > 100", "no output for 10m",
	"plateau of metric.loss over 500 steps within 0.001", "best metric.acc < median - 0.2",
}

// maxRule bounds the text of a rule, in bytes.
const maxRule = 200

// Parse reads a rule. The words are separated by spaces:
//
//	metric.NAME is nan                             a value is not a number
//	metric.NAME is inf                             a value is infinite
//	metric.NAME < NUMBER                           also <=, > and >=
//	plateau of metric.NAME over N steps [within X] the values of N steps differ by X at most; 0 is the default
//	no output for DURATION                         neither stdout nor stderr had a byte
//	best metric.NAME < median [- X]                the best value so far is worse than the median of the
//	best metric.NAME > median [+ X]                batch at the same step by more than X; see [Peers]
func Parse(rule string) (Rule, error) {
	r := Rule{text: rule}
	if len(rule) > maxRule {
		return Rule{}, fmt.Errorf("must not be longer than %d bytes", maxRule)
	}
	words := strings.Fields(rule)
	var err error
	switch first := slices.Concat(words, []string{"", ""}); {
	case first[0] == "no" && first[1] == "output":
		err = r.parseSilence(words[2:])
	case first[0] == "plateau" && first[1] == "of":
		err = r.parsePlateau(words[2:])
	case first[0] == "best":
		err = r.parseMedian(words[1:])
	default:
		err = r.parseMetric(words)
	}
	if err != nil {
		return Rule{}, err
	}
	return r, nil
}

// String returns the rule as it was given.
func (r Rule) String() string { return r.text }

// NeedsPeers reports whether the rule compares the run with others.
func (r Rule) NeedsPeers() bool { return r.kind == median }

var errForm = errors.New("is not a rule; rules are: " + strings.Join(Forms, "; "))

// name reads metric.NAME.
func (r *Rule) name(words []string) error {
	if len(words) == 0 {
		return errForm
	}
	name, ok := strings.CutPrefix(words[0], "metric.")
	if !ok || name == "" {
		return errForm
	}
	r.metric = name
	return nil
}

// parseMetric reads NAME is nan, or NAME < NUMBER.
func (r *Rule) parseMetric(words []string) error {
	if err := r.name(words); err != nil {
		return err
	}
	if len(words) != 3 {
		return errForm
	}
	switch op, value := words[1], words[2]; op {
	case "is":
		kinds := map[string]kind{"nan": isNaN, "inf": isInf}
		if r.kind = kinds[strings.ToLower(value)]; r.kind == 0 {
			return fmt.Errorf("%s: must be nan or inf", text.Quote(value, 40))
		}
	case "<", "<=", ">", ">=":
		r.kind, r.op = compares, op
		return number(value, &r.number)
	default:
		return errForm
	}
	return nil
}

func number(word string, n *float64) (err error) {
	*n, err = strconv.ParseFloat(word, 64)
	if err != nil || math.IsNaN(*n) || math.IsInf(*n, 0) {
		return fmt.Errorf("%s: must be a number", text.Quote(word, 40))
	}
	return nil
}

// parseSilence reads for DURATION.
func (r *Rule) parseSilence(words []string) (err error) {
	if len(words) != 2 || words[0] != "for" {
		return errForm
	}
	r.kind = silent
	r.silence, err = time.ParseDuration(words[1])
	if err != nil || r.silence < time.Second {
		return fmt.Errorf("%s: must be a duration of at least 1s, such as 90s or 10m", text.Quote(words[1], 40))
	}
	return nil
}

// parsePlateau reads NAME over N steps, and perhaps within X.
func (r *Rule) parsePlateau(words []string) error {
	if err := r.name(words); err != nil {
		return err
	}
	r.kind = plateau
	if n := len(words); n != 4 && n != 6 || words[1] != "over" || words[3] != "steps" || n == 6 && words[4] != "within" {
		return errForm
	}
	if err := number(words[2], &r.steps); err != nil || r.steps <= 0 {
		return fmt.Errorf("%s: must be a number of steps above 0", text.Quote(words[2], 40))
	}
	if len(words) == 4 {
		return nil
	}
	if err := number(words[5], &r.number); err != nil || r.number < 0 {
		return fmt.Errorf("%s: must be a number that is not negative", text.Quote(words[5], 40))
	}
	return nil
}

// parseMedian reads NAME < median - X, or NAME > median + X.
func (r *Rule) parseMedian(words []string) error {
	if err := r.name(words); err != nil {
		return err
	}
	r.kind = median
	if n := len(words); n != 3 && n != 5 || words[2] != "median" || words[1] != "<" && words[1] != ">" {
		return errForm
	}
	r.op = words[1]
	if len(words) == 3 {
		return nil
	}
	if sign := map[string]string{"<": "-", ">": "+"}[r.op]; words[3] != sign {
		return fmt.Errorf("a value that is too %s is compared with median %s X", map[string]string{"<": "small", ">": "large"}[r.op], sign)
	}
	if err := number(words[4], &r.number); err != nil || r.number < 0 {
		return fmt.Errorf("%s: must be a number that is not negative", text.Quote(words[4], 40))
	}
	return nil
}

// holds reports whether a value fulfills a comparison.
func (r Rule) holds(value float64) bool {
	switch r.op {
	case "<":
		return value < r.number
	case "<=":
		return value <= r.number
	case ">":
		return value > r.number
	}
	return value >= r.number
}

// stopped is the end of a run by the rule.
func (r Rule) stopped(format string, args ...any) *result.StoppedBy {
	return &result.StoppedBy{Rule: r.text, Reason: fmt.Sprintf(format, args...)}
}

// at says when something was.
func at(seconds float64, step *float64) string {
	when := "after " + text.Seconds(seconds)
	if step != nil {
		when += ", at step " + text.Number(*step)
	}
	return when
}

// shown is a number in a sentence: six digits, as leaderboards have them.
func shown(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}
