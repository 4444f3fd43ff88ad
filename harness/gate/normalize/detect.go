package normalize

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

const (
	// maxSuspects is how many suspects are kept; all are counted.
	maxSuspects = 100
	// maxSuspect bounds the text of one.
	maxSuspect = 200
)

// detectors look for what no rule took. Where a rule demands a certain surrounding,
// they demand less.
var detectors = func() []detectorRule {
	all := []detectorRule{
		{rule: rule{Rule: evidence.Rule{Name: "clock", Pattern: clock}, need: hasClock, left: looseClockBegins, right: looseClockEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "clock", Pattern: `(?i)\btime(?:=|: ?)\d\d?:\d\d\b`}, need: hasClock}},
		{rule: rule{Rule: evidence.Rule{Name: "epoch", Pattern: `(?i)(?:time|stamp|epoch|\bdate|_date|\bnow|\bts|\bat|\bsince|\buntil)\b[^0-9]{0,20}1[4-9]\d{8}(?:\d{3}|\d{6}|\d{9})?`}, need: hasLong, left: notPlaceholder, right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "address", Pattern: `(?i)(?:\bat|addr|address|ptr|pointer)[ =:]{1,3}0x[0-9a-f]{6,16}`}, need: hasHex, right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "address", Pattern: `0x[0-9a-fA-F]{8,16}`}, need: hasHex, right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "address", Pattern: `\bid[=: (]{1,2}1[34]\d{13}`}, need: hasLong, right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "uuid", Pattern: `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`}, need: hasDashes}},
		{rule: rule{Rule: evidence.Rule{Name: "uuid", Pattern: `(?i)\b(?:uuid|guid|(?:run|request|trace|session)[ _-]?id)["']?(?:=|: ?| )["']?[0-9a-f]{32}`}, need: hasDigit, any: literals("uid", "UID", "_id", "-id", " id", "Id", "ID"), right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "token", Pattern: `(?i)\b(?:token|nonce|salt)["']?(?:=|: ?| )["']?[0-9a-f]{16,}`}, need: hasDigit, any: literals("oken", "OKEN", "once", "ONCE", "salt", "Salt", "SALT"), right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "port", Pattern: `(?i)\bport(?:=|: ?| )(?:3[3-9]\d{3}|[45]\d{4}|6[0-5]\d{3})`}, need: hasDigit, any: literals("port", "Port", "PORT"), right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "pid", Pattern: `(?i)\b(?:p?pid|tid|(?:process|thread)[ _-]?id)\b[^0-9\w<]{0,5}\d{2,}`}, need: hasDigit, any: literals("pid", "PID", "Pid", "tid", "TID", "rocess", "hread"), right: wordEnds}},
		{rule: rule{Rule: evidence.Rule{Name: "tmp", Pattern: temporary + `/[\w.-]+`}, need: hasSlash, any: literals("/tmp/", "/shm/", "/T/"), left: pathBegins}, looks: randomName},
		{rule: rule{Rule: evidence.Rule{Name: "tmp", Pattern: `\btmp[a-z0-9]{8}\b`}, any: literals("tmp")}, looks: randomName},
		{rule: rule{Rule: evidence.Rule{Name: "tmp", Pattern: `\bgo-build\d{6,}|\bpytest-of-[^/\s'"]+/pytest-\d+`}, any: literals("go-build", "pytest-of-")}},
		{rule: rule{Rule: evidence.Rule{Name: "control", Pattern: `\x1b`}, need: hasEscape}},
	}
	for i := range all {
		all[i].rule = all[i].compiled()
	}
	return all
}()

// detectorRule is a rule that only looks. looks is a further test of what was found.
type detectorRule struct {
	rule
	looks func(found []byte) bool
}

// looseClockBegins passes over indices and parts of longer numbers only.
func looseClockBegins(line []byte, at int) bool {
	b := before(line, at)
	return !isDigit(b) && b != ':' && b != '.' && b != '['
}

func looseClockEnds(line []byte, at int) bool {
	b := after(line, at)
	return !isDigit(b) && b != ':'
}

func notPlaceholder(line []byte, at int) bool { return before(line, at) != '<' }

