package testreport

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// maxSubtests bounds how deep subtests of TAP are nested.
const maxSubtests = 16

var (
	tapPoint = regexp.MustCompile(`^(not )?ok(?: +(\d+))?(?: +(.*))?$`)
	tapPlan  = regexp.MustCompile(`^1\.\.(\d+)(?: *(?:#.*)?)$`)
	// tapDirective ends a description. TAP 14 escapes a '#' that does not begin one.
	tapDirective = regexp.MustCompile(`(?i)(?:^|[^\\])# *(skip|todo)(?:\S*)(.*)$`)
)

// tapLines reads TAP of versions 12 to 14: test points, plans, directives, YAML blocks,
// and subtests, which are indented by four spaces.
type tapLines struct {
	keeper
	version, bailed bool
	levels          [maxSubtests + 1]tapLevel
	depth           int
	// yaml is the indentation of an open YAML block, 0 without one. One can follow
	// afterPoint.
	yaml       int
	afterPoint bool
}

// tapLevel is a list of test points with its plan.
type tapLevel struct {
	name, nextName string // of the subtest, and of the next subtest in it
	planned        bool
	plan, seen     int
}

func (t *tapLines) line(line []byte) {
	trimmed := bytes.TrimLeft(line, " ")
	indent := len(line) - len(trimmed)
	if t.yaml > 0 {
		end := string(trimmed) == "..."
		if len(trimmed) == 0 || indent >= t.yaml && !end {
			return
		}
		t.yaml = 0
		if end {
			return
		}
		t.fail("a YAML block has no end")
	}
	afterPoint := t.afterPoint
	t.afterPoint = false
	switch {
	case afterPoint && indent == 4*t.depth+2 && string(trimmed) == "---":
		t.yaml = indent
	case len(trimmed) > 0 && indent%4 == 0 && indent/4 <= maxSubtests && !t.bailed:
		t.content(indent/4, string(bytes.TrimRight(trimmed, " \t")))
	}
}

// content reads a line of a level without its indentation.
func (t *tapLines) content(depth int, line string) {
	switch line[0] {
	case 'T':
		t.version = t.version || depth == 0 && strings.HasPrefix(line, "TAP version ")
	case '#':
		// The comment stands at the level of its parent, or is the first line of the subtest.
		if name, ok := strings.CutPrefix(line, "# Subtest: "); ok && depth == t.depth+1 {
			t.move(depth)
			t.levels[depth].name = name
		} else if ok {
			t.leave(depth)
			t.levels[depth].nextName = name
		}
	case 'B':
		if reason, ok := strings.CutPrefix(line, "Bail out!"); ok && (t.version || t.counts.Total > 0 || t.levels[0].planned) {
			t.bailed = true
			t.fail("the tests bailed out:%s", text.Short(reason, 200))
			t.add(evidence.Case{ID: "Bail out!", Outcome: evidence.Errored, Message: strings.TrimSpace(reason)})
		}
	case '1':
		if m := tapPlan.FindStringSubmatch(line); m != nil {
			t.move(depth)
			level := &t.levels[depth]
			n, err := strconv.Atoi(m[1])
			if err != nil || n > maxCount {
				t.fail("a plan counts too many tests")
			} else if level.planned {
				t.fail("TAP has two plans for the same tests")
			}
			level.planned, level.plan = true, n
		}
	case 'o', 'n':
		if m := tapPoint.FindStringSubmatch(line); m != nil {
			t.move(depth)
			t.testPoint(m[1] == "", m[2], m[3])
		}
	}
}

// move opens and closes levels until depth is the current one.
func (t *tapLines) move(depth int) {
	t.leave(depth)
	for t.depth < depth {
		parent := &t.levels[t.depth]
		name := parent.nextName
		if name == "" {
			name = "subtest " + strconv.Itoa(parent.seen+1)
		}
		parent.nextName = ""
		t.depth++
		t.levels[t.depth] = tapLevel{name: name}
	}
}

// leave closes all levels below depth.
func (t *tapLines) leave(depth int) {
	for t.depth > depth {
		t.comparePlan(t.levels[t.depth])
		t.depth--
	}
}

func (t *tapLines) testPoint(ok bool, number, description string) {
	level := &t.levels[t.depth]
	level.nextName = ""
	level.seen++
	if n, err := strconv.Atoi(number); number != "" && (err != nil || n != level.seen) && t.depth == 0 {
		t.fail("test point %s is out of sequence: it is number %d", text.Short(number, 20), level.seen)
	}
	directive, reason := "", ""
	if m := tapDirective.FindStringSubmatchIndex(description); m != nil {
		directive, reason = strings.ToLower(description[m[2]:m[3]]), strings.TrimSpace(description[m[4]:m[5]])
		description = description[:m[0]+strings.IndexByte(description[m[0]:], '#')]
	}
	title := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(description), "- "))
	if title == "" || title == "-" {
		title = "test " + strconv.Itoa(level.seen)
	}
	var suite []string
	for d := 1; d <= t.depth; d++ {
		suite = append(suite, t.levels[d].name)
	}
	c := evidence.Case{ID: strings.Join(append(suite, title), " > "), Suite: strings.Join(suite, " > "), Name: title, Message: reason}
	switch {
	case directive == "todo" && ok:
		c.Outcome = evidence.XPassed
	case directive == "todo":
		c.Outcome = evidence.XFailed
	case !ok:
		c.Outcome = evidence.Failed
	case directive == "skip":
		c.Outcome = evidence.Skipped
	default:
		c.Outcome = evidence.Passed
	}
	t.afterPoint = true
	t.add(c)
}

func (t *tapLines) comparePlan(level tapLevel) {
	subject := "TAP"
	if level.name != "" {
		subject = "subtest " + text.Quote(level.name, 100)
	}
	switch {
	case level.seen == 0 && !level.planned:
	case !level.planned:
		t.fail("%s has no plan: tests may be missing", subject)
	case level.plan != level.seen:
		t.fail("%s plans %d tests and has %d", subject, level.plan, level.seen)
	}
}

// end is the end of the stream.
func (t *tapLines) end() {
	if t.bailed {
		return
	}
	if t.yaml > 0 {
		t.fail("a YAML block has no end, so that test points may be in it")
	}
	if t.depth > 0 {
		t.fail("a subtest has no end")
	}
	t.leave(0)
	t.comparePlan(t.levels[0])
}

// found reports whether the lines are TAP, and not other text with an "ok".
func (t *tapLines) found() bool { return t.counts.Total > 0 || t.levels[0].planned }
