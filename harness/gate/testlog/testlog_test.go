package testlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testlog"
)

// parse reads what a command left; an empty report is none.
func parse(cmd string, format evidence.ReportFormat, exit int, stdout, stderr, report string) testlog.Report {
	in := testlog.Input{Stdout: strings.NewReader(stdout), Stderr: strings.NewReader(stderr), ExitCode: &exit}
	if report != "" {
		in.Report = strings.NewReader(report)
	}
	return testlog.Parse(evidence.Gate{Argv: strings.Fields(cmd), Report: format}, in)
}

// told are the cases as "ID outcome".
func told(r testlog.Report) (all []string) {
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
	const summary = "=== 1 failed, 2 passed, 1 skipped, 1 xfailed, 2 errors in 0.43s ===\n"
	for _, format := range []evidence.ReportFormat{evidence.ReportAuto, evidence.ReportPytest, evidence.ReportJUnit} {
		r := parse("python3 -B -m pytest -q", format, 1, summary, "", pytestReport)
		assert.Empty(t, r.Problem)
		assert.Equal(t, evidence.ReportPytest, r.Source)
		assert.Equal(t, counts(6, 1, 1, 2, 1, 1, 0), r.Counts)
		assert.Equal(t, []string{
			"tests/test_a.py::test_ok[1-x.y] passed", "tests/test_a.py::TestX::TestY::test_bad failed", "tests/test_a.py::test_skip skipped",
			"tests/test_a.py::test_xfail xfailed", "tests/test_a.py::test_teardown error", "tests/test_broken.py error",
		}, told(r))
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
		r := parse("pytest", evidence.ReportAuto, 0, "", "", `<testsuite name="pytest" tests="1"><testcase `+class+` name="t"/></testsuite>`)
		assert.Equal(t, []string{want + " passed"}, told(r))
	}
}

func TestJUnitOfOthers(t *testing.T) {
	r := parse("make test", evidence.ReportAuto, 1, "", "", `<!-- x --><testsuites><testsuite name="outer" tests="6" failures="2" errors="0">
<testsuite name="inner"><testcase classname="C" name="a"/><testcase name="b"><failure/><failure>again</failure></testcase></testsuite>
<testcase classname="C" name="flaky"><flakyFailure message="once"/></testcase>
<testcase classname="C" name="rerun"><failure message="m"/><rerunFailure>2</rerunFailure></testcase>
<testcase classname="G" name="off" status="notrun"/>
<testcase classname="G" name="skipped" result="skipped"><skipped/></testcase>
</testsuite></testsuites>`)
	assert.Empty(t, r.Problem)
	assert.Equal(t, evidence.ReportJUnit, r.Source)
	assert.Equal(t, []string{"C.a passed", "inner.b failed", "C.flaky passed", "C.rerun failed", "G.off skipped", "G.skipped skipped"}, told(r))
}

