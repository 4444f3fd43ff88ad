package normalize_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
	"github.com/evalbox/evalbox/result"
)

// gateDir is a gate directory after node 2.
type gateDir struct {
	t    *testing.T
	path string
	root *os.Root
}

func newGateDir(t *testing.T, m evidence.RunManifest) gateDir {
	t.Helper()
	d := gateDir{t: t, path: t.TempDir()}
	var err error
	d.root, err = os.OpenRoot(d.path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.root.Close() })
	require.NoError(t, os.MkdirAll(filepath.Join(d.path, evidence.RawDir, "baseline"), 0o755))
	for i := range m.Gates {
		m.GateCommands = append(m.GateCommands, m.Gates[i].Cmd)
		m.Gates[i].Index = i + 1
		m.Gates[i].Argv = strings.Fields(m.Gates[i].Cmd)
	}
	d.write(evidence.RunManifestFile, m)
	return d
}

// write writes a file: text as it is, anything else as JSON.
func (d gateDir) write(name string, content any) {
	d.t.Helper()
	text, ok := content.(string)
	if !ok {
		b, err := json.MarshalIndent(content, "", "  ")
		if m, ok := content.(evidence.RunManifest); ok {
			b, err = evidence.Canonical(m)
		}
		require.NoError(d.t, err)
		text = string(b)
	}
	require.NoError(d.t, os.WriteFile(filepath.Join(d.path, name), []byte(text), 0o644))
}

// ran writes the raw files of a gate. more has further keys of its result.
func (d gateDir) ran(base string, exit int, stdout, stderr string, more map[string]any) {
	d.t.Helper()
	b, err := (result.Result{
		Schema: result.SchemaV1, ID: "20261122-" + filepath.Base(base), Status: result.StatusExited, Fault: result.FaultNone, ExitCode: exit, OutputComplete: true,
		StdoutBytes: int64(len(stdout)), StderrBytes: int64(len(stderr)), DurationSeconds: 0.25,
		Trees: []result.Tree{{Target: evidence.Boundary, Complete: true}},
	}).Encode()
	require.NoError(d.t, err)
	all := map[string]any{}
	require.NoError(d.t, json.Unmarshal(b, &all))
	for key, value := range more {
		all[key] = value
	}
	base = filepath.Join(evidence.RawDir, base)
	d.write(base+".result.json", all)
	d.write(base+".stdout.log", stdout)
	d.write(base+".stderr.log", stderr)
}

func (d gateDir) read(name string) string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.path, name))
	require.NoError(d.t, err)
	return string(text)
}

func readAs[T any](d gateDir, name string) (v T) {
	d.t.Helper()
	require.NoError(d.t, json.Unmarshal([]byte(d.read(name)), &v))
	return v
}

const events = `{"Action":"run","Package":"m","Test":"TestB"}
{"Action":"output","Package":"m","Test":"TestB","Output":"--- FAIL: TestB (0.01s)\n"}
{"Action":"output","Package":"m","Test":"TestB","Output":"at 0x7f1234567890 after 12ms\n"}
{"Action":"fail","Package":"m","Test":"TestB"}
{"Action":"pass","Package":"m","Test":"TestA"}
{"Time":"2026-01-02T03:04:05Z","Action":"output","Package":"m","Output":"FAIL\tm\t0.012s\n"}
{"Action":"fail","Package":"m"}
`

