package testreport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
)

// parse reads the stdout and the report of a command; an empty report is a missing one.
func parse(cmd string, format evidence.ReportFormat, exit int, stdout, report string) testreport.Report {
	in := testreport.Input{Stdout: strings.NewReader(stdout), ExitCode: &exit}
	if report != "" {
		in.Report = strings.NewReader(report)
	}
	return testreport.Parse(evidence.Gate{Argv: strings.Fields(cmd), Command: evidence.Command{Report: format}}, in)
}

// outcomesOf returns the cases as "ID outcome".
func outcomesOf(r testreport.Report) (all []string) {
	for _, c := range r.Cases {
		all = append(all, c.ID+" "+string(c.Outcome))
	}
	return all
}

func counts(total, passed, failed, errored, skipped, xfailed, xpassed int) evidence.Counts {
	return evidence.Counts{Total: total, Passed: passed, Failed: failed, Errored: errored, Skipped: skipped, XFailed: xfailed, XPassed: xpassed}
}

const pytestReport = `<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="2" failures="1" skipped="2" tests="7" time="0.1" timestamp="2026-01-02T03:04:05" hostname="h">
<testcase classname="tests.test_a" name="test_ok[1-x.y]" time="0.001"><properties><property name="a" value="b"/></properties></testcase>
<testcase classname="tests.test_a.TestX.TestY" name="test_bad" time="0.1"><failure message="assert 1 == 2">def test_bad():
E       assert 1 == 2</failure></testcase>
<testcase classname="tests.test_a" name="test_skip"><skipped type="pytest.skip" message="why">x</skipped></testcase>
<testcase classname="tests.test_a" name="test_xfail"><skipped type="pytest.xfail" message="known"/></testcase>
<testcase classname="tests.test_a" name="test_teardown"><error message="failed on teardown">boom</error><system-out>hi</system-out></testcase>
<testcase classname="" name="tests.test_broken"><error message="collection failure">SyntaxError</error></testcase>
</testsuite></testsuites>`

func TestPytestReport(t *testing.T) {
	for _, format := range []evidence.ReportFormat{evidence.ReportAuto, evidence.ReportPytest, evidence.ReportJUnit} {
		r := parse("python3 -B -m pytest -q", format, 1, "", pytestReport)
		assert.Empty(t, r.Problem)
		assert.Equal(t, evidence.ReportPytest, r.Source)
		assert.Equal(t, counts(6, 1, 1, 2, 1, 1, 0), r.Counts)
		assert.Equal(t, []string{
			"tests/test_a.py::test_ok[1-x.y] passed", "tests/test_a.py::TestX::TestY::test_bad failed", "tests/test_a.py::test_skip skipped",
			"tests/test_a.py::test_xfail xfailed", "tests/test_a.py::test_teardown error", "tests/test_broken.py error",
		}, outcomesOf(r))
		assert.Equal(t, "assert 1 == 2\ndef test_bad():\nE       assert 1 == 2", r.Cases[1].Message)
		assert.Equal(t, "failed on teardown\nboom", r.Cases[4].Message)
		assert.Empty(t, r.Cases[0].Message)
	}
}

func TestPytestID(t *testing.T) {
	for class, want := range map[string]string{
		`classname="test_a"`:                                                  "test_a.py::t",
		`classname="Tests.test_a.TestX"`:                                      "Tests/test_a.py::TestX::t",
		`classname="tests.test_a.lower_case"`:                                 "tests/test_a.py::lower_case::t",
		`classname="checks.mod"`:                                              "checks/mod.py::t",
		`classname="checks.mod.odd" file="checks/mod.py" line="3"`:            "checks/mod.py::odd::t",
		`classname="a.b" file="elsewhere/entirely/other/than/that/test_x.py"`: "elsewhere/entirely/other/than/that/test_x.py::t",
	} {
		r := parse("pytest", evidence.ReportAuto, 0, "", `<testsuite name="pytest" tests="1"><testcase `+class+` name="t"/></testsuite>`)
		assert.Equal(t, []string{want + " passed"}, outcomesOf(r))
	}
}

