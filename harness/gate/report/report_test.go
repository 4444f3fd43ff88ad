package report

import (
	"encoding/xml"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func exit(n int) *int { return &n }

func passing() Input {
	cases := []evidence.Case{
		{ID: "t.py::test_a", Suite: "t", Name: "test_a", Outcome: evidence.Passed},
		{ID: "t.py::test_b", Suite: "t", Name: "test_b", Outcome: evidence.Skipped, Message: "no network"},
		{ID: "t.py::test_c", Suite: "t", Name: "test_c", Outcome: evidence.XFailed},
	}
	return Input{
		Manifest: evidence.RunManifest{
			Name: "unit", GateCommands: []string{"pytest -q", "ruff check"}, Repo: evidence.Repo{Commit: "abc", Dirty: true},
			Toolchain: evidence.Toolchain{ImageID: "sha256:00"},
		},
		Tests: evidence.Tests{Commands: []evidence.CommandTests{
			{Index: 1, Command: "pytest -q", Kind: evidence.KindTests, Started: true, Ending: "exited", ExitCode: exit(0),
				Counts: &evidence.Counts{Total: 3, Passed: 1, Skipped: 1, XFailed: 1}, Cases: cases},
			{Index: 2, Command: "ruff check", Kind: evidence.KindCheck, Started: true, Ending: "exited", ExitCode: exit(0)},
		}},
		Verdict: evidence.Verdict{Status: evidence.Pass, StopReason: evidence.ReasonPass, WishSHA256: "aa", ManifestSHA256: "bb", BehaviorHash: "cc"},
	}
}

func blocked() Input {
	in := passing()
	first := &in.Tests.Commands[0]
	first.ExitCode = exit(1)
	first.Cases = append(first.Cases, evidence.Case{ID: "t.py::test_d", Suite: "t", Name: "test_d", Outcome: evidence.Failed, Message: "assert 1 == 2\nmore"})
	first.Counts.Failed++
	in.Tests.Commands[1] = evidence.CommandTests{Index: 2, Command: "ruff check", Kind: evidence.KindCheck}
	in.Verdict.Status, in.Verdict.StopReason = evidence.Blocked, evidence.ReasonGateFailed
	in.Verdict.Findings = []evidence.Finding{{Reason: evidence.ReasonGateFailed, Gate: 1, Subject: "pytest -q", Detail: "It ended with 1."}}
	return in
}

// read is a JUnit report as a consumer sees it.
func read(t *testing.T, text []byte) suites {
	t.Helper()
	var all suites
	require.NoError(t, xml.Unmarshal(text, &all))
	return all
}

func TestJUnit(t *testing.T) {
	text, err := JUnit(passing())
	require.NoError(t, err)
	all := read(t, text)
	assert.Equal(t, []int{4, 0, 0, 2}, []int{all.Tests, all.Failures, all.Errors, all.Skipped})
	require.Len(t, all.Suites, 3)
	assert.Equal(t, "gate 1: pytest -q", all.Suites[1].Name)
	assert.Equal(t, "no network", all.Suites[1].Cases[1].Skipped.Message)

	text, err = JUnit(blocked())
	require.NoError(t, err)
	all = read(t, text)
	assert.Equal(t, []int{5, 2, 0, 2}, []int{all.Tests, all.Failures, all.Errors, all.Skipped})
	assert.Empty(t, all.Suites[0].Cases)
	assert.Contains(t, all.Suites[0].Properties, property{"stop_reason", "GATE_FAILED"})
	assert.Equal(t, "assert 1 == 2", all.Suites[1].Cases[3].Failure.Message)
	require.Len(t, all.Suites[1].Cases, 4, "the failing test explains the exit code")
	assert.Equal(t, "never started", all.Suites[2].Cases[0].Failure.Message)

	again, err := JUnit(blocked())
	require.NoError(t, err)
	assert.Equal(t, text, again)
}

// TestWarnings: the warnings of a pass are in every report, as one line without markup.
func TestWarnings(t *testing.T) {
	in := passing()
	in.Verdict.Warnings = []evidence.Finding{{Reason: evidence.ReasonIncomplete, Gate: 2, Detail: "Gate 2: no test\nwas <seen>\x1b."}}
	text, err := JUnit(in)
	require.NoError(t, err)
	all := read(t, text)
	assert.Contains(t, all.Suites[0].Properties, property{"warning", "Gate 2: no test was <seen>\ufffd."})
	assert.Zero(t, all.Failures)
	assert.Contains(t, string(Markdown(in)), "### Warnings\n\n- `Gate 2: no test was <seen>\ufffd.`\n\n### Evidence")
	assert.Equal(t, "::warning title=Warning in gate 2::Gate 2: no test was <seen>\ufffd.\n", string(Annotations(in, "")))
	for range 20 {
		in.Verdict.Warnings = append(in.Verdict.Warnings, in.Verdict.Warnings[0])
	}
	assert.Equal(t, maxAnnotations, strings.Count(string(Annotations(in, "")), "\n"))
}

// TestJUnitCountsOnce: a failure is counted once, and one that no test explains has one case.
func TestJUnitCountsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*Input)
		failures int
		last     string // of the last failing case
	}{
		"a command without tests": {func(in *Input) {
			in.Tests.Commands = in.Tests.Commands[:1]
			first := &in.Tests.Commands[0]
			first.Cases, first.Counts = nil, nil
		}, 1, "exit code 1"},
		"an exit code that passing tests do not explain": {func(in *Input) {
			in.Tests.Commands = in.Tests.Commands[:1]
			first := &in.Tests.Commands[0]
			first.Cases = first.Cases[:3]
		}, 1, "exit code 1"},
		"an end by another hand than the tests'": {func(in *Input) {
			in.Tests.Commands = in.Tests.Commands[:1]
			in.Tests.Commands[0].Ending = "out_of_memory"
		}, 2, "out_of_memory, exit code 1"},
		"a finding about no gate": {func(in *Input) {
			in.Tests.Commands = in.Tests.Commands[:1]
			in.Verdict.Findings = append(in.Verdict.Findings, evidence.Finding{Reason: evidence.ReasonTampered, Detail: "It was changed."})
		}, 2, "assert 1 == 2"},
		"a finding that is not about tests": {func(in *Input) {
			in.Tests.Commands = in.Tests.Commands[:1]
			in.Verdict.Findings = append(in.Verdict.Findings, evidence.Finding{Reason: evidence.ReasonNetwork, Gate: 1, Detail: "It tried."})
		}, 2, "assert 1 == 2"},
		"what follows": {func(in *Input) {
			in.Tests.Commands = in.Tests.Commands[:1]
			in.Verdict.Findings = append(in.Verdict.Findings, evidence.Finding{Reason: evidence.ReasonNoTests, Gate: 1, Detail: "Nothing passed."})
		}, 1, "assert 1 == 2"},
	} {
		t.Run(name, func(t *testing.T) {
			in := blocked()
			c.change(&in)
			text, err := JUnit(in)
			require.NoError(t, err)
			all := read(t, text)
			assert.Equal(t, c.failures, all.Failures)
			assert.Zero(t, all.Errors)
			last := ""
			for _, s := range all.Suites {
				for _, one := range s.Cases {
					if one.Failure != nil {
						last = one.Failure.Message
					}
				}
			}
			assert.Equal(t, c.last, last)
		})
	}
}

