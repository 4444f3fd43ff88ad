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
	// maxLine bounds the memory for one line. A longer one goes on in the next line,
	// with [goesOn] at its end.
	maxLine = 1 << 20
	// maxPasses is how often the rules are applied to one line until nothing changes.
	maxPasses = 8
	// maxRules and maxPattern bound the rules of a wish.
	maxRules   = 200
	maxPattern = 1000
	// minName is the shortest name that is replaced wherever it stands.
	minName = 4
	// afterControls is the place in the built-in rules where those of the context come.
	afterControls = 2
)

const goesOn = "<line goes on>"

// Names of the rules that a [Context] makes.
const (
	rootRule = "repo-root"
	nameRule = "given-name"
)

// Context is what differs from gate to gate.
type Context struct {
	// Roots are absolute paths of the repository; paths below them become relative.
	Roots []string
	// Names are names of this run alone, such as those of runs, containers and hosts.
	Names []string
}

// Normalizer applies rules and counts them. It is not safe for concurrent use.
type Normalizer struct {
	rules    []rule
	counts   []int
	unstable bool
	// a and b hold a line before and after a rule, lines and out what was read and what
	// is to be written.
	a, b  []byte
	lines *logline.Reader
	out   bytes.Buffer
}

// New makes a normalizer with the built-in rules, those of the context, and then the
// given ones: they see what the log shows, and so can be written by looking at it.
//
// A rule needs a name of its own. It is refused if its pattern is no RE2 expression or
// matches the empty text, and if its replacement has a line feed or matches its own
// pattern, since normalizing twice would then change the log.
func New(rules []evidence.Rule, c Context) (*Normalizer, error) {
	n := &Normalizer{}
	n.rules = append(n.rules, compiled()[:afterControls]...)
	n.context(c)
	n.rules = append(n.rules, compiled()[afterControls:]...)
	if len(rules) > maxRules {
		return nil, fmt.Errorf("there are %d rules of normalization, more than %d", len(rules), maxRules)
	}
	for _, r := range rules {
		compiled, err := n.given(r)
		if err != nil {
			return nil, fmt.Errorf("rule of normalization %q: %w", r.Name, err)
		}
		n.rules = append(n.rules, compiled)
	}
	n.counts = make([]int, len(n.rules))
	return n, nil
}