func TestJUnitOfOthers(t *testing.T) {
	r := parse("make test", evidence.ReportAuto, 1, "", `<!-- x --><testsuites><testsuite name="outer" tests="6" failures="2" errors="0">
<testsuite name="inner"><testcase classname="C" name="a"/><testcase name="b"><failure/><failure>again</failure></testcase></testsuite>
<testcase classname="C" name="flaky"><flakyFailure message="once"/></testcase>
<testcase classname="C" name="rerun"><failure message="m"/><rerunFailure>2</rerunFailure></testcase>
<testcase classname="G" name="off" status="notrun"/>
<testcase classname="G" name="skipped" result="skipped"><skipped/></testcase>
</testsuite></testsuites>`)
	assert.Empty(t, r.Problem)
	assert.Equal(t, evidence.ReportJUnit, r.Source)
	assert.Equal(t, []string{"C.a passed", "inner.b failed", "C.flaky passed", "C.rerun failed", "G.off skipped", "G.skipped skipped"}, outcomesOf(r))
}

// TestBrokenJUnit: every problem is reported, the cases before it are kept, and memory and
// time are bounded.
func TestBrokenJUnit(t *testing.T) {
	const begin = `<testsuite name="s" tests="1"><testcase classname="c" name="a"/>`
	for _, c := range []struct{ name, report, problem string }{
		{"empty", " ", "has no element"},
		{"other root", "<html></html>", "begins with <html>"},
		{"cut", begin, "broken or cut"},
		{"cut in a tag", begin + `<testcase na`, "broken or cut"},
		{"two roots", begin + `</testsuite><x/>`, "begins with <x>"},
		{"deep", strings.Repeat("<testsuite>", 10_000), "nested more than 64 deep"},
		{"entity", `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>` + begin + `&b;</testsuite>`, "entity"},
		{"external", `<!DOCTYPE x SYSTEM "file:///etc/passwd">` + begin + `&x;</testsuite>`, "entity"},
		{"encoding", `<?xml version="1.0" encoding="latin1"?>` + begin + `</testsuite>`, "only UTF-8"},
		{"declares more", `<testsuite name="s" tests="9"><testcase name="a"/></testsuite>`, "declares 9 tests"},
		{"declares failures", `<testsuite name="s" tests="1" failures="1"><testcase name="a"/></testsuite>`, "1 failures and errors"},
		{"root declares more", `<testsuites tests="10"><testsuite name="s" tests="1"><testcase name="a"/></testsuite></testsuites>`, "declares 10 tests"},
		{"root declares failures", `<testsuites tests="1" failures="3"><testsuite name="s"><testcase name="a"/></testsuite></testsuites>`, "with 3 failures"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse("make test", evidence.ReportJUnit, 0, "", c.report)
			assert.Contains(t, r.Problem, c.problem)
			assert.LessOrEqual(t, len(r.Problem), 400)
			assert.Equal(t, evidence.ReportJUnit, r.Source)
			if strings.HasPrefix(c.report, begin) {
				assert.Equal(t, 1, r.Counts.Passed)
			}
		})
	}
}

func TestOddTextInJUnit(t *testing.T) {
	r := parse("make test", evidence.ReportAuto, 1, "", "<testsuite><testcase name=\"a\x00\xff\x1b&#10;b\"><failure>\x00\xfe\x08</failure><system-out>\x1b[31m</system-out></testcase></testsuite>")
	assert.Empty(t, r.Problem)
	require.Len(t, r.Cases, 1)
	assert.Equal(t, "a\ufffd\ufffd\ufffd\ufffdb", r.Cases[0].Name)
	assert.Equal(t, "\ufffd\ufffd\ufffd", r.Cases[0].Message)
}

func TestCasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("<testsuite>")
	for i := range testreport.MaxCases + 10 {
		fmt.Fprintf(&b, `<testcase name="t%d"/>`, i)
	}
	b.WriteString(`<testcase name="` + strings.Repeat("n", 5000) + `"><failure>` + strings.Repeat("m", 5000) + `</failure></testcase></testsuite>`)
	r := parse("x", evidence.ReportAuto, 1, "", b.String())
	assert.Len(t, r.Cases, testreport.MaxCases)
	assert.Equal(t, 11, r.Dropped)
	assert.Equal(t, testreport.MaxCases+11, r.Counts.Total)
	last := r.Cases[testreport.MaxCases-1]
	assert.Equal(t, evidence.Failed, last.Outcome, "a failure takes the place of a pass")
	assert.Less(t, len(last.ID), 1100)
	assert.Less(t, len(last.Message), 2100)
}