// TestBrokenJUnit: whatever is wrong is told, what was read before is kept, and nothing
// takes more than a bounded amount of memory or time.
func TestBrokenJUnit(t *testing.T) {
	const begin = `<testsuite name="s" tests="1"><testcase classname="c" name="a"/>`
	for _, c := range []struct{ name, report, problem string }{
		{"empty", " ", "has no element"},
		{"other root", "<html></html>", "begins with <html>"},
		{"cut", begin, "broken or cut"},
		{"cut in a tag", begin + `<testcase na`, "broken or cut"},
		{"two roots", begin + `</testsuite><x/>`, "begins with <x>"},
		{"deep", strings.Repeat("<testsuite>", 10_000), "more than 64 deep"},
		{"entity", `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>` + begin + `&b;</testsuite>`, "entity"},
		{"external", `<!DOCTYPE x SYSTEM "file:///etc/passwd">` + begin + `&x;</testsuite>`, "entity"},
		{"encoding", `<?xml version="1.0" encoding="latin1"?>` + begin + `</testsuite>`, "only UTF-8"},
		{"declares more", `<testsuite name="s" tests="9"><testcase name="a"/></testsuite>`, "declare 9 tests"},
		{"declares failures", `<testsuite name="s" tests="1" failures="1"><testcase name="a"/></testsuite>`, "1 failures and errors"},
		{"declares no test", `<testsuite name="s" tests="0"><testcase name="a"/></testsuite>`, "declare 0 tests"},
		{"declares skipped", `<testsuite name="s" tests="1" skipped="1"><testcase name="a"/></testsuite>`, "1 skipped"},
		{"root declares more", `<testsuites tests="10"><testsuite name="s" tests="1"><testcase name="a"/></testsuite></testsuites>`, "as a whole declares 10 tests"},
		{"root declares failures", `<testsuites tests="1" failures="3"><testsuite name="s"><testcase name="a"/></testsuite></testsuites>`, "with 3 failures"},
		{"root declares no test", `<testsuites tests="0"><testsuite name="s"><testcase name="a"/></testsuite></testsuites>`, "declares 0 tests"},
		{"declares none", `<testsuite name="s" tests="1" failures="0"><testcase name="a"><failure/></testcase></testsuite>`, "with 0 failures"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse("make test", evidence.ReportJUnit, 0, "", "", c.report)
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
	r := parse("make test", evidence.ReportAuto, 1, "", "", "<testsuite><testcase name=\"a\x00\xff\x1b&#10;b\"><failure>\x00\xfe\x08</failure><system-out>\x1b[31m</system-out></testcase></testsuite>")
	assert.Empty(t, r.Problem)
	require.Len(t, r.Cases, 1)
	assert.Equal(t, "a\ufffd\ufffd\ufffd\ufffdb", r.Cases[0].Name)
	assert.Equal(t, "\ufffd\ufffd\ufffd", r.Cases[0].Message)
}

func TestCasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("<testsuite>")
	for i := range testlog.MaxCases + 10 {
		fmt.Fprintf(&b, `<testcase name="t%d"/>`, i)
	}
	b.WriteString(`<testcase name="` + strings.Repeat("n", 5000) + `"><failure>` + strings.Repeat("m", 5000) + `</failure></testcase></testsuite>`)
	r := parse("x", evidence.ReportAuto, 1, "", "", b.String())
	assert.Len(t, r.Cases, testlog.MaxCases)
	assert.Equal(t, 11, r.Dropped)
	assert.Equal(t, testlog.MaxCases+11, r.Counts.Total)
	last := r.Cases[testlog.MaxCases-1]
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
	r := parse("go test ./...", evidence.ReportAuto, 1, events, "", "")
	assert.Empty(t, r.Problem)
	assert.Equal(t, evidence.ReportGoTest, r.Source)
	assert.Equal(t, []string{
		"m/a.TestA/sub failed", "m/a.TestA failed", "m/a.TestS skipped", "m/a.BenchmarkX passed",
		"m/b error", "m/exit.TestExit error", "m/main error", "m/cached.TestC passed",
	}, told(r))
	assert.Equal(t, "a_test.go:3: got 1", r.Cases[0].Message)
	assert.Equal(t, "b.go:1: syntax error", r.Cases[4].Message)
	assert.Equal(t, "began and did not end\nbye", r.Cases[5].Message)
	assert.Equal(t, "panic: in TestMain", r.Cases[6].Message)

	var text strings.Builder
	require.NoError(t, testlog.CopyText(&text, strings.NewReader(events)))
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
		r := parse("go test", evidence.ReportGoTest, 0, events, "", "")
		assert.Contains(t, r.Problem, problem)
	}
	assert.Equal(t, "stdout has no events of go test -json", parse("go test", evidence.ReportGoTest, 0, "ok  \tm\t0.1s\n", "", "").Problem)
	var many strings.Builder
	for i := range 20_100 {
		fmt.Fprintf(&many, `{"Action":"run","Package":"p%d","Test":"T%d"}`+"\n", i, i)
	}
	assert.Contains(t, parse("go test", evidence.ReportAuto, 1, many.String(), "", "").Problem, "more than 20000")
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
`, "", "")
	assert.Empty(t, r.Problem)
	assert.Equal(t, evidence.ReportTAP, r.Source)
	assert.Equal(t, []string{
		"plain passed", `with \# sign failed`, "skipped skipped", "later xfailed", "test 5 xpassed",
		"outer > child passed", "outer > inner > deep failed", "outer > inner failed", "outer failed",
		"second skipped", "test 8 passed",
	}, told(r))
}