func TestJUnitTimes(t *testing.T) {
	in := passing()
	in.Times = map[int]Times{1: {Seconds: 1.5, Cases: map[string]float64{"t.py::test_a": 0.25}}, 2: {Seconds: 2}}
	text, err := JUnit(in)
	require.NoError(t, err)
	all := read(t, text)
	assert.Equal(t, "3.500", all.Time)
	assert.Equal(t, "1.500", all.Suites[1].Time)
	assert.Equal(t, "0.250", all.Suites[1].Cases[0].Time)
	assert.Empty(t, all.Suites[1].Cases[1].Time, "not known")
	assert.Equal(t, "2.000", all.Suites[2].Cases[0].Time)
}

func TestReason(t *testing.T) {
	for message, want := range map[string]string{
		"": "",
		"AssertionError: one and one is two\nassert 2 == 3\n +  where 2 = add(1, 1)":                                                                                       "AssertionError: one and one is two",
		"collection failure\nImportError while importing test module 'a.py'.\nTraceback:\na.py:1: in <module>\n    import x\nE   ModuleNotFoundError: No module named 'x'": "ModuleNotFoundError: No module named 'x'",
		"collection failure\n\nsomething else": "something else",
		"collection failure":                   "collection failure",
		"failed on setup with \"RuntimeError: boom\"\nE   RuntimeError: boom": `failed on setup with "RuntimeError: boom"`,
		"\n    calc_test.go:12: got 3,\twant 2\n    more":                     "calc_test.go:12: got 3, want 2",
		"began and did not end\npanic: x":                                     "began and did not end",
	} {
		assert.Equal(t, want, Reason(evidence.Case{Message: message}), message)
	}
}