func TestGoTestEvents(t *testing.T) {
	events := `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"m/a","Test":"TestA/sub"}
{"Action":"output","Package":"m/a","Test":"TestA/sub","Output":"    a_test.go:3: got 1\n"}
{"Action":"output","Package":"m/a","Test":"TestA/sub","Output":"--- FAIL: TestA/sub (0.00s)\n"}
{"Action":"fail","Package":"m/a","Test":"TestA/sub","Elapsed":0}
{"Action":"fail","Package":"m/a","Test":"TestA","Elapsed":0}
{"Action":"run","Package":"m/a","Test":"TestS"}
{"Action":"skip","Package":"m/a","Test":"TestS"}
{"Action":"bench","Package":"m/a","Test":"BenchmarkX"}
not an event
{"Action":"fail","Package":"m/a","Elapsed":0.1}
{"Action":"output","Package":"m/none","Output":"?   \tm/none\t[no test files]\n"}
{"Action":"skip","Package":"m/none"}
{"ImportPath":"m/b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"ImportPath":"m/b","Action":"build-fail"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b [build failed]\n"}
{"Action":"fail","Package":"m/b","FailedBuild":"m/b"}
{"Action":"run","Package":"m/exit","Test":"TestExit"}
{"Action":"output","Package":"m/exit","Test":"TestExit","Output":"bye\n"}
{"Action":"fail","Package":"m/exit"}
{"Action":"output","Package":"m/main","Output":"panic: in TestMain\n"}
{"Action":"fail","Package":"m/main"}
{"Action":"pass","Package":"m/cached","Test":"TestC"}
{"Action":"output","Package":"m/cached","Output":"ok  \tm/cached\t(cached)\n"}
{"Action":"pass","Package":"m/cached"}
`
	r := parse("go test ./...", evidence.ReportAuto, 1, events, "")
	assert.Empty(t, r.Problem)
	assert.Equal(t, evidence.ReportGoTest, r.Source)
	assert.Equal(t, []string{
		"m/a.TestA/sub failed", "m/a.TestA failed", "m/a.TestS skipped", "m/a.BenchmarkX passed",
		"m/b error", "m/exit.TestExit error", "m/main error", "m/cached.TestC passed",
	}, outcomesOf(r))
	assert.Equal(t, "a_test.go:3: got 1", r.Cases[0].Message)
	assert.Equal(t, "b.go:1: syntax error", r.Cases[4].Message)
	assert.Equal(t, "began and did not end\nbye", r.Cases[5].Message)
	assert.Equal(t, "panic: in TestMain", r.Cases[6].Message)

	var text strings.Builder
	require.NoError(t, testreport.CopyText(&text, strings.NewReader(events)))
	assert.True(t, strings.HasPrefix(text.String(), "=== RUN   TestA\n    a_test.go:3: got 1\n--- FAIL: TestA/sub (0.00s)\nnot an event\n?   \tm/none"), text.String())
}

func TestBrokenGoTestEvents(t *testing.T) {
	const start = `{"Action":"start","Package":"m"}` + "\n"
	for events, problem := range map[string]string{
		start: "1 packages have no end",
		start + `{"Action":"run","Package":"m","Test":"T"}` + "\n":                                             "1 packages have no end",
		start + `{"Action":"pass","Pack`:                                                                       "broken or cut",
		start + `{"Action":"output","Package":"m","Output":"` + strings.Repeat("x", 2<<20) + `"}` + "\n":       "more than 1048576 bytes",
		start + strings.Repeat(`{"a":`, 100_000) + "\n" + `{"Action":"pass","Package":"m"}` + "\n":             "broken or cut",
		start + `{"Action":"fail","Package":"m","Test":"T"}` + "\n" + `{"Action":"pass","Package":"m"}` + "\n": "the exit code is 0",
	} {
		r := parse("go test", evidence.ReportGoTest, 0, events, "")
		assert.Contains(t, r.Problem, problem)
	}
	assert.Equal(t, "stdout has no events of go test -json", parse("go test", evidence.ReportGoTest, 0, "ok  \tm\t0.1s\n", "").Problem)
	var many strings.Builder
	for i := range 20_100 {
		fmt.Fprintf(&many, `{"Action":"run","Package":"p%d","Test":"T%d"}`+"\n", i, i)
	}
	assert.Contains(t, parse("go test", evidence.ReportAuto, 1, many.String(), "").Problem, "more than 20000")
}

