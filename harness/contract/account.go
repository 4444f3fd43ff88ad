package contract

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// account completes the outcome of a run.
func (run *execution) account(ctx context.Context, res *result.Result) {
	o, e := &run.outcome, run.Effective
	o.Started = started(res)
	o.Status, o.Fault, o.Signal, o.TimedOut = res.Status.String(), res.Fault.String(), res.Signal, res.TimedOut
	o.Approval, o.Network = run.approval, res.Network
	o.DurationMS = milliseconds(res.DurationSeconds)
	o.Warnings = append(o.Warnings, res.Warnings...)
	run.interpret(res)
	// A command that cannot be executed is a fault of the contract, which is judged as well.
	run.conclusive = res.Conclusive() || !o.Started && o.ExitCode != nil

	stdout := run.stream("stdout", res.Stdout, res.StdoutBytes, res.StdoutTruncated, e.Stdout)
	stderr := run.stream("stderr", res.Stderr, res.StderrBytes, res.StderrTruncated, e.Stderr)
	var cutOut, cutErr bool
	o.Stdout, cutOut = stdout.captured(int64(e.Stdout))
	o.Stderr, cutErr = stderr.captured(int64(e.Stderr))
	o.StdoutBytes, o.StderrBytes, o.Truncated = res.StdoutBytes, res.StderrBytes, cutOut || cutErr
	for _, s := range []stream{stdout, stderr} {
		if !s.isText() {
			run.warn("%s is not UTF-8, or contains U+FFFD itself: invalid bytes are shown as U+FFFD; the bytes are in the record", s.name)
		}
	}

	files := run.written(res)
	judged := judgeOutputs(run.resolved, e, files)
	o.OutputFiles, o.Artifacts = judged.files, judged.artifacts
	o.Warnings = append(o.Warnings, judged.warnings...)
	unstored := run.storeArtifacts(o.Artifacts)
	if unstored != nil {
		run.warn("not every artifact is stored: %v", unstored)
	}
	o.Differences = append(run.compare(res, stdout, stderr), judged.differences...)
	carried := run.carryOver(ctx, res, judged.tooLarge)
	o.Differences = append(o.Differences, carried.missing(run.resolved, files)...)
	o.Unenforced = unenforced(e, res)
	ended := res.Status == result.StatusExited || res.Status == result.StatusSignaled
	o.Success = o.Started && ended && res.Conclusive() && len(o.failures()) == 0
	if !o.Success {
		o.Error = run.failure(res)
	}
	if judged.tooLarge { // files above the limit are not evidence (CX-05)
		for i := range o.OutputFiles {
			o.OutputFiles[i].Retention = RetainSession
		}
		run.warn("the output files are more than is kept as evidence: they are of the session")
	}
	o.Evidence = Evidence{RunID: res.ID, Path: run.record, Retention: RetainSession}
	if !judged.tooLarge && len(o.OutputFiles)+len(o.Artifacts) > 0 || o.Approval != nil || o.Metadata.EvidenceRef != "" {
		o.Evidence.Retention = RetainEvidence
	}
	run.checkRun(res, unstored)
	o.Checklist = run.checklist()
}

func (run *execution) warn(format string, args ...any) {
	run.outcome.Warnings = append(run.outcome.Warnings, fmt.Sprintf(format, args...))
}

func milliseconds(seconds float64) int64 { return int64(math.Round(seconds * 1000)) }

func sha256Of(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// started reports whether the program ran at all.
func started(res *result.Result) bool {
	mayNot := res.Status == result.StatusCanceled || res.Status == result.StatusEngineLost
	return res.Status != result.StatusStartFailed && (!mayNot || res.StartedAt != "")
}

// codeTimeLimit is the exit code of the time limit in the table of exit codes: 128+15.
const codeTimeLimit = 143

// interpret sets the exit code and its row of the table (CX-06). After the time limit it is
// 143, whatever the program returned.
func (run *execution) interpret(res *result.Result) {
	code := res.ExitCode
	if res.TimedOut {
		code = codeTimeLimit
	}
	if code < 0 {
		return // the program did not start, or its end was not observed
	}
	meaning := result.ExplainExit(code, result.ExitContext{
		Known: true, TimedOut: res.TimedOut, Canceled: res.Status == result.StatusCanceled, OOM: res.OOMKilled, Signal: res.Signal,
	})
	run.outcome.ExitCode, run.outcome.Exit = &code, &meaning
}

// compare compares the streams and the exit code with the contract.
func (run *execution) compare(res *result.Result, stdout, stderr stream) (differences []Difference) {
	o, want := run.outcome, run.Effective.Contract.Outputs
	if !o.Started {
		return nil
	}
	for _, d := range []*Difference{stdout.compare(want.Stdout), stderr.compare(want.Stderr)} {
		if d != nil {
			differences = append(differences, *d)
		}
	}
	// After the time limit the exit code is not the program's.
	if o.ExitCode != nil && *o.ExitCode != *want.ExitCode && !res.TimedOut {
		differences = append(differences, Difference{What: "exit_code", Problem: differs, Expected: fmt.Sprint(*want.ExitCode), Got: fmt.Sprint(*o.ExitCode)})
	}
	return differences
}

// failure is one sentence on why an execution failed.
func (run *execution) failure(res *result.Result) string {
	failed, explanation := run.outcome.failures(), strings.TrimSuffix(res.Explanation, ".")
	switch {
	case !run.outcome.Started && res.ExitCode == 126:
		return "Permission denied: " + explanation
	case !run.outcome.Started && res.ExitCode == 127:
		return "Command not found: " + explanation
	case res.Deadline == result.DeadlineSoft && res.TimedOut:
		return "Execution timed out: " + explanation
	case res.TimedOut:
		return fmt.Sprintf("Execution timed out after %v", run.Effective.Timeout)
	case res.Status != result.StatusExited && res.Status != result.StatusSignaled, len(failed) == 0, !res.Conclusive():
		return explanation
	}
	var texts []string
	for _, d := range failed {
		texts = append(texts, d.String())
	}
	return text.First(texts, mostListed, "; ")
}

// unenforced compares the enforced limits with the contract (resolution 50). Usually there is
// no difference, because the sandbox refuses limits that it cannot enforce.
func unenforced(e Effective, res *result.Result) (open []string) {
	check := func(field string, asked, got float64) {
		if got <= 0 || got > asked {
			open = append(open, fmt.Sprintf("%s: %v was asked for, %v was enforced", field, asked, got))
		}
	}
	check("sandbox.timeout_ms", float64(e.Timeout.Milliseconds()), math.Round(res.Enforced.TimeoutSeconds*1000))
	check("sandbox.memory_mb", float64(e.Memory/policy.MiB), float64(res.Enforced.MemoryBytes)/float64(policy.MiB))
	check("sandbox.cpu_cores", float64(e.CPUs), res.Enforced.CPUs)
	return open
}
