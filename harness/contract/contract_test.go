package contract

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func prints(text string) func(sandbox.Request, string) result.Result {
	return func(sandbox.Request, string) result.Result {
		return result.Result{Status: result.StatusExited, Stdout: text}
	}
}

func TestExecute(t *testing.T) {
	h, box := newHarness(t, prints("a\n"))
	c := cat()
	c.Inputs.Environment = map[string]string{"A": "1", "LD_PRELOAD": "evil.so", "PATH": "/evil"}
	c.Inputs.Stdin = new("in")
	c.Outputs.Stdout.Expected = new("a")
	c.Determinism.Seed = new(int64(7))
	o, err := h.Run(t.Context(), of(c))
	require.NoError(t, err)

	require.True(t, o.Started)
	require.True(t, o.Success, o.Error)
	require.Equal(t, "exited", o.Status)
	require.Equal(t, 0, *o.ExitCode)
	require.Equal(t, "continue", o.Exit.Action)
	require.Len(t, o.Stripped, 2)
	require.Len(t, o.ExecutionID, 36, "a UUID")
	require.Empty(t, o.Error)

	require.Len(t, box.ran, 1)
	req := box.ran[0]
	require.Equal(t, []string{"cat", "a.txt"}, req.Command)
	require.Equal(t, map[string]string{"A": "1", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "SEED": "7", "PYTHONHASHSEED": "7"}, req.Env)
	require.Equal(t, "/repo/src", req.WorkDir)
	require.Equal(t, []sandbox.Mount{{Source: filepath.Join(fsx.RealPath(h.Root), "src"), Target: "/repo/src"}}, req.Mounts)
	require.Empty(t, req.Trees)
	require.Nil(t, req.Egress)
	require.Equal(t, 30*time.Second, req.Limits.Timeout)
	require.Equal(t, 512*policy.MiB, req.Limits.Memory)
	require.EqualValues(t, 11, req.Limits.PIDs)
	require.False(t, req.NoFork)

	require.Equal(t, []string{"cat", "a.txt"}, o.Executed.Command)
	require.Equal(t, []string{"A=1", "HOME=/tmp", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "PYTHONHASHSEED=7", "SEED=7", "TZ=UTC"}, o.Executed.Environment)
	require.EqualValues(t, 2, o.Executed.StdinBytes)
	require.Equal(t, []trial.File{{Path: "a.txt", Size: 2, SHA256: "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"}}, o.Executed.InputFiles)
	for _, point := range o.Checklist {
		require.Equal(t, CheckDone, point.State, point)
	}

	// The record holds both documents, and the contract in it is a contract again.
	text, err := os.ReadFile(filepath.Join(o.Evidence.Path, OutcomeFile))
	require.NoError(t, err)
	var again Outcome
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, o, again)
	kept, err := Load(filepath.Join(o.Evidence.Path, ContractFile))
	require.NoError(t, err)
	require.Equal(t, o.ExecutionID, kept.ExecutionID)
	require.Equal(t, "in", *kept.Inputs.Stdin)
	require.Equal(t, RetainSession, o.Evidence.Retention)
}

// A contract that breaks rules is an outcome, has no exit code and runs nothing; and
// everything is reported at once.
func TestExecuteRefused(t *testing.T) {
	h, box := newHarness(t, nil)
	o, err := h.Run(t.Context(), document(`
tool_id: TL-999
inputs:
  command: cat
  working_directory: nowhere
  input_files: [../x]
sandbox:
  timeout_ms: 1
  filesystem: {level: elevated}
`))
	require.NoError(t, err)
	require.False(t, o.Started)
	require.False(t, o.Success)
	require.Equal(t, StatusRefused, o.Status)
	require.Nil(t, o.ExitCode)
	require.Nil(t, o.Exit)
	var fields []string
	for _, v := range o.Violations {
		fields = append(fields, v.Code+" "+v.Field)
		if v.Field != "approval" {
			assert.NotZero(t, v.Line, v)
		}
	}
	require.Equal(t, []string{
		"IV-01 tool_id", "IV-03 inputs.input_files[0]", "CX-02 sandbox.timeout_ms", "IV-03 inputs.working_directory", "CK-01 approval",
	}, fields)
	require.True(t, strings.HasPrefix(o.Error, "Validation failed: IV-01: tool_id"), o.Error)
	require.Empty(t, box.ran)
	entries, err := os.ReadDir(box.store.RunsDir())
	require.NoError(t, err)
	require.Empty(t, entries)
	states := map[string]string{}
	for _, point := range o.Checklist {
		states[point.Point] = point.State
	}
	require.Equal(t, map[string]string{
		"tool_registered_and_active": CheckFailed, "adapter_matches_tool": CheckDone, "inputs_validated": CheckFailed,
		"limits_set": CheckFailed, "allowlist_permits": CheckFailed, "evidence_capture_started": CheckNotReached,
		"timeout_enforced": CheckNotReached, "resources_monitored": CheckNotReached, "streams_captured": CheckNotReached,
		"errors_logged": CheckNotReached, "exit_code_interpreted": CheckNotReached, "outputs_validated": CheckNotReached,
		"artifacts_stored": CheckNotReached, "evidence_captured": CheckNotReached, "cleanup_performed": CheckNotReached,
	}, states)
}