func TestTAP(t *testing.T) {
	r := parse("node run.js", evidence.ReportTAP, 1, `TAP version 14
1..8
ok 1 - plain
  ---
  duration_ms: 1
  not ok 2 - not a point
  ...
not ok 2 with \# sign
ok 3 - skipped # SKIP no network
not ok 4 - later # TODO write it
ok 5 # todo
# Subtest: outer
    ok 1 - child
    # Subtest: inner
        not ok 1 - deep
        1..1
    not ok 2 - inner
    1..2
not ok 6 - outer
    # Subtest: second
    1..0 # skip all
ok 7 - second # skip all
ok
`, "")
	assert.Empty(t, r.Problem)
	assert.Equal(t, evidence.ReportTAP, r.Source)
	assert.Equal(t, []string{
		"plain passed", `with \# sign failed`, "skipped skipped", "later xfailed", "test 5 xpassed",
		"outer failed", "second skipped", "test 8 passed",
	}, outcomesOf(r))
}

func TestBrokenTAP(t *testing.T) {
	for lines, problem := range map[string]string{
		"1..3\nok 1\nok 2\n":                    "plans 3 tests and has 2",
		"1..1\nok 1\nok 2\n":                    "plans 1 tests and has 2",
		"TAP version 13\nok 1\n":                "no plan",
		"1..2\nok 1\nok 1\n":                    "out of sequence",
		"1..2\n1..2\nok 1\nok 2\n":              "two plans",
		"1..3\nok 1\nBail out! no disk\nok 2\n": "bailed out: no disk",
		"1..99999999999999999999\nok 1\n":       "too many",
		"1..1\nnot ok 1\n":                      "the exit code is 0",
	} {
		r := parse("x", evidence.ReportTAP, 0, lines, "")
		assert.Contains(t, r.Problem, problem, lines)
	}
	assert.Equal(t, "stdout has no TAP", parse("x", evidence.ReportTAP, 0, "all fine\n", "").Problem)
	assert.Equal(t, evidence.ReportNone, parse("x", evidence.ReportAuto, 0, "ok then\nok\n1..2..3\n", "").Source, "an ok alone is not TAP")
}

// BenchmarkOutputWithoutTAP reads 1 MiB of output that is not TAP.
func BenchmarkOutputWithoutTAP(b *testing.B) {
	for name, line := range map[string]string{"words": "plain words of a log that says nothing", "a long line": strings.Repeat("a/b ", 10_000), "dots": "waiting for a/b..."} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(line+"\n", (1<<20)/len(line))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				parse("./test", evidence.ReportTAP, 0, text, "")
			}
		})
	}
}