func TestBrokenTAP(t *testing.T) {
	for lines, problem := range map[string]string{
		"1..3\nok 1\nok 2\n":                        "plans 3 tests and has 2",
		"1..1\nok 1\nok 2\n":                        "plans 1 tests and has 2",
		"TAP version 13\nok 1\n":                    "no plan",
		"1..2\nok 1\nok 1\n":                        "out of sequence",
		"1..2\n1..2\nok 1\nok 2\n":                  "two plans",
		"1..3\nok 1\nBail out! no disk\nok 2\n":     "bailed out: no disk",
		"1..1\n    ok 1\n    1..2\nok 1\n":          `subtest "subtest 1" plans 2 tests and has 1`,
		"1..1\nok 1\n    ok 1\n    1..1\n":          "a subtest has no end",
		"1..99999999999999999999\nok 1\n":           "too many",
		"1..1\nok 1\n  ---\n  x: 1\nok 2 - two\n":   "a YAML block has no end",
		"1..1\nok 1\n  ---\n  x: 1\n    not ok 1\n": "a YAML block has no end",
		"1..1\nnot ok 1\n":                          "the exit code is 0",
	} {
		r := parse("x", evidence.ReportTAP, 0, lines, "", "")
		assert.Contains(t, r.Problem, problem, lines)
	}
	assert.Equal(t, "stdout has no TAP", parse("x", evidence.ReportTAP, 0, "all fine\n", "", "").Problem)
	assert.Empty(t, parse("x", evidence.ReportAuto, 0, "ok then\nok\n1..2..3\n", "", "").Source, "an ok is no TAP")
}