func TestEvidence(t *testing.T) {
	m := evidence.RunManifest{
		Schema: evidence.RunManifestV1, Baseline: "/base",
		Gates: []evidence.Gate{
			{Command: evidence.Command{Cmd: "pytest -q", Kind: evidence.KindTests, Report: evidence.ReportAuto}},
			{Command: evidence.Command{Cmd: "go test ./...", Kind: evidence.KindTests, Report: evidence.ReportAuto, ExpectExit: 1}},
			{Command: evidence.Command{Cmd: "make lint", Kind: evidence.KindCheck, Report: evidence.ReportNone}},
		},
		Rules: []evidence.Rule{{Name: "lot", Pattern: `lot \d+`, Replace: "lot <n>"}},
	}
	d := newGateDir(t, m)
	d.ran("01", 0, "/repo/t.py lot 17\r\n2 passed in 0.43s", "warn 20261122-01 10:20:30\n", nil)
	d.write(evidence.RawDir+"/01.report", `<testsuite name="pytest" tests="2"><testcase classname="t" name="b"/><testcase classname="t" name="a"/></testsuite>`)
	d.ran("02", 1, events, "", nil)
	d.ran("baseline/01", 1, "", "", nil)
	d.write(evidence.RawDir+"/baseline/01.report", `<testsuite name="pytest" tests="1"><testcase classname="t" name="b"><failure/></testcase></testsuite>`)

	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	assert.Equal(t, `$ pytest -q
# stdout
t.py lot <n>
2 passed in <duration>
# stderr
warn <name> <time>
# exited, exit code 0
$ go test ./...
# stdout
--- FAIL: TestB (<duration>)
at <address> after <duration>
FAIL	m	<duration>
# stderr
# exited, exit code 1
$ make lint
# did not run
`, d.read(evidence.RunLogFile))
	written := d.read(evidence.RunLogFile)
	sum, err := normalize.BehaviorHash(strings.NewReader(written), int64(len(written)))
	require.NoError(t, err)
	assert.Equal(t, sum+"\n", d.read(evidence.BehaviorHashFile))

	tests := readAs[evidence.Tests](d, evidence.TestsFile)
	assert.Equal(t, "pytest -q && go test ./... && make lint", tests.Command)
	assert.Nil(t, tests.ExitCode, "a gate did not run")
	assert.Equal(t, []string{"t.py::b"}, tests.FailingTestsBefore)
	assert.Equal(t, []string{"m.TestA", "t.py::a", "t.py::b"}, tests.PassingTestsAfter)
	require.Len(t, tests.Commands, 2)
	first, second := tests.Commands[0], tests.Commands[1]
	assert.True(t, first.Started)
	assert.True(t, first.LogsComplete)
	assert.Equal(t, "exited", first.Ending)
	assert.Equal(t, evidence.ReportPytest, first.Source)
	assert.Empty(t, first.Problem)
	assert.Equal(t, "t.py::a", first.Cases[0].ID, "sorted")
	assert.Equal(t, []string{"t.py::b"}, first.Baseline.FailingTests)
	assert.Equal(t, []string{"t.py::b"}, first.FailingTestsBefore)
	assert.Nil(t, second.Baseline)
	assert.Equal(t, evidence.ReportGoTest, second.Source)
	assert.Equal(t, "at <address> after <duration>", second.Cases[1].Message)
	assert.Equal(t, []string{"m.TestA"}, second.PassingTestsAfter)
	assert.NotRegexp(t, `"(cases|argv|commands|failing_tests\w*|passing_tests_after)": null`, d.read(evidence.TestsFile), "lists are never null")

	norm := readAs[evidence.Normalization](d, evidence.NormalizationFile)
	assert.Zero(t, norm.SuspectsTotal)
	assert.Contains(t, norm.Rules, evidence.RuleCount{Name: "lot", Count: 1})
	assert.Contains(t, norm.Rules, evidence.RuleCount{Name: "carriage-return", Count: 1})

	// Again: the same bytes.
	before := map[string]string{}
	for _, name := range []string{evidence.RunLogFile, evidence.TestsFile, evidence.ObservationsFile, evidence.NormalizationFile, evidence.BehaviorHashFile} {
		before[name] = d.read(name)
	}
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	for name, text := range before {
		assert.Equal(t, text, d.read(name), name)
	}
}