// TestProve: each file of prove is a document of its own, and the lines of prove are no test points.
func TestProve(t *testing.T) {
	const end = "Files=9, Tests=9,  0 wallclock secs ( 0.02 usr  0.00 sys +  0.07 cusr  0.05 csys =  0.14 CPU)\nResult: PASS\n"
	for name, c := range map[string]struct {
		stdout string
		want   []string
	}{
		"one file": {"x.t .. \n1..2\nok 1 - one\nok 2 - two\nok\nAll tests successful.\n" + end, []string{"x.t: one passed", "x.t: two passed"}},
		"several files": {"t/x.t ...... \n1..1\nok 1 - one\nok\nt/none.t ... skipped: no network\nt/long.t ... \n# Subtest: in\n    not ok 1 - deep\n    1..1\nnot ok 1 - in # TODO later\nok 2 # skip no net\n1..2\nok\nAll tests successful.\n" + end,
			[]string{"t/x.t: one passed", "t/long.t: in xfailed", "t/long.t: test 2 skipped"}},
		"no numbers":                 {"x.t .. \nok\nok\n1..2\nok\ny.t .. \n1..1\nok\nok\n" + end, []string{"x.t: test 1 passed", "x.t: test 2 passed", "y.t: test 1 passed"}},
		"with times":                 {"[17:05:03] x.t .. \n1..1\nok 1 - one\nok      157 ms ( 0.00 usr  0.00 sys +  0.03 cusr  0.00 csys =  0.03 CPU)\n[17:05:03] y.t .. \n1..1\nok 1 - one\nok        1 s\n[17:05:04]\n" + end, []string{"x.t: one passed", "y.t: one passed"}},
		"skipped":                    {"x.t .. \n1..0 # SKIP no network\nskipped: no network\ny.t .. \n1..1\nok 1\nok\n" + end, []string{"y.t: test 1 passed"}},
		"text inside":                {"x.t .. \nlooking at a/b ..\n1..2\nc/d ..\nok 1 - one\nok 2 - two\nok\n" + end, []string{"x.t: one passed", "x.t: two passed"}},
		"an ok that its plan counts": {"src/lib ..\n1..2\nok\nok\n", []string{"src/lib: test 1 passed", "src/lib: test 2 passed"}},
		"no TAP":                     {"t/x.t .. ok\nt/y.t .. \n# a comment\nok\n" + end, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := parse("prove -v t", evidence.ReportAuto, 0, c.stdout, "")
			assert.Empty(t, r.Problem)
			assert.Equal(t, c.want, outcomesOf(r))
		})
	}

	r := parse("prove -v t", evidence.ReportAuto, 1, "t/bad.t ... \n1..3\nok 1 - fine\nnot ok 2 - bad\nok\nDubious, test returned 1 (wstat 256, 0x100)\nFailed 1/3 subtests \n"+
		"t/fine.t .. \n1..1\nok 1 - fine\nok\n\nTest Summary Report\n-------------------\nt/bad.t (Wstat: 256 (exited 1) Tests: 3 Failed: 1)\n  Failed test:  2\n", "")
	assert.Empty(t, r.Problem)
	assert.Equal(t, []string{"t/bad.t: fine passed", "t/bad.t: bad failed", "t/bad.t: test 3 passed", "t/fine.t: fine passed"}, outcomesOf(r))
	assert.Equal(t, "t/fine.t", r.Cases[3].Suite)

	for stdout, problem := range map[string]string{
		"x.t .. \n1..2\nok 1\nDubious, test returned 255 (wstat 65280, 0xff00)\nFailed 1/2 subtests \ny.t .. \n1..1\nok 1\nok\n": "x.t: TAP plans 2 tests and has 1",
		"x.t .. \nok 1\nDubious, test returned 255 (wstat 65280, 0xff00)\nAll 1 subtests passed \n":                              "x.t: TAP has no plan",
		"x.t .. \n1..1\nok 1\nok\ny.t .. \nok 1\n":                                                                               "y.t: TAP has no plan",
		"x.t .. \n1..1\nok 1\nok\ny.t .. \n1..2\nok 2\nok 1\nok\n":                                                               "y.t: test point 2 is out of sequence",
		"x.t .. \n1..2\nok 1\nBail out!  no disk\ny.t .. \nok 1\n":                                                               "x.t: the tests bailed out:  no disk",
	} {
		assert.Contains(t, parse("prove -v t", evidence.ReportAuto, 255, stdout, "").Problem, problem, stdout)
	}
	assert.Contains(t, parse("make test", evidence.ReportAuto, 0, "x.t .. \n1..1\nnot ok 1\nok\ny.t .. \nok\n", "").Problem, "TAP with 1 failing case, and the exit code is 0")
}

// TestNoReport: without a report there are no test cases, and it is a problem only if one
// was asked for (text that a tool prints for people is not read).
func TestNoReport(t *testing.T) {
	for _, c := range []struct{ cmd, stdout string }{
		{"pytest -q", "3 passed in 0.1s\n"}, {"python3 -m unittest", "Ran 3 tests in 0.1s\n\nOK\n"},
		{"prove t", "Files=1, Tests=3,  0 wallclock secs\nResult: PASS\n"}, {"go test", "ok  \tm\t0.1s\n"}, {"make", ""},
	} {
		for _, format := range []evidence.ReportFormat{evidence.ReportAuto, evidence.ReportNone} {
			assert.Equal(t, testreport.Report{Source: evidence.ReportNone}, parse(c.cmd, format, 0, c.stdout, ""), c.cmd)
		}
	}
	assert.Equal(t, "no JUnit XML report was left", parse("pytest", evidence.ReportPytest, 0, "1 passed in 0.1s\n", "").Problem)
}