func TestSummaries(t *testing.T) {
	for _, c := range []struct {
		name, cmd      string
		exit           int
		stdout, stderr string
		want           evidence.Counts
		cases          []string
	}{
		{"pytest", "pytest -q", 0, "...s [100%]\n3 passed, 1 skipped in 0.10s\n", "", counts(4, 3, 0, 0, 1, 0, 0), nil},
		{"pytest long", "python -m pytest", 1, "=== 1 failed, 2 passed, 1 xfailed, 1 xpassed, 3 warnings, 2 errors in 61.02s (0:01:01) ===\n", "", counts(7, 2, 1, 2, 0, 1, 1), nil},
		{"pytest no tests", "py.test", 5, "no tests ran in 0.01s\n", "", counts(0, 0, 0, 0, 0, 0, 0), nil},
		{"pytest deselected", "uv run pytest", 5, "=== 4 deselected in 0.01s ===\n", "", counts(0, 0, 0, 0, 0, 0, 0), nil},
		{"pytest subtests", "pytest", 0, "1 passed, 2 subtests passed in 0.01s\n", "", counts(1, 1, 0, 0, 0, 0, 0), nil},
		{"pytest colours", "env A=b pytest", 0, "\x1b[32m\x1b[1m3 passed\x1b[0m\x1b[32m in 0.10s\x1b[0m\r\n", "", counts(3, 3, 0, 0, 0, 0, 0), nil},
		{"pytest names", "coverage run -m pytest -v", 1, "t.py::a PASSED [ 50%]\nt.py::b[x y] FAILED [100%]\nt.py::c SKIPPED (why) [100%]\nFAILED t.py::b[x y] - assert 0\nERROR t.py::d - boom\n1 failed, 1 passed, 1 skipped, 1 error in 0.1s\n", "",
			counts(4, 1, 1, 1, 1, 0, 0), []string{"t.py::a passed", "t.py::b[x y] failed", "t.py::c skipped", "t.py::d error"}},
		{"unittest", "python3 -m unittest", 0, "", "...\n----\nRan 3 tests in 0.001s\n\nOK (skipped=1)\n", counts(3, 2, 0, 0, 1, 0, 0), nil},
		{"unittest failed", "python3 -W error -m unittest discover", 1, "", "test_a (m.T.test_a) ... ok\ntest_b (m.T)\nDoc ... ok\ntest_c (m.T.test_c) ... skipped 'x'\nFAIL: test_d (m.T.test_d)\nRan 5 tests in 0.001s\n\nFAILED (failures=1, errors=1, skipped=1, expected failures=1)\n",
			counts(5, 1, 1, 1, 1, 1, 0), []string{"m.T.test_a passed", "m.T.test_c skipped", "m.T.test_d failed"}},
		{"unittest none", "python3 -m unittest", 5, "", "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", counts(0, 0, 0, 0, 0, 0, 0), nil},
		{"go", "go test ./...", 1, "ok  \tm/a\t0.012s\nFAIL\tm/b [build failed]\n?   \tm/c\t[no test files]\nok  \tm/d\t0.01s [no tests to run]\nok  \tm/e\t(cached)\nFAIL\n", "", counts(1, 0, 0, 1, 0, 0, 0), []string{"m/b error"}},
		{"go -v", "go -C x test -v", 1, "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestB/x (0.00s)\n--- FAIL: TestB (0.00s)\n--- SKIP: TestC (0.00s)\nFAIL\nFAIL\tm/a\t0.01s\n", "", counts(4, 1, 2, 0, 1, 0, 0), []string{"m/a.TestA passed", "m/a.TestB/x failed", "m/a.TestB failed", "m/a.TestC skipped"}},
		{"prove", "prove t", 0, "t/a.t .. ok\nAll tests successful.\nFiles=1, Tests=3,  0 wallclock secs ( 0.02 usr)\nResult: PASS\n", "", counts(3, 3, 0, 0, 0, 0, 0), nil},
		{"prove failed", "prove t", 1, "t/a.t (Wstat: 256 (exited 1) Tests: 3 Failed: 1)\nFiles=1, Tests=3,  0 wallclock secs\nResult: FAIL\n", "", counts(3, 2, 1, 0, 0, 0, 0), nil},
		{"shell", "sh -c pytest;true", 0, "3 passed in 0.1s\n", "", counts(3, 3, 0, 0, 0, 0, 0), nil},
		{"pytest twice", "pytest", 1, "2 passed, 1 failed in 0.1s\n3 passed in 0.1s\n", "", counts(6, 5, 1, 0, 0, 0, 0), nil},
		{"unittest twice", "python3 -m unittest", 1, "", "Ran 2 tests in 0.1s\n\nFAILED (failures=1)\nRan 1 test in 0.1s\n\nOK\n", counts(3, 2, 1, 0, 0, 0, 0), nil},
		{"prove twice", "prove t", 1, "t/a.t (Wstat: 0 Tests: 3 Failed: 1)\nFiles=1, Tests=3,  0 wallclock secs\nResult: FAIL\nFiles=1, Tests=2,  0 wallclock secs\nResult: PASS\n", "", counts(5, 4, 1, 0, 0, 0, 0), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse(c.cmd, evidence.ReportAuto, c.exit, c.stdout, c.stderr, "")
			assert.Empty(t, r.Problem)
			assert.Equal(t, evidence.ReportSummary, r.Source)
			assert.Equal(t, c.want, r.Counts)
			assert.Equal(t, c.cases, told(r))
		})
	}
	for _, text := range []string{"", "they passed in 3 ways\n", "5 apples in 0.10s\n", "1 passed\n", "Ran 3 tests in 0.1s\nand more\n", "FAIL\tx\n"} {
		r := parse("sh -c x", evidence.ReportAuto, 0, text, "", "")
		assert.Empty(t, r.Source, text)
		assert.Empty(t, r.Problem, text)
	}
	assert.NotEmpty(t, parse("pytest", evidence.ReportAuto, 0, "hello\n", "", "").Problem, "pytest always says something")
	assert.Empty(t, parse("pytest", evidence.ReportNone, 0, "3 passed in 0.1s\n", "", "").Source)
}