// TestEvidenceOfParallelTests: letters are counted only where a report of pytest has the test cases, and the order
// of lines does not count where tests ran in parallel.
func TestEvidenceOfParallelTests(t *testing.T) {
	var m evidence.RunManifest
	for _, report := range []evidence.ReportFormat{evidence.ReportAuto, evidence.ReportJUnit, evidence.ReportJUnit, evidence.ReportNone, evidence.ReportNone} {
		m.Gates = append(m.Gates, evidence.Gate{Command: evidence.Command{Cmd: "./test", Report: report, ReportPath: "r.xml"}})
	}
	d := newGateDir(t, m)
	for i, suite := range []string{"pytest", "pytest", "other", "", ""} {
		base := fmt.Sprintf("%02d", i+1)
		if suite != "" {
			d.write(evidence.RawDir+"/"+base+".report", `<testsuite name="`+suite+`"><testcase classname="t" name="a"/><testcase classname="t" name="b"/></testsuite>`)
		}
		stdout := "2 workers [2 items]\n.s\n"
		if i == 4 {
			stdout = ".s\n"
		}
		d.ran(base, 0, stdout, "", nil)
	}
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	assert.Equal(t, 2, strings.Count(d.read(evidence.RunLogFile), `<progress> 1 of ".", 1 of "s"`))
	assert.Equal(t, 3, strings.Count(d.read(evidence.RunLogFile), "\n.s\n"))
	var hashes []string
	for i, c := range readAs[evidence.Tests](d, evidence.TestsFile).Commands {
		assert.Equal(t, i < 4, c.UnorderedSHA256 != "", "gate %d", c.Index)
		hashes = append(hashes, c.UnorderedSHA256)
	}
	assert.Equal(t, hashes[0], hashes[1], "the hash is of the gate's own part")
	assert.NotEqual(t, hashes[1], hashes[2])
}

func TestEvidenceOfExitCodes(t *testing.T) {
	gates := func(expect ...int) (m evidence.RunManifest) {
		for _, e := range expect {
			m.Gates = append(m.Gates, evidence.Gate{Command: evidence.Command{Cmd: "true", ExpectExit: e, Report: evidence.ReportNone}})
		}
		return m
	}
	code := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		expect, got []int
		want        *int
	}{
		"all met": {[]int{0, 3}, []int{0, 3}, code(0)}, "the first that did not": {[]int{0, 3, 0}, []int{0, 4, 5}, code(4)},
		"no code": {[]int{0}, []int{-1}, nil}, "no gate": {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newGateDir(t, gates(c.expect...))
			for i, got := range c.got {
				d.ran("0"+string(rune('1'+i)), got, "", "", nil)
			}
			require.NoError(t, normalize.Evidence(t.Context(), d.root))
			assert.Equal(t, c.want, readAs[evidence.Tests](d, evidence.TestsFile).ExitCode)
		})
	}
}

func TestEvidenceOfCutLogs(t *testing.T) {
	d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "true"}}}})
	d.ran("01", 0, "abc\n", "", map[string]any{"stdout_bytes": 5, "status": "timed_out", "exit_code": -1})
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	assert.False(t, readAs[evidence.Tests](d, evidence.TestsFile).Commands[0].LogsComplete)
	assert.Contains(t, d.read(evidence.RunLogFile), "# bytes are missing")
	assert.Contains(t, d.read(evidence.RunLogFile), "# timed_out, no exit code\n")
}

func TestSuspectsOfEvidence(t *testing.T) {
	m := evidence.RunManifest{
		Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "echo x-10:20:30"}}}, Allowed: []string{"11:11:11"},
		Rules: []evidence.Rule{{Name: "there", Pattern: "ping", Replace: "pong"}, {Name: "back", Pattern: "pong", Replace: "ping"}},
	}
	d := newGateDir(t, m)
	d.ran("01", 0, "x-10:20:30\nx-11:11:11\nping\n", "", nil)
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	norm := readAs[evidence.Normalization](d, evidence.NormalizationFile)
	assert.Equal(t, 2, norm.SuspectsTotal, "the command itself is none")
	assert.Equal(t, "unstable-rules", norm.Suspects[0].Detector)
	assert.Equal(t, evidence.Suspect{Detector: "clock", Line: 3, Text: "10:20:30"}, norm.Suspects[1])
}

