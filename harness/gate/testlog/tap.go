package testlog

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// maxSubtests is how deep subtests of TAP may lie in each other.
const maxSubtests = 16

var (
	tapPoint = regexp.MustCompile(`^(not )?ok(?: +(\d+))?(?: +(.*))?$`)
	tapPlan  = regexp.MustCompile(`^1\.\.(\d+)(?: *(?:#.*)?)$`)
	// tapDirective ends a description. TAP 14 escapes a '#' that does not begin one.
	tapDirective = regexp.MustCompile(`(?i)(?:^|[^\\])# *(skip|todo)(?:\S*)(.*)$`)
)

// tapLines reads TAP of versions 12 to 14: points, plans, directives, YAML blocks,
// subtests indented by four spaces.
type tapLines struct {
	keeper
	version bool
	problem string
	levels  [maxSubtests + 1]tapLevel
	depth   int
	// yaml is the indentation of an open YAML block; 0 without one.
	yaml int
	// point says that the last line was a test point: a YAML block may follow.
	point  bool
	bailed bool
	// numbered says that a point which failed has a number: a text has that hardly.
	numbered bool
}

// tapLevel is a list of test points with its plan.
type tapLevel struct {
	name    string // of the subtest
	next    string // name of the subtest that comes
	planned bool
	plan    int
	seen    int
}

func (t *tapLines) line(line []byte) {
	text := bytes.TrimLeft(line, " ")
	indent := len(line) - len(text)
	if t.yaml > 0 {
		if indent >= t.yaml && string(text) != "..." || len(text) == 0 {
			return
		}
		t.yaml = 0
		if string(text) == "..." {
			return
		}
		t.tell("a YAML block has no end")
	}
	afterPoint := t.point
	t.point = false
	if afterPoint && indent == 4*t.depth+2 && string(text) == "---" {
		t.yaml = indent
		return
	}
	if len(text) == 0 || indent%4 != 0 || indent/4 > maxSubtests || t.bailed {
		return
	}
	t.at(indent/4, string(bytes.TrimRight(text, " \t")))
}

// at takes a line of a level.
func (t *tapLines) at(depth int, text string) {
	switch text[0] {
	case 'T':
		t.version = t.version || depth == 0 && strings.HasPrefix(text, "TAP version ")
	case '#':
		if title, ok := strings.CutPrefix(text, "# Subtest: "); ok {
			t.subtest(depth, title)
		}
	case 'B':
		if reason, ok := strings.CutPrefix(text, "Bail out!"); ok && (t.version || t.counts.Total > 0 || t.levels[0].planned) {
			t.bailed = true
			t.tell("the tests bailed out:" + clip(reason, 200))
			t.add(evidence.Case{ID: "Bail out!", Outcome: evidence.Errored, Message: strings.TrimSpace(reason)})
		}
	case '1':
		if m := tapPlan.FindStringSubmatch(text); m != nil {
			t.planned(depth, m[1])
		}
	case 'o', 'n':
		if m := tapPoint.FindStringSubmatch(text); m != nil {
			t.testPoint(depth, m[1] == "", m[2], m[3])
		}
	}
}

// subtest takes the comment that names a subtest. It stands at the level of its parent,
// or is the first line of the subtest itself.
func (t *tapLines) subtest(depth int, title string) {
	if depth == t.depth+1 {
		t.open(depth)
		t.levels[depth].name = title
		return
	}
	t.close(depth)
	t.levels[depth].next = title
}

// open begins levels down to depth.
func (t *tapLines) open(depth int) {
	for t.depth < depth {
		parent := &t.levels[t.depth]
		name := parent.next
		if name == "" {
			name = "subtest " + strconv.Itoa(parent.seen+1)
		}
		parent.next = ""
		t.depth++
		t.levels[t.depth] = tapLevel{name: name}
	}
}

// close ends all levels below depth.
func (t *tapLines) close(depth int) {
	for t.depth > depth {
		t.check(t.levels[t.depth])
		t.levels[t.depth] = tapLevel{}
		t.depth--
	}
}

func (t *tapLines) planned(depth int, number string) {
	t.open(depth)
	t.close(depth)
	level := &t.levels[depth]
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n > maxCount:
		t.tell("a plan counts too many tests")
	case level.planned:
		t.tell("TAP has two plans for the same tests")
	}
	level.planned, level.plan = true, n
}

func (t *tapLines) testPoint(depth int, ok bool, number, description string) {
	t.open(depth)
	t.close(depth)
	level := &t.levels[depth]
	level.next = ""
	level.seen++
	if n, err := strconv.Atoi(number); number != "" && (err != nil || n != level.seen) && depth == 0 {
		t.tell(fmt.Sprintf("test point %s is out of sequence: it is number %d", clip(number, 20), level.seen))
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
	for d := 1; d <= depth; d++ {
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
		t.numbered = t.numbered || number != ""
	case directive == "skip":
		c.Outcome = evidence.Skipped
	default:
		c.Outcome = evidence.Passed
	}
	t.point = true
	t.add(c)
}

// check compares a list with its plan.
func (t *tapLines) check(level tapLevel) {
	what := "TAP"
	if level.name != "" {
		what = "subtest " + strconv.Quote(clip(level.name, 100))
	}
	switch {
	case level.seen == 0 && !level.planned:
	case !level.planned:
		t.tell(what + " has no plan: tests may be missing")
	case level.plan != level.seen:
		t.tell(fmt.Sprintf("%s plans %d tests and has %d", what, level.plan, level.seen))
	}
}

func (t *tapLines) end() {
	if t.bailed {
		return
	}
	if t.yaml > 0 {
		t.tell("a YAML block has no end, so that test points may lie in it")
	}
	if t.depth > 0 {
		t.tell("a subtest has no end")
	}
	t.close(0)
	t.check(t.levels[0])
}

// tell keeps the first problem.
func (t *tapLines) tell(problem string) {
	if t.problem == "" {
		t.problem = problem
	}
}

// looksReal says that the lines are TAP, and no text that happens to have an "ok".
func (t *tapLines) looksReal() bool {
	return t.version || t.levels[0].planned && t.levels[0].seen > 0
}
