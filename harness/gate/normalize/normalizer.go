// Package normalize makes the logs of two runs of the same thing equal (RT-06, RT-12,
// RO-08), and finds what may still differ.
//
// [Normalizer] replaces values that change from run to run (times, durations, process IDs,
// addresses, temporary paths, names of machines) with visible placeholders such as <time>,
// by named rules whose matches are counted. Names of tests, numbers, scores, versions and
// the values of assertions stay. Normalizing twice changes nothing. [Detect] finds values
// that no rule replaced and that look as if they change.
//
// [Evidence] is node 3 of a gate: it writes the normalized log, the test cases and the
// observations, from the raw files of node 2.
package normalize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

const (
	// maxLine bounds the memory for one line, in bytes. A longer line continues in the
	// next one, with [continues] at its end.
	maxLine   = 1 << 20
	continues = "<line goes on>"
	// maxRounds is how often the rules are applied to one line until nothing changes.
	maxRounds = 8
	// maxRules and maxPattern bound the rules of a wish.
	maxRules   = 200
	maxPattern = 1000
	// minName is the length of the shortest name that is replaced.
	minName = 4
)

// Context is what differs from gate to gate.
type Context struct {
	// Roots are absolute paths of the repository. Paths below them become relative.
	Roots []string
	// Names are names of this run alone, such as run IDs.
	Names []string
}

// Normalizer applies rules and counts them. It is not safe for concurrent use.
type Normalizer struct {
	rules    []rule
	counts   []int
	returns  int // carriage returns
	unstable bool
	// a and b hold a line before and after a rule, lower has it in lower case.
	a, b  []byte
	lower []byte
}

// New returns a normalizer with the built-in rules, those of the context, and then the
// given ones, so that a rule of a wish can be written by looking at a normalized log.
//
// A given rule needs a name of its own. It is refused if its pattern is not an RE2
// expression or matches the empty text, and if its replacement has a line feed or matches
// its own pattern: normalizing twice would then change the log.
func New(rules []evidence.Rule, c Context) (*Normalizer, error) {
	if len(rules) > maxRules {
		return nil, fmt.Errorf("there are %d rules of normalization, more than %d", len(rules), maxRules)
	}
	n := &Normalizer{rules: append(append([]rule{controls()}, c.rules()...), builtin()...)}
	for _, r := range rules {
		if err := n.check(r); err != nil {
			return nil, fmt.Errorf("rule of normalization %q: %w", r.Name, err)
		}
		n.rules = append(n.rules, always(r.Name, "", r.Pattern, r.Replace))
	}
	n.counts = make([]int, len(n.rules))
	return n, nil
}

// uncounted has the same rules and counts of its own.
func (n *Normalizer) uncounted() *Normalizer {
	return &Normalizer{rules: n.rules, counts: make([]int, len(n.counts))}
}

// rules are the rules of a context. A root is a whole path, not the beginning of another
// name.
func (c Context) rules() (all []rule) {
	var roots, rootHints, names, nameHints []string
	for _, root := range c.Roots {
		if root = path.Clean(root); path.IsAbs(root) && root != "/" {
			roots, rootHints = append(roots, regexp.QuoteMeta(root)), append(rootHints, string(lowered(nil, []byte(root))))
		}
	}
	for _, name := range c.Names {
		if len(name) >= minName {
			names, nameHints = append(names, regexp.QuoteMeta(name)), append(nameHints, string(lowered(nil, []byte(name))))
		}
	}
	anyOf := func(texts []string) string { // the longest first
		slices.SortStableFunc(texts, func(a, b string) int { return len(b) - len(a) })
		return `(?:` + strings.Join(texts, "|") + `)`
	}
	if len(roots) > 0 {
		all = append(all,
			always("repo-root-itself", strings.Join(rootHints, "|"), pathStart+anyOf(roots)+`($|[/.](?:[^\w./<]|$)|[^\w./@+%~-])`, "$1.$2"),
			always("repo-root", strings.Join(rootHints, "|"), pathStart+anyOf(roots)+`/+([\w.@+%~<-])`, "$1$2"))
	}
	if len(names) > 0 {
		all = append(all, always("given-name", strings.Join(nameHints, "|"), `\b`+anyOf(names)+`\b`, "<name>"))
	}
	return all
}