// TestContradictions: no report is believed against the rest.
func TestContradictions(t *testing.T) {
	const three = `<testsuite name="pytest" tests="3" failures="0" errors="0"><testcase classname="t" name="a"/><testcase classname="t" name="b"/><testcase classname="t" name="c"/></testsuite>`
	for _, c := range []struct {
		name, cmd string
		exit      int
		stdout    string
		stderr    string
		report    string
		problem   string
	}{
		{"summary failed", "pytest", 1, "3 failed in 0.1s\n", "", three, "the report says 3 passed, 0 failed, 0 errors, 0 skipped, 0 xfailed, and the output says 0 passed, 3 failed"},
		{"summary fewer", "pytest", 0, "2 passed in 0.1s\n", "", three, "the output says 2 passed"},
		{"summary none", "pytest", 5, "no tests ran in 0.1s\n", "", three, "the output says 0 passed"},
		{"exit 1", "pytest", 1, "3 passed in 0.1s\n", "", three, "the exit code says that tests failed"},
		{"exit 5", "pytest", 5, "", "", three, "there were no tests"},
		{"empty", "pytest", 0, "", "", `<testsuite name="pytest" tests="0"/>`, "no case"},
		{"exit 0", "make", 0, "", "", `<testsuite><testcase name="a"><failure/></testcase></testsuite>`, "1 case that failed, and the exit code is 0"},
		{"unittest", "python -m unittest", 0, "", "Ran 1 test in 0.1s\n\nFAILED (failures=1)\n", "", "the exit code is 0"},
		{"unittest itself", "python -m unittest", 0, "", "Ran 1 test in 0.1s\n\nFAILED\n", "", `unittest says "FAILED"`},
		{"no summary", "pytest -qq", 0, "...\n", "", three, "no summary of pytest that the report could be compared with"},
		{"no summary in a shell", "sh -c pytest", 0, "...\n", "", three, "no summary of pytest"},
		{"events of a forger", "pytest", 0, `{"Action":"start","Package":"x"}` + "\n1 failed, 2 passed in 0.1s\n", "", three, "the output says 2 passed, 1 failed"},
		{"two of pytest", "sh -c pytest", 0, "1 failed in 0.1s\n3 passed in 0.1s\n", "", three, "2 summaries of pytest, and there is one report"},
		{"unittest before pytest", "sh -c pytest", 0, "3 passed in 0.1s\n", "Ran 1 test in 0.1s\n\nFAILED (failures=1)\n", three, "summary of unittest with tests that failed"},
		{"go before pytest", "sh -c pytest", 0, "--- FAIL: TestA (0.00s)\nFAIL\nFAIL\tm\t0.1s\n3 passed in 0.1s\n", "", "", "the lines of go test with tests that failed"},
		{"TAP before pytest", "sh -c pytest", 0, "not ok 1\n3 passed in 0.1s\n", "", three, "TAP with tests that failed"},
		{"events before pytest", "sh -c pytest", 0, `{"Action":"fail","Package":"m","Test":"T"}` + "\n" + `{"Action":"fail","Package":"m"}` + "\n3 passed in 0.1s\n", "", three, "events of go test with tests that failed"},
		{"report of another", "python3 -m unittest", 0, "", "Ran 1 test in 0.1s\n\nOK\n", `<testsuite><testcase name="a"><failure/></testcase></testsuite>`, "a JUnit XML report with tests that failed"},
		{"prove before prove", "sh -c prove", 0, "Files=1, Tests=1,  0 wallclock secs\nResult: FAIL\nFiles=1, Tests=1,  0 wallclock secs\nResult: PASS\n", "", "", "the report has 1 case that failed"},
		{"pytest twice", "sh -c pytest", 0, "1 failed in 0.1s\n3 passed in 0.1s\n", "", "", "the report has 1 case that failed"},
		{"bare packages", "sh -c go_test", 0, "ok  \tm\t0.1s\nok  \tn\t(cached)\n", "", "", "names packages alone"},
		{"bare packages of go", "go test -json=false", 0, "ok  \tm\t0.1s\n", "", "", "names packages alone"},
		{"a sentence", "echo x", 0, "5 passed in 0.1s\n", "", "", "names no tool that prints such"},
		{"TAP of anybody", "printf x", 0, "1..1\nok 1\n", "", "", "say `report: tap`"},
		{"more names", "pytest", 1, "FAILED t.py::a - x\nFAILED t.py::b - x\n1 failed in 0.1s\n", "", "", "names more failed tests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Contains(t, parse(c.cmd, evidence.ReportAuto, c.exit, c.stdout, c.stderr, c.report).Problem, c.problem)
		})
	}
	assert.Empty(t, parse("pytest", evidence.ReportAuto, 0, "3 passed in 0.1s\n", "", three).Problem)
}

func TestAskedForAReport(t *testing.T) {
	exit := 0
	g := evidence.Gate{Argv: []string{"pytest"}, Report: evidence.ReportAuto, Env: map[string]string{"PYTEST_ADDOPTS": "--junit-xml=/x/report.xml"}}
	r := testlog.Parse(g, testlog.Input{Stdout: strings.NewReader("1 passed in 0.1s\n"), ExitCode: &exit})
	assert.Equal(t, evidence.ReportSummary, r.Source)
	assert.Contains(t, r.Problem, "asked for a JUnit XML report and left none")
	assert.Equal(t, "no JUnit XML report was left", parse("pytest", evidence.ReportPytest, 0, "1 passed in 0.1s\n", "", "").Problem)
}