// TestSuspectsInLinesOfTests: in a line of a test only the name of a reported test hides a
// leftover.
func TestSuspectsInLinesOfTests(t *testing.T) {
	const uuid = "0f8d9ed0-26a1-4f85-9e86-a34e95ed09b8"
	d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "pytest -v -s", Report: evidence.ReportAuto}}}})
	d.ran("01", 0, "✓ case "+uuid+" 10:20:30\nassert "+uuid+"\nt.py::test_a["+uuid+"] PASSED\nt.py::test_b[10:20:30] x"+uuid+" PASSED\n2 passed in 0.1s\n", "", nil)
	d.write(evidence.RawDir+"/01.report", `<testsuite name="pytest" tests="2"><testcase classname="t" name="test_a[`+uuid+`]"/><testcase classname="t" name="test_b[10:20:30]"/></testsuite>`)
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	assert.Empty(t, readAs[evidence.Tests](d, evidence.TestsFile).Commands[0].Problem)
	norm := readAs[evidence.Normalization](d, evidence.NormalizationFile)
	var lines []int
	for _, s := range norm.Suspects {
		lines = append(lines, s.Line)
	}
	assert.Equal(t, []int{3, 3, 4, 6}, lines, "%v", norm.Suspects)
}

func TestObservations(t *testing.T) {
	m := evidence.RunManifest{
		Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}, {Command: evidence.Command{Cmd: "b"}}},
		Paths: evidence.Paths{ProtectedPaths: []string{"core/"}, ReadOnlyPaths: []string{"vendor", "go.mod"}},
	}
	d := newGateDir(t, m)
	d.ran("01", 1, `PermissionError: [Errno 13] Permission denied: '/etc/shadow'
cat: /etc/gshadow: Permission denied
cat: can't open '/var/x y': Permission denied
open /usr/x: read-only file system
[Error: EACCES: permission denied, open '/opt/y']
FileNotFoundError: [Errno 2] No such file or directory: '/root/.ssh/id_rsa'
FileNotFoundError: [Errno 2] No such file or directory: '/repo/core/secret'
FileNotFoundError: [Errno 2] No such file or directory: '/repo/data.csv'
FileNotFoundError: [Errno 2] No such file or directory: '/etc/absent'
PermissionError: [Errno 13] Permission denied: '/tmp/x'
sh: 1: ./x.sh: Permission denied
<urlopen error [Errno -3] Temporary failure in name resolution>
`, "touch: cannot touch '/bin/z': Read-only file system\ncat: /etc/gshadow: Permission denied\nOSError: [Errno 101] Network is unreachable\n", map[string]any{
		"trees": trees(result.Tree{Target: "/repo", Complete: true, Created: []result.TreeEntry{{Path: "evidence/tests.json"}, {Path: "vendor/a"}, {Path: "out"}}, Changed: []result.TreeEntry{{Path: "go.mod"}, {Path: "GATES.json"}}, Deleted: []result.TreeEntry{{Path: "core/x"}}}, result.Tree{Target: "/other", Changed: []result.TreeEntry{{Path: "go.mod"}}}),
	})
	d.ran("02", 0, "Network is unreachable\n", "", map[string]any{
		"observed": seen("/etc/shadow", "/repo/core/secret", "/tmp/.ssh/", "/repo/core/"),
		"network":  result.Network{Level: "registry", Refused: 2, Allow: []string{}, Deny: []string{}},
	})
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	all := readAs[evidence.Observations](d, evidence.ObservationsFile)
	require.Len(t, all.Commands, 2)
	first, second := all.Commands[0], all.Commands[1]
	var touched []string
	for _, touch := range first.Touched {
		assert.Equal(t, "refused", touch.How)
		assert.Contains(t, touch.Line, touch.Path)
		touched = append(touched, touch.Path)
	}
	assert.Equal(t, []string{"/bin/z", "/etc/gshadow", "/etc/shadow", "/opt/y", "/root/.ssh/id_rsa", "/usr/x", "/var/x y", "core/secret"}, touched)
	assert.Equal(t, int64(2), first.NetworkAttempts)
	assert.Equal(t, "<urlopen error [Errno -3] Temporary failure in name resolution>", first.NetworkLine)
	assert.Equal(t, "output", first.Counted)
	assert.Equal(t, "none", first.Network)
	assert.False(t, first.Watched)
	assert.Equal(t, []string{"core/x", "go.mod", "vendor/a"}, first.Changed)
	assert.Equal(t, []string{"GATES.json", "evidence/tests.json"}, first.Evidence)

	assert.Zero(t, second.NetworkAttempts, "the kernel knows better than the output")
	assert.Empty(t, second.NetworkLine)
	assert.Equal(t, "kernel", second.Counted)
	assert.Equal(t, "registry", second.Network)
	assert.Equal(t, int64(2), second.Refused)
	assert.Equal(t, []evidence.Touch{{Path: "/etc/shadow", How: "opened"}, {Path: "core/secret", How: "opened"}}, second.Touched)
	assert.True(t, second.Watched)
}