func TestExecuteSentences(t *testing.T) {
	h, _ := newHarness(t, nil)
	c := cat()
	c.ToolID, c.Inputs.Command = "TL-090", "sh"
	o, err := h.Run(t.Context(), of(c))
	require.NoError(t, err)
	require.Equal(t, "Tool 'shell' is blocked", o.Error)
	c = cat()
	c.AdapterID = "ADP-001"
	o, err = h.Run(t.Context(), of(c))
	require.NoError(t, err)
	require.Equal(t, "No adapter found 'ADP-001'", o.Error)
	require.False(t, o.Started)
}

// A contract that the sandbox refuses is refused; a failure of the sandbox is an error.
func TestExecuteSandboxRefuses(t *testing.T) {
	h, box := newHarness(t, nil)
	box.planErr = &policy.FieldError{Field: "cpus", Value: "4", Rule: "the engine's machine has 2"}
	o, err := h.Run(t.Context(), of(cat()))
	require.NoError(t, err)
	require.Equal(t, []Violation{{Code: "CX-02", Field: "sandbox.cpu_cores", Value: "4", Rule: "the engine's machine has 2", Hint: hintMachine}}, o.Violations)
	require.Equal(t, StatusRefused, o.Status)

	box.planErr = &policy.FieldError{Field: "image", Value: "nope", Rule: "is not known"}
	o, err = h.Run(t.Context(), of(cat()))
	require.Error(t, err)
	require.Equal(t, StatusFailed, o.Status)

	box.planErr, box.runErr = nil, errFake
	o, err = h.Run(t.Context(), of(cat()))
	require.ErrorIs(t, err, errFake)
	require.Equal(t, StatusFailed, o.Status)
	require.Equal(t, errFake.Error(), o.Error)
	require.Nil(t, o.Executed)
}

func TestDryRun(t *testing.T) {
	h, box := newHarness(t, nil)
	o, err := h.Plan(t.Context(), document("{tool_id: TL-020, inputs: {command: echo, arguments: [hi]}}"))
	require.NoError(t, err)
	require.Equal(t, StatusPlanned, o.Status)
	require.False(t, o.Started)
	require.Nil(t, o.ExitCode)
	require.Equal(t, []string{"echo", "hi"}, o.Executed.Command)
	require.Equal(t, "/repo", o.Executed.WorkingDirectory)
	require.Empty(t, box.ran)
}