// TestOfAShell: a command that hides its tool is asked for a report as well.
func TestOfAShell(t *testing.T) {
	exit := 0
	g := evidence.Gate{Argv: []string{"echo", "pytest"}, Env: map[string]string{"PYTEST_ADDOPTS": "--junit-xml=/x/report.xml"}}
	r := testlog.Parse(g, testlog.Input{Stdout: strings.NewReader("1 passed in 0.1s\n"), ExitCode: &exit})
	assert.Contains(t, r.Problem, "left none")
	g = evidence.Gate{Argv: []string{"linter"}, Kind: evidence.KindCheck}
	r = testlog.Parse(g, testlog.Input{Stdout: strings.NewReader("1 passed in 0.1s\n"), ExitCode: &exit})
	assert.Empty(t, r.Problem, "a check owes no tests")
}

// TestEventsBehindText: make prints what it runs.
func TestEventsBehindText(t *testing.T) {
	text := "go test -json ./...\n" + `{"Action":"run","Package":"m","Test":"T"}` + "\n" + `{"Action":"pass","Package":"m","Test":"T"}` + "\n" + `{"Action":"pass","Package":"m"}` + "\n"
	for _, cmd := range []string{"make test", "go test -json"} {
		r := parse(cmd, evidence.ReportAuto, 0, text, "", "")
		assert.Equal(t, evidence.ReportGoTest, r.Source)
		assert.Equal(t, []string{"m.T passed"}, told(r))
		assert.Empty(t, r.Problem)
	}
	assert.True(t, testlog.MayTellEvents(evidence.Gate{Argv: []string{"make"}, Report: evidence.ReportAuto}))
	assert.False(t, testlog.MayTellEvents(evidence.Gate{Argv: []string{"pytest"}, Report: evidence.ReportAuto}))
	assert.False(t, testlog.MayTellEvents(evidence.Gate{Argv: []string{"go", "test"}, Report: evidence.ReportNone}))
}

// TestNotRun: what pytest did not run since it expected a failure is no executed test.
func TestNotRun(t *testing.T) {
	report := `<testsuite name="pytest" tests="1" skipped="1"><testcase classname="t" name="a"><skipped type="pytest.xfail" message="[NOTRUN] why"/></testcase></testsuite>`
	r := parse("pytest", evidence.ReportAuto, 0, "1 xfailed in 0.1s\n", "", report)
	assert.Empty(t, r.Problem)
	assert.Zero(t, r.Counts.Executed())
	assert.Equal(t, 1, r.Counts.Skipped)
}

// TestWordsOfCases: some dialects have an attribute for what is no pass.
func TestWordsOfCases(t *testing.T) {
	r := parse("x", evidence.ReportJUnit, 1, "", "", `<testsuite><testcase name="a" status="failed"/><testcase name="b" status="Disabled"/><testcase name="c" result="completed" status="run"/><testcase name="d" status="error"><skipped/></testcase></testsuite>`)
	assert.Equal(t, []string{"a failed", "b skipped", "c passed", "d error"}, told(r))
}

// FuzzParse reads anything in every format: it ends, keeps its bounds, and counts what it
// has.
func FuzzParse(f *testing.F) {
	for _, text := range []string{pytestReport, "1..1\nok 1\n", `{"Action":"run","Package":"m","Test":"T"}`, "3 passed in 0.1s", "Ran 1 test in 0.1s\n\nOK", "ok  \tm\t0.1s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []evidence.ReportFormat{evidence.ReportAuto, evidence.ReportPytest, evidence.ReportGoTest, evidence.ReportTAP, evidence.ReportSummary} {
			r := parse("x", format, 0, text, text, text)
			c := r.Counts
			assert.Equal(t, c.Total, c.Executed()+c.Skipped)
			if len(r.Cases) > 0 && r.Source != evidence.ReportSummary {
				assert.Equal(t, c.Total, len(r.Cases)+r.Dropped)
			}
			for _, one := range r.Cases {
				assert.NotContains(t, one.ID, "\n")
				assert.NotEmpty(t, one.Outcome)
			}
		}
	})
}