// context adds the rules of a context.
func (n *Normalizer) context(c Context) {
	var roots, names []string
	for _, root := range c.Roots {
		if root = path.Clean(root); path.IsAbs(root) && root != "/" {
			roots = append(roots, regexp.QuoteMeta(root))
		}
	}
	for _, name := range c.Names {
		if len(name) >= minName {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	longestFirst := func(a, b string) int { return len(b) - len(a) }
	if slices.SortStableFunc(roots, longestFirst); len(roots) > 0 {
		all := `(?:` + strings.Join(roots, "|") + `)`
		n.rules = append(n.rules,
			rule{Rule: evidence.Rule{Name: rootRule + "-itself", Pattern: all, Replace: "."}, need: hasSlash, left: pathBegins, right: rootEnds}.compiled(),
			rule{Rule: evidence.Rule{Name: rootRule, Pattern: all + `/+([\w.@+%~<-])`, Replace: "$1"}, need: hasSlash, left: pathBegins}.compiled())
	}
	if slices.SortStableFunc(names, longestFirst); len(names) > 0 {
		n.rules = append(n.rules,
			rule{Rule: evidence.Rule{Name: nameRule, Pattern: `(?:` + strings.Join(names, "|") + `)`, Replace: "<name>"}, left: wordBegins, right: wordEnds}.compiled())
	}
}

// rootEnds: the path is the root itself, not one below it, nor another one that begins
// like it.
func rootEnds(line []byte, at int) bool {
	switch b := after(line, at); b {
	case '/', '.':
		next := after(line, at+1)
		return !isWord(next) && next != '.' && next != '/' && next != '<'
	case '-', '@', '+', '%', '~':
		return false
	default:
		return !isWord(b)
	}
}

// given checks a rule of a wish.
func (n *Normalizer) given(r evidence.Rule) (rule, error) {
	taken := func(other rule) bool { return other.Name == r.Name }
	switch {
	case r.Name == "":
		return rule{}, errors.New("it has no name")
	case slices.ContainsFunc(n.rules, taken):
		return rule{}, errors.New("the name is taken by another rule")
	case len(r.Pattern) > maxPattern || len(r.Replace) > maxPattern:
		return rule{}, fmt.Errorf("pattern or replacement has more than %d bytes", maxPattern)
	case strings.ContainsAny(r.Replace, "\r\n"):
		return rule{}, errors.New("the replacement has a line feed: rules change no lines")
	}
	re, err := regexp.Compile(r.Pattern)
	if err != nil {
		return rule{}, fmt.Errorf("pattern: %w", err)
	}
	if re.MatchString("") {
		return rule{}, errors.New("the pattern matches the empty text, and so everywhere")
	}
	if !strings.Contains(r.Replace, "$") && re.MatchString(r.Replace) {
		return rule{}, fmt.Errorf("the replacement %q matches the pattern itself: normalizing twice would change the log", r.Replace)
	}
	return rule{Rule: r, re: re}, nil
}

// Text normalizes a text (RT-12, RO-08). Lines end with LF; a text without one at its end
// keeps it so.
func (n *Normalizer) Text(in []byte) []byte {
	var out bytes.Buffer
	// Neither reading from nor writing to memory fails.
	_ = n.Copy(&out, bytes.NewReader(in))
	return out.Bytes()
}

// Copy normalizes a stream, line by line, with bounded memory. Its errors are those of
// the streams.
func (n *Normalizer) Copy(dst io.Writer, src io.Reader) error {
	if n.lines == nil {
		n.lines = logline.NewReader(src, maxLine)
	}
	n.lines.Reset(src)
	for {
		piece, err := n.lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n.out.Reset()
		n.piece(&n.out, piece)
		if _, err := dst.Write(n.out.Bytes()); err != nil {
			return err
		}
	}
}

// piece writes one piece of the log. Carriage returns end lines, as they do on a
// terminal; those before a line feed are a part of it.
func (n *Normalizer) piece(out *bytes.Buffer, p logline.Piece) {
	text := p.Text
	if crs := bytes.Count(text, []byte("\r")); crs > 0 {
		n.counts[0] += crs
		var last []byte
		for part := range bytes.SplitSeq(text, []byte("\r")) {
			if len(part) == 0 {
				continue
			}
			if last != nil {
				n.line(out, last, "\n", 0)
			}
			last = part
		}
		text = last
	}
	switch {
	case p.More:
		n.line(out, append(slices.Clip(text), goesOn...), "\n", 0)
	case p.LF:
		n.line(out, text, "\n", 0)
	default:
		n.line(out, text, "", 0)
	}
}

// line writes one line. If the placeholders made it too long it goes on in the next one,
// so that reading the result again finds the same lines.
func (n *Normalizer) line(out *bytes.Buffer, line []byte, end string, depth int) {
	line = n.stable(line)
	for len(line) >= maxLine && depth < maxPasses {
		border := logline.Border(line[:maxLine-logline.Reserve])
		rest := slices.Clone(line[border:])
		n.line(out, append(slices.Clone(line[:border]), goesOn...), "\n", depth+1)
		line = n.stable(rest)
	}
	out.Write(line)
	out.WriteString(end)
}

// stable applies the rules until nothing changes: one replacement can uncover another.
// The result is valid until the next call.
func (n *Normalizer) stable(line []byte) []byte {
	for range maxPasses {
		changed := false
		has, keep, looked := featuresOf(line), false, false
		for i := range n.rules {
			r := &n.rules[i]
			if !r.mayMatch(line, has) {
				continue
			}
			if r.keeps && !looked {
				keep, looked = valuesMatter(line), true
			}
			var count int
			if n.b, count = r.apply(n.b[:0], line, keep); count > 0 {
				if bytes.Equal(n.b, line) {
					continue // replaced by itself
				}
				n.counts[i] += count
				n.a, n.b = n.b, n.a
				line, changed, looked = n.a, true, false
				has = featuresOf(line)
			}
		}
		if !changed {
			return line
		}
	}
	n.unstable = true
	return line
}

// Counts are the rules in the order of their application, with how often each was.
func (n *Normalizer) Counts() []evidence.RuleCount {
	all := make([]evidence.RuleCount, 0, len(n.rules))
	for i, r := range n.rules {
		all = append(all, evidence.RuleCount{Name: r.Name, Count: n.counts[i]})
	}
	return all
}