func TestApprovalIsUsedOnce(t *testing.T) {
	h, box := newHarness(t, nil)
	c := cat()
	c.ToolID, c.Inputs.Command = "TL-010", "python3"
	c.Sandbox.Filesystem.Level = "elevated"
	e, _, _ := h.Rules.Validate(c)
	now := time.Now()
	approval := NewApproval(e, h.Root, "", Approver{Name: "Ada", Reason: "a test"}, now, time.Hour)
	require.NoError(t, h.Approvals.Grant(approval))
	job := func(c Contract, a *Approval) Job { return Job{Contract: &c, Approval: a} }

	// An execution that fails before the start does not use it.
	box.runErr = errFake
	_, err := h.Run(t.Context(), job(c, &approval))
	require.ErrorIs(t, err, errFake)
	box.runErr = nil

	o, err := h.Run(t.Context(), job(c, &approval))
	require.NoError(t, err)
	require.True(t, o.Success, "%s %v", o.Error, o.Violations)
	require.Equal(t, "Ada", o.Approval.ApprovedBy)
	require.Equal(t, RetainEvidence, o.Evidence.Retention)

	o, err = h.Run(t.Context(), job(c, &approval))
	require.NoError(t, err)
	require.Equal(t, StatusRefused, o.Status)
	require.Equal(t, "approval", o.Violations[0].Field)
	o, err = h.Plan(t.Context(), job(c, &approval))
	require.NoError(t, err)
	require.Equal(t, StatusRefused, o.Status, "a plan refuses it as well")

	// Another contract cannot use it.
	approval.ID = "other"
	o, err = h.Run(t.Context(), job(c, &approval))
	require.NoError(t, err)
	require.Equal(t, []string{`CK-01: approval.id "other": the approval was not made here, or was changed`}, linesOf(o.Violations))
	require.NoError(t, h.Approvals.Grant(approval))
	c.Inputs.Arguments = []string{"-V"}
	o, err = h.Run(t.Context(), job(c, &approval))
	require.NoError(t, err)
	require.Equal(t, StatusRefused, o.Status)

	// A person on the spot.
	for range 2 {
		o, err = h.Run(t.Context(), Job{Contract: &c, Approver: Approver{Name: "Grace", Reason: "to see"}})
		require.NoError(t, err)
		require.True(t, o.Success, "%v", o.Violations)
		require.Equal(t, "Grace", o.Approval.ApprovedBy)
	}
}

func TestOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(c *Contract)
		res     result.Result
		code    int
		success bool
		action  string
		err     string
	}{
		"exit code as expected": {change: func(c *Contract) { c.Outputs.ExitCode = new(3) },
			res: result.Result{Status: result.StatusExited, ExitCode: 3}, code: 3, success: true, action: "log_and_handle"},
		"exit code": {res: result.Result{Status: result.StatusExited, ExitCode: 3}, code: 3, action: "log_and_handle",
			err: "exit code differs: expected 0, got 3"},
		"time limit": {res: result.Result{Status: result.StatusTimedOut, ExitCode: -1, TimedOut: true, Stdout: "partial"}, code: 143,
			action: "extend_timeout_or_fail", err: "Execution timed out after 30s"},
		"time limit and 143 expected": {change: func(c *Contract) { c.Outputs.ExitCode = new(143) },
			res: result.Result{Status: result.StatusTimedOut, ExitCode: -1, TimedOut: true}, code: 143,
			action: "extend_timeout_or_fail", err: "Execution timed out after 30s"},
		"143 of its own": {res: result.Result{Status: result.StatusSignaled, ExitCode: 143, Signal: 15}, code: 143,
			action: "log_signal_number", err: "exit code differs: expected 0, got 143"},
		"memory": {res: result.Result{Status: result.StatusOutOfMemory, ExitCode: 137, OOMKilled: true, Explanation: "Out of memory."},
			code: 137, action: "more_memory_or_fail", err: "Out of memory"},
		"137 without evidence": {res: result.Result{Status: result.StatusSignaled, ExitCode: 137, Signal: 9}, code: 137,
			action: "log_signal_number", err: "exit code differs: expected 0, got 137"},
		"not in the image": {res: result.Result{Status: result.StatusStartFailed, ExitCode: 127, Explanation: "The command is not in the image."},
			code: 127, action: "check_allowlist", err: "Command not found: The command is not in the image"},
		"stdout": {change: func(c *Contract) { c.Outputs.Stdout.Expected = new("a\nc\n") },
			res: result.Result{Status: result.StatusExited, Stdout: "a\nb\n"}, action: "continue",
			err: `stdout differs: expected line 2: "c", got line 2: "b"`},
		"line ends at the end": {change: func(c *Contract) { c.Outputs.Stdout.Expected = new("a\r\n") },
			res: result.Result{Status: result.StatusExited, Stdout: "a\n\n"}, action: "continue", success: true},
		"pattern": {change: func(c *Contract) { c.Outputs.Stderr.Pattern = new("^ok [0-9]+$") },
			res: result.Result{Status: result.StatusExited, Stderr: "ok x"}, action: "continue",
			err: `stderr differs: expected a match of ^ok [0-9]+$, got none in "ok x"`},
		"pattern matches": {change: func(c *Contract) { c.Outputs.Stdout.Pattern = new("b+") },
			res: result.Result{Status: result.StatusExited, Stdout: "abba"}, action: "continue", success: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHarness(t, func(sandbox.Request, string) result.Result { return test.res })
			c := cat()
			if test.change != nil {
				test.change(&c)
			}
			o, err := h.Run(t.Context(), of(c))
			require.NoError(t, err)
			require.Equal(t, test.err, o.Error)
			require.Equal(t, test.success, o.Success)
			require.Equal(t, test.code, *o.ExitCode)
			require.Equal(t, test.action, o.Exit.Action)
			require.Equal(t, test.res.Stdout, o.Stdout)
		})
	}
}

