// Package report writes the evidence of a gate for other programs and for people: [JUnit]
// for CI systems that show test cases, [Markdown] for the page of a pull request or a job.
//
// Both are pure and deterministic: equal evidence gives equal bytes. Names and messages of
// tests are untrusted: they are shortened, and cannot become markup, a link or a control
// sequence.
package report

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Input is the evidence of one gate.
type Input struct {
	Manifest evidence.RunManifest
	Tests    evidence.Tests
	Verdict  evidence.Verdict
	// Times are how long the gates took, by their index, for [JUnit] alone: evidence has no
	// times.
	Times map[int]Times
}

// Times are how long a gate and its test cases took, in seconds; 0 is not known.
type Times struct {
	Seconds float64
	Cases   map[string]float64 // by ID
}

// Met reports whether a gate ended as expected.
func Met(c evidence.CommandTests) bool {
	return c.Started && c.ExitCode != nil && *c.ExitCode == c.ExpectExit
}

// ended says how a gate ended.
func ended(c evidence.CommandTests) string {
	switch {
	case !c.Started:
		return "never started"
	case c.ExitCode == nil:
		return cmp.Or(c.Ending, "no exit code")
	case c.Ending != "" && c.Ending != "exited":
		return fmt.Sprintf("%s, exit code %d", c.Ending, *c.ExitCode)
	}
	return fmt.Sprintf("exit code %d", *c.ExitCode)
}

// CountsText is the number of test cases by outcome, such as "3 passed, 1 skipped"; empty
// without any.
func CountsText(c evidence.Counts) string {
	var all []string
	for _, one := range []struct {
		n    int
		name string
	}{
		{c.Failed, "failed"}, {c.Errored, "errors"}, {c.Passed, "passed"},
		{c.Skipped, "skipped"}, {c.XFailed, "xfailed"}, {c.XPassed, "xpassed"},
	} {
		if one.n == 1 {
			one.name = strings.TrimSuffix(one.name, "s") // of errors
		}
		if one.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", one.n, one.name))
		}
	}
	return strings.Join(all, ", ")
}

// harmless replaces bytes that are not UTF-8, control characters other than newline and
// tab, and characters that reorder text or are invisible.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029', r == '\u200b', r == '\ufeff',
			r >= 0xe0000 && r <= 0xe007f, r&0xfffe == 0xfffe:
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}