func (n *Normalizer) check(r evidence.Rule) error {
	switch {
	case r.Name == "":
		return errors.New("it has no name")
	case slices.ContainsFunc(n.rules, func(other rule) bool { return other.Name == r.Name }):
		return errors.New("the name is taken by another rule")
	case len(r.Pattern) > maxPattern || len(r.Replace) > maxPattern:
		return fmt.Errorf("pattern or replacement has more than %d bytes", maxPattern)
	case strings.ContainsAny(r.Replace, "\r\n"):
		return errors.New("the replacement has a line feed: rules change no lines")
	}
	re, err := regexp.Compile(r.Pattern)
	switch {
	case err != nil:
		return fmt.Errorf("pattern: %w", err)
	case re.MatchString(""):
		return errors.New("the pattern matches the empty text, and so everywhere")
	case !strings.Contains(r.Replace, "$") && re.MatchString(r.Replace):
		return fmt.Errorf("the replacement %q matches the pattern itself: normalizing twice would change the log", r.Replace)
	}
	return nil
}

// Text normalizes a text (RT-12, RO-08). Lines end with LF; a text without one at its end
// keeps it so.
func (n *Normalizer) Text(in []byte) []byte {
	var out bytes.Buffer
	_ = n.Copy(&out, bytes.NewReader(in)) // memory does not fail
	return out.Bytes()
}

// Copy normalizes a stream line by line, with bounded memory. Each write is one or more
// whole lines. Errors are those of the streams.
func (n *Normalizer) Copy(dst io.Writer, src io.Reader) error {
	lines := logline.NewReader(src, maxLine)
	var out bytes.Buffer
	for {
		piece, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out.Reset()
		n.piece(&out, piece)
		if _, err := dst.Write(out.Bytes()); err != nil {
			return err
		}
	}
}

// piece writes one piece of the log. A carriage return ends a line, as it does on a
// terminal; carriage returns before a line feed belong to it.
func (n *Normalizer) piece(out *bytes.Buffer, p logline.Piece) {
	line := p.Text
	if returns := bytes.Count(line, []byte("\r")); returns > 0 {
		n.returns += returns
		var last []byte
		for part := range bytes.SplitSeq(line, []byte("\r")) {
			if len(part) > 0 {
				if last != nil {
					n.line(out, last, "\n", 0)
				}
				last = part
			}
		}
		line = last
	}
	end := ""
	if p.More {
		line = append(slices.Clip(line), continues...)
	}
	if p.More || p.LF {
		end = "\n"
	}
	n.line(out, line, end, 0)
}

// line writes one line. If the placeholders make it too long, it continues in the next
// one, so that reading the result finds the same lines.
func (n *Normalizer) line(out *bytes.Buffer, line []byte, end string, depth int) {
	line = n.apply(line)
	for len(line) >= maxLine && depth < maxRounds {
		border := logline.Border(line[:maxLine-logline.Reserve])
		rest := slices.Clone(line[border:])
		n.line(out, append(slices.Clone(line[:border]), continues...), "\n", depth+1)
		line = n.apply(rest)
	}
	out.Write(line)
	out.WriteString(end)
}

// apply applies the rules in their order until nothing changes: a replacement can be the
// context of another match. The result is valid until the next call.
func (n *Normalizer) apply(line []byte) []byte {
	for range maxRounds {
		changed := false
		n.lower = lowered(n.lower[:0], line)
		for i := range n.rules {
			r := &n.rules[i]
			if !r.mayMatch(n.lower) {
				continue
			}
			var count int
			if n.b, count = r.replace(n.b[:0], line, n.lower); count == 0 || bytes.Equal(n.b, line) {
				continue
			}
			n.counts[i] += count
			n.a, n.b = n.b, n.a
			line, changed = n.a, true
			n.lower = lowered(n.lower[:0], line)
		}
		if !changed {
			return line
		}
	}
	n.unstable = true
	return line
}

// replace appends the line with all matches replaced to dst, and counts them.
func (r *rule) replace(dst, line, lower []byte) ([]byte, int) {
	matches := r.FindAllSubmatchIndex(line, -1)
	if len(matches) > 0 && slices.ContainsFunc(r.except, func(p pattern) bool { return p.mayMatch(lower) && p.Match(line) }) {
		// The time at the beginning of a line of a log is not a value of it.
		margin := len(line) - len(bytes.TrimLeft(line, " \t[("))
		for len(matches) > 0 && (len(r.except) == len(compared()) || matches[len(matches)-1][0] >= max(margin, 1)) {
			matches = matches[:len(matches)-1]
		}
	}
	from := 0
	for _, m := range matches {
		dst = append(dst, line[from:m[0]]...)
		dst = r.Expand(dst, []byte(r.Replace), line, m)
		from = m[1]
	}
	return append(dst, line[from:]...), len(matches)
}

// Counts are the rules in the order of their application, with the number of their
// replacements.
func (n *Normalizer) Counts() []evidence.RuleCount {
	all := []evidence.RuleCount{{Name: "carriage-return", Count: n.returns}}
	for i, r := range n.rules {
		all = append(all, evidence.RuleCount{Name: r.Name, Count: n.counts[i]})
	}
	return all
}