// TestAskedForAReport: pytest that reached its end writes the report that it was asked for.
func TestAskedForAReport(t *testing.T) {
	for _, cmd := range []string{"pytest", "py.test -q", "python -m pytest", "python3 -Bm pytest", "python3 -X dev -m pytest", "uv run pytest",
		"env A=b pytest", "coverage run -m pytest -v", "python3 -m coverage run -m pytest", "nice -n 5"} {
		for exit, want := range map[int]string{0: "asked for a JUnit XML report and left none", 137: ""} {
			g := evidence.Gate{Argv: strings.Fields(cmd), Command: evidence.Command{Report: evidence.ReportAuto, Env: map[string]string{"PYTEST_ADDOPTS": "--junit-xml=/x/report.xml"}}}
			r := testreport.Parse(g, testreport.Input{Stdout: strings.NewReader("1 passed in 0.1s\n"), ExitCode: &exit})
			assert.Equal(t, evidence.ReportNone, r.Source)
			if want == "" || cmd == "nice -n 5" {
				assert.Empty(t, r.Problem, cmd)
			} else {
				assert.Contains(t, r.Problem, want, cmd)
			}
		}
	}
}

// TestContradictions: a report counts only if nothing contradicts it.
func TestContradictions(t *testing.T) {
	const three = `<testsuite name="pytest" tests="3" failures="0" errors="0"><testcase classname="t" name="a"/><testcase classname="t" name="b"/><testcase classname="t" name="c"/></testsuite>`
	for _, c := range []struct {
		name, cmd string
		exit      int
		stdout    string
		report    string
		problem   string
	}{
		{"exit 1", "pytest", 1, "", three, "the exit code says that tests failed"},
		{"exit 5", "pytest", 5, "", three, "there were no tests"},
		{"empty", "pytest", 0, "", `<testsuite name="pytest" tests="0"/>`, "no case"},
		{"exit 0", "make", 0, "", `<testsuite><testcase name="a"><failure/></testcase></testsuite>`, "1 case that failed, and the exit code is 0"},
		{"report of another", "python3 -m unittest", 0, "", `<testsuite><testcase name="a"><failure/></testcase></testsuite>`, "1 case that failed, and the exit code is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Contains(t, parse(c.cmd, evidence.ReportAuto, c.exit, c.stdout, c.report).Problem, c.problem)
		})
	}
	assert.Empty(t, parse("pytest", evidence.ReportAuto, 0, "3 passed in 0.1s\n", three).Problem)
	forged := parse("pytest", evidence.ReportAuto, 0, `{"Action":"start","Package":"x"}`+"\n", three)
	assert.Equal(t, evidence.ReportPytest, forged.Source, "pytest prints no events")
	assert.Empty(t, forged.Problem)
	assert.Equal(t, evidence.ReportTAP, parse("prove -v t", evidence.ReportAuto, 0, "1..1\nok 1\n", "").Source)
	assert.Equal(t, evidence.ReportNone, parse("printf x", evidence.ReportAuto, 0, "1..1\nok 1\n", "").Source, "any program can print TAP")
}

// TestEventsBehindText: make prints the commands that it runs.
func TestEventsBehindText(t *testing.T) {
	text := "go test -json ./...\n" + `{"Action":"run","Package":"m","Test":"T"}` + "\n" + `{"Action":"pass","Package":"m","Test":"T"}` + "\n" + `{"Action":"pass","Package":"m"}` + "\n"
	for _, cmd := range []string{"make test", "go test -json"} {
		r := parse(cmd, evidence.ReportAuto, 0, text, "")
		assert.Equal(t, evidence.ReportGoTest, r.Source)
		assert.Equal(t, []string{"m.T passed"}, outcomesOf(r))
		assert.Empty(t, r.Problem)
	}
	assert.True(t, testreport.MayHaveEvents(evidence.Gate{Argv: []string{"make"}, Command: evidence.Command{Report: evidence.ReportAuto}}))
	assert.False(t, testreport.MayHaveEvents(evidence.Gate{Argv: []string{"pytest"}, Command: evidence.Command{Report: evidence.ReportAuto}}))
	assert.False(t, testreport.MayHaveEvents(evidence.Gate{Argv: []string{"go", "test"}, Command: evidence.Command{Report: evidence.ReportNone}}))
}