// trees are trees as a result has them.
func trees(all ...result.Tree) any {
	text, err := (result.Result{Status: result.StatusExited, Fault: result.FaultNone, Trees: all}).Encode()
	if err != nil {
		panic(err)
	}
	var r map[string]any
	if err := json.Unmarshal(text, &r); err != nil {
		panic(err)
	}
	return r["trees"]
}

// seen is a whole observation of the kernel.
func seen(opened ...string) map[string]any {
	opened = append([]string{}, opened...)
	return map[string]any{"network_attempts": 0, "network_why": "", "opened": opened, "watched": []string{"/etc/shadow"}, "watch_why": ""}
}

// TestHiddenChanges: no number and no kind of changes hides a forbidden one.
func TestHiddenChanges(t *testing.T) {
	m := evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}}, Paths: evidence.Paths{ReadOnlyPaths: []string{"zz", "a/b"}, ProtectedPaths: []string{"./core/"}}}
	skipped := func(name, kind string) result.Tree {
		return result.Tree{Target: "/repo", Complete: true, Skipped: []result.SkippedOutput{{Path: name, Kind: kind, Reason: "x"}}}
	}
	for name, c := range map[string]struct {
		tree             result.Tree
		changed, made    []string
		complete, nobody bool
	}{
		"cut":                       {tree: result.Tree{Target: "/repo"}},
		"nobody looked":             {tree: result.Tree{Target: "/other", Complete: true}},
		"link":                      {tree: skipped("zz/new.txt", "symlink"), changed: []string{"zz/new.txt"}, complete: true},
		"link instead of directory": {tree: skipped("a", "symlink"), changed: []string{"a"}, complete: true},
		"FIFO":                      {tree: skipped("core/x", "fifo"), changed: []string{"core/x"}, complete: true},
		"evidence is a link":        {tree: skipped("evidence", "symlink"), made: []string{"evidence"}, complete: true},
		"too large":                 {tree: skipped("evidence/tests.json", "file"), made: []string{"evidence/tests.json"}, complete: true},
		"closed directory":          {tree: skipped("zz", "directory")},
		"closed on the way":         {tree: skipped("a", "directory")},
		"closed elsewhere":          {tree: skipped("out/a", "directory"), complete: true},
		"too many":                  {tree: skipped("out", "other")},
		"too many elsewhere":        {tree: skipped("out/x/y", "other"), complete: true},
		"too many here":             {tree: skipped("a/x", "other")},
		"more than are named":       {tree: skipped("", "other")},
		"a link of its own":         {tree: skipped("out/link", "symlink"), complete: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newGateDir(t, m)
			d.ran("01", 0, "", "", map[string]any{"trees": trees(c.tree)})
			require.NoError(t, normalize.Evidence(t.Context(), d.root))
			all := readAs[evidence.Observations](d, evidence.ObservationsFile).Commands
			require.Len(t, all, 1)
			assert.ElementsMatch(t, c.changed, all[0].Changed)
			assert.ElementsMatch(t, c.made, all[0].Evidence)
			assert.Equal(t, c.complete, all[0].Complete)
		})
	}
}