// randomName says that the end of a name looks drawn by lot: among its last eight
// characters letters and digits change at least three times, or upper and lower case
// and digits are mixed.
func randomName(found []byte) bool {
	name := found[bytes.LastIndexByte(found, '/')+1:]
	name = name[max(0, len(name)-8):]
	if len(name) < 6 {
		return false
	}
	changes, kinds := 0, 0
	last := kind(name[0])
	for _, b := range name {
		k := kind(b)
		kinds |= k
		if k != last && k != 0 && last != 0 && (k == digits) != (last == digits) {
			changes++
		}
		last = k
	}
	return changes >= 3 || kinds == digits|uppers|lowers && changes >= 2
}

const (
	digits = 1 << iota
	uppers
	lowers
)

func kind(b byte) int {
	switch {
	case isDigit(b):
		return digits
	case b >= 'A' && b <= 'Z':
		return uppers
	case b >= 'a' && b <= 'z':
		return lowers
	}
	return 0
}

// Detect finds places of a normalized text that still look as if they change from run to
// run: the first hundred, and the number of all (RT-08, NONDETERMINISTIC_LOG_FIELDS_UNSCRUBBED).
// Lines count from 1. What one of the allowed patterns (RE2) matches is passed
// over; a pattern that is none allows nothing.
func Detect(text []byte, allowed []string) ([]evidence.Suspect, int) {
	d := detection{allowed: patternsOf(allowed)}
	for line := range bytes.Lines(text) {
		d.look(bytes.TrimSuffix(line, []byte("\n")))
	}
	return d.suspects, d.total
}

// patternsOf leaves out what is no pattern; a wish with such a one is not sealed.
func patternsOf(allowed []string) (all []*regexp.Regexp) {
	for _, a := range allowed {
		if re, err := regexp.Compile(a); a != "" && err == nil {
			all = append(all, re)
		}
	}
	return all
}

// detection looks at a log line by line, also at lines that the rules leave alone.
type detection struct {
	allowed []*regexp.Regexp
	// names are names of test cases by what looks suspicious in them. They say what is
	// tested; that they are the same in every run is compared case by case.
	names    map[string][][]byte
	line     int
	suspects []evidence.Suspect
	total    int
}

// look takes the next line.
func (d *detection) look(line []byte) {
	d.line++
	for _, m := range suspicious(line) {
		if !d.inName(line, m) {
			d.suspect(m.detector, line[m.from:m.to])
		}
	}
}

// place is where a detector found something.
type place struct {
	detector string
	from, to int
}

// suspicious are the places of a line that look as if they change.
func suspicious(line []byte) (found []place) {
	has := featuresOf(line)
	var taken [][]int
	for i := range detectors {
		r := &detectors[i]
		if !r.mayMatch(line, has) {
			continue
		}
		for _, m := range r.matches(line, false) {
			if overlaps(taken, m) || r.looks != nil && !r.looks(line[m[0]:m[1]]) {
				continue
			}
			taken = append(taken, m)
			found = append(found, place{r.Name, m[0], m[1]})
		}
	}
	return found
}

// maxNames bounds how many names are compared with one place.
const maxNames = 50

// know takes the name of a test case.
func (d *detection) know(name string) {
	text := []byte(name)
	for _, m := range suspicious(text) {
		key := string(text[m.from:m.to])
		if d.names == nil {
			d.names = map[string][][]byte{}
		}
		if len(d.names[key]) < maxNames {
			d.names[key] = append(d.names[key], text)
		}
	}
}

// inName says that a place is a part of the name of a test case.
func (d *detection) inName(line []byte, m place) bool {
	for _, name := range d.names[string(line[m.from:m.to])] {
		for from := max(0, m.to-len(name)); ; from++ {
			at := bytes.Index(line[from:min(len(line), m.from+len(name))], name)
			if at < 0 {
				break
			}
			if from += at; from <= m.from && m.to <= from+len(name) {
				return true
			}
		}
	}
	return false
}

// overlaps says that a place was found already.
func overlaps(taken [][]int, m []int) bool {
	for _, t := range taken[max(0, len(taken)-maxSuspects):] {
		if m[0] < t[1] && t[0] < m[1] {
			return true
		}
	}
	return false
}

func (d *detection) suspect(detector string, found []byte) {
	text := strings.ToValidUTF8(string(found), string(utf8.RuneError))
	for _, a := range d.allowed {
		if a.MatchString(text) {
			return
		}
	}
	d.total++
	if len(d.suspects) < maxSuspects {
		d.suspects = append(d.suspects, evidence.Suspect{Detector: detector, Line: d.line, Text: clip(text, maxSuspect)})
	}
}

// clip is the beginning of a text, with an ellipsis if it goes on.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
