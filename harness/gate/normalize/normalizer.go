// Package normalize rewrites logs so that two runs of the same program have equal ones
// (RT-06, RT-12, RO-08), and finds values that may still differ.
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
	// Cases says that a report of pytest has the outcome of each test. The letters of pytest-xdist become
	// their counts then.
	Cases bool
}

// Normalizer applies rules and counts them. It is not safe for concurrent use.
type Normalizer struct {
	rules    []rule
	counts   []int
	returns  int // carriage returns
	slowest  slowest
	progress progress
	unstable bool
	// a and b hold a line before and after a rule, shape has its [shape].
	a, b, shape []byte
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
	n := &Normalizer{rules: slices.Concat([]rule{always("control-sequence", "\x1b|\u009b", logline.ControlPattern, "")}, c.rules(), builtin())}
	for _, r := range rules {
		if err := n.check(r); err != nil {
			return nil, fmt.Errorf("rule of normalization %q: %w", r.Name, err)
		}
		n.rules = append(n.rules, always(r.Name, "", r.Pattern, r.Replace))
	}
	n.counts = make([]int, len(n.rules))
	n.progress.on = c.Cases
	return n, nil
}

// rules are the rules of a context. A root is a whole path, not the beginning of another
// name.
func (c Context) rules() (all []rule) {
	var roots []string
	for _, root := range c.Roots {
		if root = path.Clean(root); path.IsAbs(root) && root != "/" {
			roots = append(roots, root)
		}
	}
	if len(roots) > 0 {
		hints, anyRoot := anyOf(roots)
		all = append(all,
			always("repo-root-itself", hints, pathStart+anyRoot+`($|[/.](?:[^\w./<]|$)|[^\w./@+%~-])`, "$1.$2"),
			always("repo-root", hints, pathStart+anyRoot+`/+([\w.@+%~<-])`, "$1$2"))
	}
	if names := slices.DeleteFunc(slices.Clone(c.Names), func(name string) bool { return len(name) < minName }); len(names) > 0 {
		hints, anyName := anyOf(names)
		all = append(all, always("given-name", hints, `\b`+anyName+`\b`, "<name>"))
	}
	return all
}

// anyOf returns the hints and an expression for texts, the longest first.
func anyOf(texts []string) (hints, expression string) {
	slices.SortStableFunc(texts, func(a, b string) int { return len(b) - len(a) })
	hints = strings.Join(texts, "|")
	for i, text := range texts {
		texts[i] = regexp.QuoteMeta(text)
	}
	return hints, `(?:` + strings.Join(texts, "|") + `)`
}

func (n *Normalizer) check(r evidence.Rule) error {
	switch {
	case r.Name == "":
		return errors.New("it has no name")
	case slices.ContainsFunc(n.rules, func(other rule) bool { return other.name == r.Name }):
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
//
// A carriage return ends a line, as it does on a terminal; carriage returns before a line
// feed belong to it.
func (n *Normalizer) Copy(dst io.Writer, src io.Reader) error {
	var out bytes.Buffer
	n.slowest.inside, n.progress.inside = false, false
	err := logline.Pieces(src, maxLine, func(piece []byte, more bool) error {
		out.Reset()
		text, end := bytes.TrimSuffix(piece, []byte("\n")), ""
		if more || len(text) < len(piece) {
			end = "\n"
		}
		n.returns += bytes.Count(text, []byte("\r"))
		parts := bytes.FieldsFunc(text, func(r rune) bool { return r == '\r' })
		for len(parts) > 1 {
			n.line(&out, parts[0], "\n", 0)
			parts = parts[1:]
		}
		last := slices.Concat(parts...) // empty without any
		if more {
			last = append(last, continues...)
		}
		n.line(&out, last, end, 0)
		_, err := dst.Write(out.Bytes())
		return err
	})
	out.Reset()
	n.progress.flush(&out)
	if err == nil && out.Len() > 0 {
		_, err = dst.Write(out.Bytes())
	}
	return err
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
	if line, ok := n.slowest.take(line); ok {
		n.progress.take(out, line, end)
	}
}

// apply applies the rules in their order until nothing changes: a replacement can be the
// context of another match. The result is valid until the next call.
func (n *Normalizer) apply(line []byte) []byte {
	after := n.look(line)
	for range maxRounds {
		changed := false
		for i, r := range n.rules {
			if !r.mayMatch(n.shape) {
				continue
			}
			var count int
			if n.b, count = r.replaceAll(n.b[:0], line, n.shape, after); count == 0 || bytes.Equal(n.b, line) {
				continue
			}
			n.counts[i] += count
			n.a, n.b = n.b, n.a
			line, changed = n.a, true
			after = n.look(line)
		}
		if !changed {
			return line
		}
	}
	n.unstable = true
	return line
}

// look sets the shape of a line, and returns where the text after the name of a test begins.
func (n *Normalizer) look(line []byte) int {
	n.shape = shape(n.shape[:0], line)
	if name := testName(); name.mayMatch(n.shape) {
		return len(name.Find(line))
	}
	return 0
}

// replaceAll appends the line with all matches replaced to dst, and counts them. after is where the text
// after the name of a test begins.
func (r *rule) replaceAll(dst, line, shape []byte, after int) ([]byte, int) {
	if !r.split || after == 0 {
		return r.replaceIn(dst, line, shape)
	}
	dst, first := r.replaceIn(dst, line[:after], shape[:after])
	dst, second := r.replaceIn(dst, line[after:], shape[after:])
	return dst, first + second
}

func (r *rule) replaceIn(dst, line, shape []byte) ([]byte, int) {
	matches := r.FindAllSubmatchIndex(line, -1)
	if len(matches) > 0 && slices.ContainsFunc(r.except, func(p pattern) bool { return p.mayMatch(shape) && p.Match(line) }) {
		margin := len(line) - len(bytes.TrimLeft(line, " \t[("))
		last := margin // where a match can begin that leads the line; after an indent it can be a value
		if bytes.ContainsAny(line[:margin], " \t") {
			last--
		}
		matches = slices.DeleteFunc(matches, func(m []int) bool { return !r.leads || m[0] > last })
	}
	from := 0
	for _, m := range matches {
		dst = append(dst, line[from:m[0]]...)
		dst = r.Expand(dst, []byte(r.replace), line, m)
		from = m[1]
	}
	return append(dst, line[from:]...), len(matches)
}

// Counts are the rules in the order of their application, with the number of their
// replacements.
func (n *Normalizer) Counts() []evidence.RuleCount {
	all := []evidence.RuleCount{{Name: "carriage-return", Count: n.returns}, {Name: "slowest-tests", Count: n.slowest.count}, {Name: "xdist-progress", Count: n.progress.lines}}
	for i, r := range n.rules {
		all = append(all, evidence.RuleCount{Name: r.name, Count: n.counts[i]})
	}
	return all
}