const testLibrary = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

func TestClockWithoutLibrary(t *testing.T) {
	h, box := newHarness(t, nil)
	box.clock = result.Result{Status: result.StatusExited, ExitCode: 3}
	c := cat()
	c.Determinism.Clock = "2026-01-01T12:00:00+02:00"
	for range 2 {
		o, err := h.Run(t.Context(), of(c))
		require.NoError(t, err)
		require.Equal(t, StatusRefused, o.Status)
		require.False(t, o.Started)
		require.Equal(t, "determinism.clock", o.Violations[0].Field)
	}
	require.Empty(t, box.ran)
	require.Len(t, box.probed, 1, "an image is looked at once")
	require.Equal(t, []string{"sh", "-c", clockProbe}, box.probed[0].Command)
}

// Whatever a program prints, it ran.
func TestClockIsNotInferred(t *testing.T) {
	h, box := newHarness(t, func(sandbox.Request, string) result.Result {
		return result.Result{Status: result.StatusExited, ExitCode: 125, Stderr: "evalbox: this image has no libfaketime\n"}
	})
	box.clock = result.Result{Status: result.StatusExited, Stdout: testLibrary + "\n"}
	c := cat()
	c.Determinism.Clock = "2026-01-01T12:00:00+02:00"
	o, err := h.Run(t.Context(), of(c))
	require.NoError(t, err)
	require.True(t, o.Started)
	require.Equal(t, 125, *o.ExitCode)
	require.FileExists(t, filepath.Join(o.Evidence.Path, OutcomeFile))
	require.Equal(t, []string{"cat", "a.txt"}, box.ran[0].Command)
	require.Equal(t, testLibrary, box.ran[0].FakeClock.Library)
	require.Equal(t, "2026-01-01T10:00:00Z", box.ran[0].FakeClock.At.UTC().Format(time.RFC3339))
}

// A probe that fails says nothing about the image.
func TestClockProbeFails(t *testing.T) {
	h, box := newHarness(t, nil)
	c := cat()
	c.Determinism.Clock = "2026-01-01T12:00:00Z"
	for _, res := range []result.Result{
		{Status: result.StatusExited, Stdout: "/evil.so\n"},
		{Status: result.StatusTimedOut, ExitCode: -1},
	} {
		box.clock = res
		_, err := h.Run(t.Context(), of(c))
		require.ErrorContains(t, err, "looking for libfaketime in ")
	}
	require.Empty(t, box.ran)
}

// A file that the contract names must reach the host.
func TestNotApplied(t *testing.T) {
	h, _ := newHarness(t, func(sandbox.Request, string) result.Result {
		return result.Result{Status: result.StatusExited, Trees: []result.Tree{{Target: "/repo/src",
			Created: []result.TreeEntry{{Path: "new", Kind: "file"}, {Path: "lost", Kind: "file"}},
			Changed: []result.TreeEntry{{Path: "theirs", Kind: "file"}},
		}}}
	})
	c := cat()
	c.ToolID, c.Inputs.Command, c.Inputs.Arguments = "TL-010", "python3", nil
	c.Sandbox.Filesystem.Level = "standard"
	c.Outputs.OutputFiles = []string{"new"}
	o, err := h.Run(t.Context(), of(c))
	require.NoError(t, err)
	require.True(t, o.Success, "%s %v", o.Error, o.Violations)

	c.Outputs.OutputFiles = []string{"new", "theirs", "lost"}
	c.Outputs.Artifacts = []ArtifactSpec{{Path: "theirs"}}
	o, err = h.Run(t.Context(), of(c))
	require.NoError(t, err)
	require.False(t, o.Success)
	kept := filepath.Join(o.Evidence.Path, "trees/0")
	require.Equal(t, `output file "theirs" was written, but not carried over: was changed meanwhile; it is kept at `+kept+"/theirs; "+
		`output file "lost" was written, but not carried over: it was not reached; it is kept at `+kept+"/lost", o.Error)
	for _, point := range o.Checklist {
		if point.Point == "outputs_validated" {
			require.Equal(t, CheckFailed, point.State)
		}
	}
}

