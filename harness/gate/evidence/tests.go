package evidence

// TestsV1 names the wire form of [Tests].
const TestsV1 = "evalbox/tests/v1"

// Outcome is how a test case ended.
type Outcome string

// Outcomes of test cases.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Errored Outcome = "error"   // the test itself could not be carried out
	Skipped Outcome = "skipped" // not run; says nothing
	XFailed Outcome = "xfailed" // failed as was expected
	XPassed Outcome = "xpassed" // passed although a failure was expected
)

// Tests is tests.json: commands and what they tested. The first four keys are those of
// RO-07, over all commands.
type Tests struct {
	Schema string `json:"schema"`
	// Command joins all commands with " && ". ExitCode is 0 if all gates met their
	// expectation, else that of the first that did not; null if it has none.
	Command            string   `json:"command"`
	ExitCode           *int     `json:"exit_code"`
	FailingTestsBefore []string `json:"failing_tests_before"`
	PassingTestsAfter  []string `json:"passing_tests_after"`
	// Commands has one entry for each gate that ran, in order.
	Commands []CommandTests `json:"commands"`
}

// CommandTests is one gate.
type CommandTests struct {
	Index   int      `json:"index"`
	Command string   `json:"command"`
	Argv    []string `json:"argv"`
	Kind    GateKind `json:"kind"`
	// Started is false if the command never ran. Ending is the status of the sandbox's
	// result ("exited", "timed_out", …).
	Started    bool   `json:"started"`
	Ending     string `json:"ending"`
	ExitCode   *int   `json:"exit_code"`
	ExpectExit int    `json:"expect_exit"`
	// LogsComplete is false if bytes of the output were dropped.
	LogsComplete bool `json:"logs_complete"`
	// LogSHA256 is the hash of what the command printed, normalized: its part of
	// run_log.txt. It is what a replay compares; empty if nothing is known.
	LogSHA256 string `json:"log_sha256"`
	// Source is what the cases were read from; empty without any. Problem says why a
	// report could not be read.
	Source  ReportFormat `json:"source"`
	Problem string       `json:"problem"`
	Counts  Counts       `json:"counts"`
	// Cases are sorted by ID. A command of which only numbers are known has none.
	// CasesDropped counts those beyond the limit.
	Cases        []Case `json:"cases"`
	CasesDropped int    `json:"cases_dropped"`
	// FailingTestsBefore are the cases that failed on the baseline, and
	// PassingTestsAfter the cases that pass now (RO-07, RO-04).
	FailingTestsBefore []string  `json:"failing_tests_before"`
	PassingTestsAfter  []string  `json:"passing_tests_after"`
	Baseline           *Baseline `json:"baseline"`
}

// Baseline is the same gate on the baseline revision.
type Baseline struct {
	Started      bool     `json:"started"`
	Ending       string   `json:"ending"`
	ExitCode     *int     `json:"exit_code"`
	Counts       Counts   `json:"counts"`
	FailingTests []string `json:"failing_tests"`
	// PassingTests are the cases that passed there, also those of which a failure was
	// expected: those that are gone now are told (RO-04).
	PassingTests []string `json:"passing_tests"`
}

// Counts are numbers of test cases.
type Counts struct {
	Total   int `json:"total"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Errored int `json:"errored"`
	Skipped int `json:"skipped"`
	XFailed int `json:"xfailed"`
	XPassed int `json:"xpassed"`
}

// Executed is how many cases really ran.
func (c Counts) Executed() int { return c.Passed + c.Failed + c.Errored + c.XFailed + c.XPassed }

// Succeeded is how many cases proved something by passing, also those of which a failure
// was expected. A failure that was expected proves nothing (No test, no pass).
func (c Counts) Succeeded() int { return c.Passed + c.XPassed }

// Add counts one more case.
func (c *Counts) Add(o Outcome) {
	c.Total++
	switch o {
	case Passed:
		c.Passed++
	case Failed:
		c.Failed++
	case Errored:
		c.Errored++
	case Skipped:
		c.Skipped++
	case XFailed:
		c.XFailed++
	case XPassed:
		c.XPassed++
	}
}

// Case is one test case.
type Case struct {
	// ID names the case for people and for the comparison with the baseline, such as
	// "tests/test_a.py::test_b" or "example.com/m/pkg.TestA/sub".
	ID      string  `json:"id"`
	Suite   string  `json:"suite"`
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// Message is the beginning of what the case said, normalized; empty for a pass.
	Message string `json:"message"`
}