// TestObservationsOfAllSets: attempts on the baseline and in repeats are reported too.
func TestObservationsOfAllSets(t *testing.T) {
	d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}}, Baseline: "/b", Mode: evidence.Mode{Repeats: 3}})
	for _, k := range []int{2, 3} {
		require.NoError(t, os.MkdirAll(filepath.Join(d.path, evidence.PassDir(evidence.RepeatPass(k))), 0o755))
	}
	for _, base := range []string{"01", "baseline/01", "repeat-2/01"} {
		d.ran(base, 0, "", "", nil)
	}
	d.ran("repeat-3/01", 0, "", "", map[string]any{"observed": seen("/etc/shadow")})
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	var sets []string
	all := readAs[evidence.Observations](d, evidence.ObservationsFile).Commands
	for _, o := range all {
		sets = append(sets, o.Pass)
		assert.True(t, o.Complete)
	}
	assert.Equal(t, []string{"", "baseline", "repeat-2", "repeat-3"}, sets)
	assert.Equal(t, []evidence.Touch{{Path: "/etc/shadow", How: "opened"}}, all[3].Touched)
}

// TestDenials: sentences that tests print are not denials if the kernel observed the gate.
func TestDenials(t *testing.T) {
	for line, want := range map[string]struct{ watched, alone bool }{
		"GET /api/users: permission denied":                                             {false, false},
		"GET /etc/users: permission denied":                                             {false, false},
		`"POST /home/a HTTP/1.1" 403 permission denied`:                                 {false, false},
		"http://host/etc/x: permission denied":                                          {false, false},
		"rule /admin/*: permission denied for guests":                                   {false, false},
		"rule /admin/x: permission denied for guests":                                   {false, true},
		"npm WARN EACCES: permission denied, mkdir '/.npm'":                             {false, true},
		"user: permission denied by /etc/policy":                                        {false, true},
		"PermissionError: [Errno 13] Permission denied: '/etc/shadow'":                  {true, true},
		"OSError: [Errno 30] Read-only file system: '/usr/x'":                           {true, true},
		"cat: /etc/gshadow: Permission denied":                                          {true, true},
		"touch: cannot touch '/bin/z': Read-only file system":                           {true, true},
		`{"msg":"open /var/x: permission denied"}`:                                      {true, true},
		"[Error: EACCES: permission denied, open '/opt/y']":                             {true, true},
		"FileNotFoundError: [Errno 2] No such file or directory: '/root/.ssh/id_rsa'":   {true, true},
		"FileNotFoundError: [Errno 2] No such file or directory: '/repo/core/secret'":   {true, true},
		"FileNotFoundError: [Errno 2] No such file or directory: '/repo/data/secret'":   {false, false},
		"PermissionError: [Errno 13] Permission denied: '/tmp/x'":                       {false, false},
		"the file /etc/shadow is there, and the documentation says: permission denied.": {false, true},
	} {
		d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}, {Command: evidence.Command{Cmd: "b"}}}, Paths: evidence.Paths{ProtectedPaths: []string{"core"}}})
		d.ran("01", 0, line+"\n", "", map[string]any{"observed": seen()})
		d.ran("02", 0, line+"\n", "", nil)
		require.NoError(t, normalize.Evidence(t.Context(), d.root))
		all := readAs[evidence.Observations](d, evidence.ObservationsFile).Commands
		assert.Equal(t, want.watched, len(all[0].Touched) > 0, "watched: %s", line)
		assert.Equal(t, want.alone, len(all[1].Touched) > 0, "output alone: %s", line)
	}
}