// What Git executes is written only by contracts that say so.
func TestGitIsNamed(t *testing.T) {
	h, _ := newHarness(t, func(sandbox.Request, string) result.Result {
		return result.Result{Status: result.StatusExited, Trees: []result.Tree{{Target: "/repo", Created: []result.TreeEntry{{Path: ".git/config", Kind: "file"}}}}}
	})
	require.NoError(t, os.MkdirAll(filepath.Join(h.Root, ".git"), 0o755))
	for name, test := range map[string]struct {
		files Filesystem
		named bool
	}{
		"standard":        {Filesystem{Level: "standard"}, false},
		"extended":        {Filesystem{Level: "extended"}, false},
		"extended, named": {Filesystem{Level: "extended", Write: []string{".git"}}, true},
		"elevated":        {Filesystem{Level: "elevated"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := cat()
			c.ToolID, c.Inputs = "TL-010", Inputs{Command: "python3"}
			c.Sandbox.Filesystem = test.files
			c.Outputs.OutputFiles = []string{".git/config"}
			o, err := h.Run(t.Context(), Job{Contract: &c, Approver: Approver{Name: "Ada", Reason: "a test"}})
			require.NoError(t, err)
			require.Equal(t, test.named, o.Success, "%s %v", o.Error, o.Violations)
		})
	}
}

// Rules of the sandbox are reported with all others, by the field of the contract.
func TestPlanIsReportedAsWell(t *testing.T) {
	h, box := newHarness(t, nil)
	box.planErr = errors.Join(
		&policy.FieldError{Field: "network level", Value: `"open"`, Rule: "is not permitted"},
		&policy.FieldError{Field: "allow-host", Value: `"10.0.0.1"`, Rule: "is private", Entry: 2},
		&sandbox.PathError{Field: "tree", Path: filepath.Join(fsx.RealPath(h.Root), "src"), Rule: "is on a disk that is full"})
	const text = `
tool_id: TL-010
inputs: {command: python3, working_directory: src}
sandbox:
  filesystem: {level: standard}
  network:
    level: open
    allow: [example.org, 10.0.0.1]
`
	o, err := h.Run(t.Context(), document(text))
	require.NoError(t, err)
	fields := map[string]int{}
	for _, v := range o.Violations {
		fields[v.Field] = v.Line
	}
	require.Equal(t, map[string]int{"approval": 0, "sandbox.network.level": 7, "sandbox.network.allow[1]": 8, "inputs.working_directory": 3}, fields)

	// An engine that is away does not hide what is wrong.
	box.planErr = errFake
	o, err = h.Run(t.Context(), document(text))
	require.NoError(t, err)
	require.Len(t, o.Violations, 1)
}

func TestDeniedNothing(t *testing.T) {
	h, _ := newHarness(t, nil)
	c := cat()
	c.Sandbox.Filesystem.Deny = []string{"src/*.txt"}
	o, err := h.Run(t.Context(), of(c))
	require.NoError(t, err)
	require.Contains(t, o.Warnings, `sandbox.filesystem.deny[0] "src/*.txt": nothing is there, so nothing is hidden`)
	for _, m := range o.Executed.Mounts {
		require.NotEqual(t, "hidden", m.Mode)
	}
}

// Files beyond the limit are not kept as evidence.
func TestTooLargeIsOfTheSession(t *testing.T) {
	h, _ := newHarness(t, func(sandbox.Request, string) result.Result {
		return result.Result{Status: result.StatusExited, Outputs: []result.Output{{Path: "big", SizeBytes: 11 << 20}}}
	})
	o, err := h.Run(t.Context(), of(cat()))
	require.NoError(t, err)
	require.False(t, o.Success)
	require.Equal(t, RetainSession, o.Evidence.Retention)
	require.Equal(t, RetainSession, o.OutputFiles[0].Retention)
}
