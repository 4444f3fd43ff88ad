package normalize

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxSuspects is how many suspects are kept; all are counted.
	maxSuspects = 100
	// maxSuspect bounds the text of one, in bytes.
	maxSuspect = 200
	// maxNames bounds how many names of tests are compared with one suspect.
	maxNames = 50
)

// leftover finds a value. If there is a check, the value is one only if it passes.
type leftover struct {
	detector string
	pattern
	check func(found []byte) bool
}

// leftovers find values like those that the rules replace, in any context. If an
// expression has a group, the group is the value.
var leftovers = sync.OnceValue(func() []leftover {
	return []leftover{
		{"clock", compile(clockHint, `(?:^|[^\d:.\[])(`+clock+`)(?:$|[^\d:])`), nil},
		{"clock", compile("time", `(?i)\btime(?:=|: ?)\d\d?:\d\d\b`), nil},
		{"epoch", compile("0000000000", `(?i)(?:^|[^<])((?:time|stamp|epoch|\bdate|_date|\bnow|\bts|\bat|\bsince|\buntil)\b[^0-9]{0,20}1[4-9]\d{8}(?:\d{3}|\d{6}|\d{9})?)\b`), nil},
		{"address", compile("0x", `(?i)(?:\bat|addr|address|ptr|pointer)[ =:]{1,3}0x[0-9a-f]{6,16}\b`), nil},
		{"address", compile("0x", `0x[0-9a-fA-F]{8,16}\b`), nil},
		{"address", compile("id", `\bid[=: (]{1,2}1[34]\d{13}\b`), nil},
		{"uuid", compile("-", uuid), nil},
		{"uuid", compile("id", `(?i)\b(?:uuid|guid|(?:run|request|trace|session)[ _-]?id)["']?(?:=|: ?| )["']?[0-9a-f]{32}\b`), nil},
		{"token", compile("token|nonce|salt", `(?i)\b(?:token|nonce|salt)["']?(?:=|: ?| )["']?[0-9a-f]{16,}\b`), nil},
		{"port", compile("port", `(?i)\bport(?:=|: ?| )(?:3[3-9]\d{3}|[45]\d{4}|6[0-5]\d{3})\b`), nil},
		{"pid", compile("pid|tid|process|thread", `(?i)(?:^|[^\w<])((?:p?pid|tid|(?:process|thread)[ _-]?id)\b(?:[^0-9\w<]{0,5}\d{2,}|["']?(?: ?(?:[:=#(\[]|->) ?| +)\d))\b`), nil},
		{"pid", compile("000000000000000", `(?:^|[^\w.])(`+ident+`)(?:$|[^\w.])`), isThread},
		{"pid", compile("]: ", `(?:^|[\s(\[])([A-Za-z][\w./-]*\[\d{2,}\]): `), nil},
		{"tmp", compile("go-build|pytest-of-", `\bgo-build\d{6,}|\bpytest-of-[^/\s'"]+/pytest-\d+`), nil},
		{"control", compile("\x1b", `\x1b`), nil},
		{"tmp", compile("/tmp/|/shm/|/t/", `(?:^|[^\w./-])(`+temporary+`/[\w.-]+)`), isRandom},
		{"tmp", compile("tmp", `\btmp[a-z0-9]{8}\b`), isRandom},
	}
})

// detection finds leftovers line by line, also in lines that the rules do not change.
type detection struct {
	allowed []*regexp.Regexp
	// names are names of test cases by the leftovers in them. A name does not change: it
	// is compared case by case.
	names    map[string][][]byte
	line     int
	suspects []evidence.Suspect
	total    int
	shape    []byte
}

// Detect finds places of a normalized text that still look as if they change from run to
// run: the first hundred, and the number of all (RT-08,
// NONDETERMINISTIC_LOG_FIELDS_UNSCRUBBED). Lines count from 1. Texts that an allowed
// pattern (RE2) matches are not reported; an invalid pattern allows nothing.
func Detect(text []byte, allowed []string) ([]evidence.Suspect, int) {
	d := newDetection(allowed)
	for line := range bytes.Lines(text) {
		d.look(line)
	}
	return d.suspects, d.total
}

func newDetection(allowed []string) *detection {
	return &detection{names: map[string][][]byte{}, suspects: []evidence.Suspect{}, allowed: compileAllowed(allowed)}
}

// compileAllowed compiles patterns of a wish. An invalid pattern allows nothing.
func compileAllowed(patterns []string) (all []*regexp.Regexp) {
	for _, p := range patterns {
		if re, err := regexp.Compile(p); p != "" && err == nil {
			all = append(all, re)
		}
	}
	return all
}

// know takes the name of a test case.
func (d *detection) know(name string) {
	d.each([]byte(name), func(_ string, from, to int) {
		if key := name[from:to]; len(d.names[key]) < maxNames {
			d.names[key] = append(d.names[key], []byte(name))
		}
	})
}

// look takes the next line.
func (d *detection) look(line []byte) {
	d.line++
	line = bytes.TrimSuffix(line, []byte("\n"))
	d.each(line, func(detector string, from, to int) {
		found := strings.ToValidUTF8(string(line[from:to]), string(utf8.RuneError))
		for _, a := range d.allowed {
			if a.MatchString(found) {
				return
			}
		}
		if d.isNamePart(line, from, to) {
			return
		}
		d.total++
		if len(d.suspects) < maxSuspects {
			d.suspects = append(d.suspects, evidence.Suspect{Detector: detector, Line: d.line, Text: text.Short(found, maxSuspect)})
		}
	})
}

// each calls visit with the leftovers of a line. They do not overlap.
func (d *detection) each(line []byte, visit func(detector string, from, to int)) {
	d.shape = shape(d.shape[:0], line)
	rest := line // with NUL in place of the leftovers that were found
	for _, r := range leftovers() {
		if !r.mayMatch(d.shape) {
			continue
		}
		for _, m := range r.FindAllSubmatchIndex(rest, -1) {
			from, to := m[len(m)-2], m[len(m)-1]
			if r.check != nil && !r.check(line[from:to]) {
				continue
			}
			if &rest[0] == &line[0] {
				rest = slices.Clone(line)
			}
			clear(rest[from:to])
			visit(r.detector, from, to)
		}
	}
}

// isNamePart reports whether a place is inside the name of a test case.
func (d *detection) isNamePart(line []byte, from, to int) bool {
	for _, name := range d.names[string(line[from:to])] {
		for at := max(0, to-len(name)); at <= from && at+len(name) <= len(line); at++ {
			if bytes.Equal(line[at:at+len(name)], name) {
				return true
			}
		}
	}
	return false
}

var (
	alternates = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)[a-z].*\d.*[a-z].*\d|\d.*[a-z].*\d.*[a-z]`) })
	mixes      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)[a-z].*\d.*[a-z]|\d.*[a-z].*\d`) })
	upper      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Z]`) })
	lower      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[a-z]`) })
)

// isThread reports whether a number can be what glibc calls a thread: the address of a structure.
func isThread(found []byte) bool {
	n, err := strconv.Atoi(string(found))
	return err == nil && n%64 == 0
}

// isRandom reports whether the end of a name looks random: in its last eight characters
// letters and digits alternate at least three times, or digits and letters of both cases
// are mixed.
func isRandom(found []byte) bool {
	name := found[bytes.LastIndexByte(found, '/')+1:]
	name = name[max(0, len(name)-8):]
	return len(name) >= 6 && (alternates().Match(name) || mixes().Match(name) && upper().Match(name) && lower().Match(name))
}