func TestCauses(t *testing.T) {
	in := blocked()
	find := func(reason evidence.StopReason, gate int, subject string) evidence.Finding {
		return evidence.Finding{Reason: reason, Gate: gate, Subject: subject}
	}
	in.Verdict.Findings = []evidence.Finding{
		find(evidence.ReasonNetwork, 1, "network"),
		find(evidence.ReasonGateFailed, 1, "pytest"), find(evidence.ReasonGateFailed, 2, "x"),
		find(evidence.ReasonNoTests, 1, "pytest"), find(evidence.ReasonNoTests, 3, "y"),
		find(evidence.ReasonIncomplete, 2, evidence.TestsFile), find(evidence.ReasonIncomplete, 2, evidence.ObservationsFile),
	}
	causes, follow := Causes(in.Verdict, in.Tests)
	assert.Equal(t, []evidence.Finding{
		find(evidence.ReasonNetwork, 1, "network"), find(evidence.ReasonGateFailed, 2, "x"), find(evidence.ReasonNoTests, 3, "y"),
		find(evidence.ReasonIncomplete, 2, evidence.ObservationsFile),
	}, causes)
	assert.Equal(t, []evidence.Finding{
		find(evidence.ReasonGateFailed, 1, "pytest"), find(evidence.ReasonNoTests, 1, "pytest"), find(evidence.ReasonIncomplete, 2, evidence.TestsFile),
	}, follow)
}

// TestJUnitNotGreen: a gate that did not pass has a failure whatever its tests say.
func TestJUnitNotGreen(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"blocked":          func(in *Input) { in.Verdict.Status = evidence.Blocked },
		"need info":        func(in *Input) { in.Verdict.Status = evidence.NeedInfo },
		"no verdict":       func(in *Input) { in.Verdict = evidence.Verdict{} },
		"nothing ran":      func(in *Input) { *in = Input{} },
		"unknown outcome":  func(in *Input) { in.Tests.Commands[0].Cases[0].Outcome = "fine" },
		"another code":     func(in *Input) { in.Tests.Commands[0].ExpectExit = 3 },
		"no code":          func(in *Input) { in.Tests.Commands[0].ExitCode = nil },
		"an errored case":  func(in *Input) { in.Tests.Commands[0].Cases[0].Outcome = evidence.Errored },
		"a check that did": func(in *Input) { in.Tests.Commands[1].Started = false },
	} {
		t.Run(name, func(t *testing.T) {
			in := passing()
			change(&in)
			text, err := JUnit(in)
			require.NoError(t, err)
			all := read(t, text)
			assert.Positive(t, all.Failures+all.Errors)
		})
	}
}

func TestJUnitIsBounded(t *testing.T) {
	in := passing()
	last := &in.Tests.Commands[0].Cases[2]
	last.Outcome, last.Message = evidence.Failed, strings.Repeat("é", maxMessage)
	in.Tests.Commands[0].CasesDropped = 5
	text, err := JUnit(in)
	require.NoError(t, err)
	all := read(t, text)
	first := all.Suites[1]
	assert.Contains(t, first.Properties, property{"cases_left_out", "5"})
	require.NotNil(t, first.Cases[2].Failure)
	assert.LessOrEqual(t, len(first.Cases[2].Failure.Text), maxMessage+len("…"))
	assert.True(t, utf8.ValidString(first.Cases[2].Failure.Text))
}

// hostile are texts that a test may print.
var hostile = []string{
	"\x1b[2J\x1b]0;title\x07", "a\x00b", "\xff\xfe\xed\xa0\x80", "]]>", "</testcase><x y='\"&", "<!-- -->", "\u202egnp", "\ufffe\uffff",
	"`", "``", "``` ", "|", `\|`, `a\\|b|c`, "a\n| b |\n# title", "<script>alert(1)</script>", "[x](javascript:alert(1))", "@everyone #1 https://example.org",
	"![](https://example.org/x.png)", strings.Repeat("`", 600), strings.Repeat("x|", 600), "\r\n- item", "\u0085\u2028",
}

func TestHostileText(t *testing.T) {
	for _, text := range hostile {
		in := blocked()
		in.Manifest.Name, in.Manifest.Repo.Commit = text, text
		in.Verdict.StopReason = evidence.StopReason(text)
		in.Verdict.Findings = []evidence.Finding{{Reason: evidence.StopReason(text), Subject: text, Detail: text}}
		c := &in.Tests.Commands[0]
		c.Command, c.Ending = text, text
		c.Cases = []evidence.Case{{ID: text, Suite: text, Name: text, Outcome: evidence.Failed, Message: text}}

		junit, err := JUnit(in)
		require.NoError(t, err)
		all := read(t, junit)
		assert.Len(t, all.Suites, 3, "%q", text)
		assert.Len(t, all.Suites[1].Cases, 2, "%q", text)
		assertHarmless(t, string(junit))

		page := string(Markdown(in))
		assertHarmless(t, page)
		outside := withoutCode(t, page)
		for _, mark := range []string{"<script", "javascript", "@everyone", "example.org", "# title\n", "- item"} {
			assert.NotContains(t, outside, mark, "%q", text)
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "| ❌") || strings.HasPrefix(line, "| ✅") {
				assert.Equal(t, 6, bars(line), "%q has another number of cells", line)
			}
		}
	}
}