// TestPrintedDenialsHideNothing: however much a program prints, every file that the kernel saw
// opened is reported.
func TestPrintedDenialsHideNothing(t *testing.T) {
	d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}}})
	var printed strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&printed, "cat: /etc/%04d: Permission denied\n", i)
	}
	d.ran("01", 0, printed.String(), "", map[string]any{"observed": seen("/root/.ssh/id_rsa")})
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	touched := readAs[evidence.Observations](d, evidence.ObservationsFile).Commands[0].Touched
	assert.Len(t, touched, 1001)
	assert.Contains(t, touched, evidence.Touch{Path: "/root/.ssh/id_rsa", How: evidence.TouchOpened})
}

// TestAllowedDenials: a line that the wish permits is no denial.
func TestAllowedDenials(t *testing.T) {
	d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}}, Allowed: []string{"app[.]conf", "^Network is"}})
	d.ran("01", 0, "PermissionError: [Errno 13] Permission denied: '/etc/app.conf'\ncat: /etc/other: Permission denied\nNetwork is unreachable\ncurl: Could not resolve host: x\n", "", nil)
	require.NoError(t, normalize.Evidence(t.Context(), d.root))
	o := readAs[evidence.Observations](d, evidence.ObservationsFile).Commands[0]
	assert.Equal(t, []evidence.Touch{{Path: "/etc/other", How: evidence.TouchPrinted, Line: "cat: /etc/other: Permission denied"}}, o.Touched)
	assert.Equal(t, int64(1), o.NetworkAttempts)
	assert.Equal(t, "curl: Could not resolve host: x", o.NetworkLine)
}

func TestEvidenceErrors(t *testing.T) {
	d := newGateDir(t, evidence.RunManifest{Gates: []evidence.Gate{{Command: evidence.Command{Cmd: "a"}}}})
	d.ran("01", 0, "", "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, normalize.Evidence(ctx, d.root), context.Canceled)

	d.write(evidence.RawDir+"/01.result.json", "{")
	assert.ErrorContains(t, normalize.Evidence(t.Context(), d.root), "01.result.json")

	d.ran("01", 0, "", "", nil)
	// A result that does not say how it ended, or says it twice, is not counted.
	whole := d.read(evidence.RawDir + "/01.result.json")
	d.write(evidence.RawDir+"/01.result.json", strings.Replace(whole, `"exit_code": 0,`, "", 1))
	assert.ErrorContains(t, normalize.Evidence(t.Context(), d.root), `no key "exit_code"`)
	d.write(evidence.RawDir+"/01.result.json", strings.Replace(whole, `"exit_code": 0,`, `"exit_code": 1, "exit_code": 0,`, 1))
	assert.ErrorContains(t, normalize.Evidence(t.Context(), d.root), `"exit_code" twice`)

	// A link in place of a log is not followed.
	d.ran("01", 0, "", "", nil)
	stdout := filepath.Join(d.path, evidence.RawDir, "01.stdout.log")
	require.NoError(t, os.Remove(stdout))
	require.NoError(t, os.Symlink("../../RunManifest.json", stdout))
	assert.ErrorContains(t, normalize.Evidence(t.Context(), d.root), "symbolic link")

	d.write(evidence.RunManifestFile, evidence.RunManifest{Rules: []evidence.Rule{{Name: "x", Pattern: "("}}})
	assert.ErrorContains(t, normalize.Evidence(t.Context(), d.root), `rule of normalization "x"`)
	require.NoError(t, os.Remove(filepath.Join(d.path, evidence.RunManifestFile)))
	assert.ErrorIs(t, normalize.Evidence(t.Context(), d.root), os.ErrNotExist)
}