// TestNotRun: a case that pytest did not run because it expects a failure is skipped.
func TestNotRun(t *testing.T) {
	report := `<testsuite name="pytest" tests="1" skipped="1"><testcase classname="t" name="a"><skipped type="pytest.xfail" message="[NOTRUN] why"/></testcase></testsuite>`
	r := parse("pytest", evidence.ReportAuto, 0, "1 xfailed in 0.1s\n", report)
	assert.Empty(t, r.Problem)
	assert.Zero(t, r.Counts.Executed())
	assert.Equal(t, 1, r.Counts.Skipped)
}

// TestStatusAttributes: some dialects have the outcome in an attribute.
func TestStatusAttributes(t *testing.T) {
	r := parse("x", evidence.ReportJUnit, 1, "", `<testsuite><testcase name="a" status="failed"/><testcase name="b" status="Disabled"/><testcase name="c" result="completed" status="run"/><testcase name="d" status="error"><skipped/></testcase></testsuite>`)
	assert.Equal(t, []string{"a failed", "b skipped", "c passed", "d error"}, outcomesOf(r))
}

// FuzzParse reads any text in every format: the counts are consistent.
func FuzzParse(f *testing.F) {
	for _, text := range []string{pytestReport, "1..1\nok 1\n", `{"Action":"run","Package":"m","Test":"T"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []evidence.ReportFormat{evidence.ReportAuto, evidence.ReportPytest, evidence.ReportGoTest, evidence.ReportTAP} {
			r := parse("x", format, 0, text, text)
			c := r.Counts
			assert.Equal(t, c.Total, c.Executed()+c.Skipped)
			if len(r.Cases) > 0 {
				assert.Equal(t, c.Total, len(r.Cases)+r.Dropped)
			}
			for _, one := range r.Cases {
				assert.NotContains(t, one.ID, "\n")
				assert.NotEmpty(t, one.Outcome)
			}
		}
	})
}

// TestGoTestAgain: a script that tests a package twice owes the end of both runs.
func TestGoTestAgain(t *testing.T) {
	event := func(action, test string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"m/a","Test":%q}`, action, test) + "\n"
	}
	first := event("start", "") + event("run", "TestA") + event("pass", "TestA") + event("pass", "")
	r := parse("sh test.sh", evidence.ReportAuto, 0, first+event("start", "")+event("run", "TestB"), "")
	assert.Contains(t, r.Problem, "the events of 1 packages have no end")
	assert.Equal(t, []string{"m/a.TestA passed", "m/a.TestB error"}, outcomesOf(r))
	r = parse("sh test.sh", evidence.ReportAuto, 0, first+first, "")
	assert.Empty(t, r.Problem)
}

// TestHiddenFailures: the report that counts has no failure, another one has, and the exit
// code of the script is 0.
func TestHiddenFailures(t *testing.T) {
	const junit = `<testsuite tests="1"><testcase name="a"/></testsuite>`
	const event = `{"Action":%q,"Package":"m/a","Test":%q}` + "\n"
	failed := fmt.Sprintf(event, "fail", "TestA") + fmt.Sprintf(event, "fail", "")
	passed := fmt.Sprintf(event, "pass", "TestA") + fmt.Sprintf(event, "pass", "")
	const tap = "1..2\nok 1 - a\nnot ok 2 - b\n"
	for name, c := range map[string]struct{ cmd, stdout, report, want string }{
		"events": {"sh test.sh", failed, junit, "events of go test"},
		"TAP":    {"sh test.sh", tap, junit, "TAP"},
		"alone":  {"sh test.sh", tap, "", "TAP"},
		"JUnit":  {"go test ./...", passed, `<testsuite><testcase name="a"><failure/></testcase></testsuite>`, "a JUnit XML report"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parse(c.cmd, evidence.ReportAuto, 0, c.stdout, c.report)
			assert.Contains(t, r.Problem, c.want+" with 1 failing case, and the exit code is 0")
			assert.NotContains(t, parse(c.cmd, evidence.ReportAuto, 2, c.stdout, c.report).Problem, "failing case")
		})
	}
	assert.Empty(t, parse("sh test.sh", evidence.ReportAuto, 0, passed+"not ok to end like that\n", junit).Problem)
}