func assertHarmless(t *testing.T, text string) {
	t.Helper()
	assert.True(t, utf8.ValidString(text))
	assert.NotRegexp(t, "\ufffe|\uffff", text)
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			assert.Failf(t, "control character", "%q in %.200q", r, text)
		}
	}
}

// withoutCode is a page without its code spans, found as CommonMark finds them.
func withoutCode(t *testing.T, page string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(page) {
		for line != "" {
			if line[0] != '`' {
				out.WriteByte(line[0])
				line = line[1:]
				continue
			}
			fence := line[:len(line)-len(strings.TrimLeft(line, "`"))]
			line = line[len(fence):]
			end := -1
			for at := 0; at < len(line); {
				i := strings.IndexByte(line[at:], '`')
				if i < 0 {
					break
				}
				run := len(line[at+i:]) - len(strings.TrimLeft(line[at+i:], "`"))
				if run == len(fence) {
					end = at + i
					break
				}
				at += i + run
			}
			require.GreaterOrEqual(t, end, 0, "a code span has no end: %.100q", line)
			line = line[end+len(fence):]
		}
	}
	return out.String()
}

// bars counts the bars of a table row that end a cell.
func bars(line string) (n int) {
	if strings.Contains(line, `\\|`) {
		return -1 // renderers differ about it
	}
	for i := range line {
		if line[i] == '|' && (i == 0 || line[i-1] != '\\') {
			n++
		}
	}
	return n
}

func TestMarkdown(t *testing.T) {
	assert.Equal(t, "## Gate `unit`: `PASS`\n\n"+
		"| | gate | ended | expected | tests |\n|---|---|---|---|---|\n"+
		"| ✅ | `pytest -q` | `exit code 0` | 0 | 1 passed, 1 skipped, 1 xfailed |\n"+
		"| ✅ | `ruff check` | `exit code 0` | 0 | check |\n\n"+
		"### Evidence\n\n| | |\n|---|---|\n| wish | `aa` |\n| evidence.manifest | `bb` |\n| behavior | `cc` |\n"+
		"| image | `sha256:00` |\n| commit | `abc, with changes` |\n", string(Markdown(passing())))
	page := string(Markdown(blocked()))
	assert.Contains(t, page, "Stopped for `GATE_FAILED`.")
	assert.Contains(t, page, "| ❌ | `ruff check` | `never started` | 0 | check |")
	assert.Contains(t, page, "- `t.py::test_d`: `assert 1 == 2`\n\nAs a result: `GATE_FAILED` in gate 1\n")
	in := blocked()
	in.Tests.Commands[0].Cases = nil
	assert.Contains(t, string(Markdown(in)), "- `GATE_FAILED` in gate 1: `It ended with 1.`")
	assert.Contains(t, page, "- `t.py::test_d`: `assert 1 == 2`")
	assert.Contains(t, string(Markdown(Input{})), "There are no gates.")
	assert.Contains(t, string(Markdown(Input{Manifest: evidence.RunManifest{GateCommands: []string{"a"}}})), "None of the 1 gates ran.")
}

// TestMarkdownTellsWhatWasCompared: a pass that was proven by more than one run says so.
func TestMarkdownTellsWhatWasCompared(t *testing.T) {
	in := passing()
	in.Manifest.Mode.Repeats, in.Manifest.Baseline, in.Manifest.Repo.BaselineCommit = 3, "/b", "c0ffee"
	in.Tests.Commands[0].Baseline = &evidence.Baseline{Counts: &evidence.Counts{Failed: 1, Errored: 1}}
	page := string(Markdown(in))
	assert.Contains(t, page, "Run 3 times, with the same logs, tests and outputs.")
	assert.Contains(t, page, "Compared with the baseline `c0ffee`: failing tests there: 2, now: 0.")
	assert.NotContains(t, string(Markdown(passing())), "times")
}

func TestMarkdownIsBounded(t *testing.T) {
	in := blocked()
	for range 1000 {
		in.Tests.Commands = append(in.Tests.Commands, in.Tests.Commands[0])
		in.Verdict.Findings = append(in.Verdict.Findings, evidence.Finding{Reason: "R", Detail: strings.Repeat("x", 10_000)})
	}
	page := string(Markdown(in))
	assert.Less(t, len(page), 256<<10)
	assert.Contains(t, page, "… and 951 more")
	assert.Contains(t, page, "… and 952 more")
}
