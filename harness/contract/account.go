package contract

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// refused is the outcome of a contract that breaks rules (resolution 15).
func (run *execution) refused() *Outcome {
	o := run.outcome
	for i := range o.Violations {
		if o.Violations[i].Line == 0 {
			o.Violations[i].Line = lineOf(run.lines, o.Violations[i].Field)
		}
	}
	o.Status, o.Started, o.Success, o.ExitCode = StatusRefused, false, false, nil
	o.Executed, o.Approval = nil, nil
	o.Error = refusedText(o.Violations, o.AdapterID)
	o.Checklist = run.checks.refused(run)
	o.normalize()
	return o
}

// refusedText is one sentence on why a contract was refused (CI-02). A tool that is
// blocked and an adapter that is missing have sentences of their own.
func refusedText(violations []Violation, adapter string) string {
	for _, v := range violations {
		if strings.HasPrefix(v.Rule, "Tool '") {
			return v.Rule
		}
		if strings.HasPrefix(v.Rule, "No adapter found") {
			return fmt.Sprintf("No adapter found '%s'", text.Short(adapter, mostShown))
		}
	}
	const most = 3
	var texts []string
	for _, v := range violations[:min(most, len(violations))] {
		texts = append(texts, v.String())
	}
	if more := len(violations) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return "Validation failed: " + strings.Join(texts, "; ")
}

// planned is the outcome of a dry run.
func (run *execution) planned() *Outcome {
	o := run.outcome
	o.Status, o.Approval = StatusPlanned, run.approval
	o.Checklist = run.checks.planned(run)
	o.normalize()
	return o
}

// executed is what is run, from the plan that the engine carries out.
func (run *execution) executed() *Executed {
	e, class, job := run.effective, run.spec.Class, run.spec.Job
	stdin := ""
	if in := run.contract.Inputs.Stdin; in != nil {
		stdin = *in
	}
	sum := sha256.Sum256([]byte(stdin))
	env := slices.Sorted(slices.Values(slices.Concat(class.Env, job.Env)))
	ex := &Executed{
		Command: slices.Clone(job.Command), Environment: lastOfEachName(class.Env, job.Env, env), WorkingDirectory: run.resolved.WorkDir,
		StdinBytes: int64(len(stdin)), StdinSHA256: hex.EncodeToString(sum[:]),
		InputFiles: run.resolved.InputFiles, Image: class.Image.ID, Locked: class.Image.Locked,
		Profile: e.Profile, TimeoutMS: int64(math.Round(job.TimeoutSeconds * 1000)), MemoryMB: class.Cgroup.MemoryBytes / int64(policy.MiB),
		CPUCores: class.Cgroup.NanoCPUs / 1e9, PIDs: class.Cgroup.PIDs, AllowFork: e.AllowFork,
		FilesystemLevel: string(e.FilesystemLevel), NetworkLevel: string(e.NetworkLevel),
		NetworkAllow: slices.Clone(e.Contract.Sandbox.Network.Allow), NetworkDeny: slices.Clone(e.Contract.Sandbox.Network.Deny),
	}
	for _, m := range run.resolved.Mounts {
		ex.Mounts = append(ex.Mounts, Mount{Source: m.Source, Target: m.Target, Mode: "ro"})
	}
	for _, t := range run.resolved.Trees {
		ex.Mounts = append(ex.Mounts, Mount{Source: t.Source, Target: t.Target, Mode: "rw"})
	}
	for _, m := range run.resolved.Masks {
		if !slices.Contains(run.resolved.absent, m) {
			ex.Mounts = append(ex.Mounts, Mount{Target: m, Mode: "hidden"})
		}
	}
	slices.SortStableFunc(ex.Mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	return ex
}

// lastOfEachName drops what the job's environment replaces.
func lastOfEachName(class, job, all []string) []string {
	replaced := map[string]bool{}
	for _, pair := range job {
		name, _, _ := strings.Cut(pair, "=")
		replaced[name] = true
	}
	return slices.DeleteFunc(all, func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return replaced[name] && slices.Contains(class, pair) && !slices.Contains(job, pair)
	})
}

// account fills in the outcome of a run.
func (run *execution) account(ctx context.Context, res *result.Result) {
	o, e := run.outcome, run.effective
	o.Started = started(res)
	if run.mayHaveRun(ctx, res) {
		copied := *res
		res, copied.Status, o.Started = &copied, result.StatusExited, true
		o.Warnings = append(o.Warnings, "the output says that the command could not be started, but it is there: it is taken to have run")
	}
	o.Status, o.Signal, o.TimedOut = res.Status.String(), res.Signal, res.TimedOut
	o.Approval = run.approval
	o.DurationMS = int64(math.Round(res.DurationSeconds * 1000))
	o.Warnings = append(o.Warnings, res.Warnings...)
	run.interpret(res)

	stdout := run.stream("stdout", res.Stdout, res.StdoutBytes, res.StdoutTruncated, e.Stdout)
	stderr := run.stream("stderr", res.Stderr, res.StderrBytes, res.StderrTruncated, e.Stderr)
	var cutOut, cutErr bool
	o.Stdout, cutOut = stdout.captured(int64(e.Stdout))
	o.Stderr, cutErr = stderr.captured(int64(e.Stderr))
	o.StdoutBytes, o.StderrBytes, o.Truncated = res.StdoutBytes, res.StderrBytes, cutOut || cutErr
	for _, s := range []stream{stdout, stderr} {
		if !s.isText() {
			o.Warnings = append(o.Warnings, s.name+" is not UTF-8, or holds U+FFFD itself: what is no text is shown as that; the bytes are in the record")
		}
	}

	o.Network = res.Network
	left := run.left(res)
	judged := judgeOutputs(run.resolved, e, left)
	o.OutputFiles, o.Artifacts = judged.files, judged.artifacts
	o.Warnings = append(o.Warnings, judged.warnings...)
	if err := run.storeArtifacts(o.Artifacts); err != nil {
		o.Warnings = append(o.Warnings, "not every artifact is stored: "+err.Error())
		run.checks.unstored = err.Error()
	}
	o.Differences = append(run.compare(res, stdout, stderr), judged.differences...)
	o.Warnings = append(o.Warnings, changedInputs(run.resolved)...)
	carried := run.apply(ctx, res, judged.tooLarge)
	o.Differences = append(o.Differences, carried.missing(run.resolved, left)...)
	o.Unenforced = unenforced(run.effective, res)
	o.Success = o.Started && (res.Status == result.StatusExited || res.Status == result.StatusSignaled) && len(failures(o.Differences)) == 0
	o.Error = run.failure(res)
	if judged.tooLarge {
		// More than is to be kept (CX-05) is kept no longer than everything else.
		for i := range o.OutputFiles {
			o.OutputFiles[i].Retention = RetainSession
		}
		o.Warnings = append(o.Warnings, "the output files are more than is kept as evidence: they are of the session")
	}
	o.Evidence = Evidence{RunID: res.ID, Path: run.record, Retention: run.retention(judged.tooLarge)}
	o.Checklist = run.checks.accounted(run, res)
	o.normalize()
}

// started says whether the program ran at all.
func started(res *result.Result) bool {
	switch res.Status {
	case result.StatusStartFailed:
		return false
	case result.StatusCanceled, result.StatusEngineLost:
		return res.StartedAt != ""
	default:
		return true
	}
}

// retention is the class of the record: what holds files or artifacts is evidence
// (CX-05) unless they are more than is to be kept, and so is what somebody approved or
// refers to.
func (run *execution) retention(tooLarge bool) string {
	o := run.outcome
	if !tooLarge && len(o.OutputFiles)+len(o.Artifacts) > 0 || o.Approval != nil || o.Metadata.EvidenceRef != "" {
		return RetainEvidence
	}
	return RetainSession
}

// codeTimeLimit is what the table of exit codes has for the time limit: 128+15.
const codeTimeLimit = 143

// interpret gives the exit code and its row of the table (CX-06). The time limit is 143
// here, whatever the program made of it; the flag decides, never the number.
func (run *execution) interpret(res *result.Result) {
	o := run.outcome
	code := res.ExitCode
	if res.TimedOut {
		code = codeTimeLimit
	}
	if code < 0 {
		return // there is none: it did not start, was canceled, or was lost sight of
	}
	o.ExitCode = &code
	meaning := result.ExplainExit(code, result.ExitContext{
		Known: true, TimedOut: res.TimedOut, Canceled: res.Status == result.StatusCanceled, OOM: res.OOMKilled, Signal: res.Signal,
	})
	o.Exit = &meaning
}

// compare is what differs, beside files.
func (run *execution) compare(res *result.Result, stdout, stderr stream) []Difference {
	o, want := run.outcome, run.effective.Contract.Outputs
	differences := []Difference{}
	if !o.Started {
		return differences
	}
	add := func(d *Difference) {
		if d != nil {
			differences = append(differences, *d)
		}
	}
	add(stdout.compare(want.Stdout))
	add(stderr.compare(want.Stderr))
	expected := 0
	if want.ExitCode != nil {
		expected = *want.ExitCode
	}
	// The code of the time limit is ours, not the program's.
	if o.ExitCode != nil && *o.ExitCode != expected && !res.TimedOut {
		add(&Difference{What: "exit_code", Problem: "differs", Expected: fmt.Sprint(expected), Got: fmt.Sprint(*o.ExitCode)})
	}
	return differences
}

// failures are the differences that fail an execution. A file that the contract does not
// name is told and nothing more: tools leave caches.
func failures(differences []Difference) []Difference {
	return slices.DeleteFunc(slices.Clone(differences), func(d Difference) bool { return d.Problem == "extra" })
}

// failure is one sentence on why an execution failed; empty if it did not.
func (run *execution) failure(res *result.Result) string {
	o := run.outcome
	if o.Success {
		return ""
	}
	failed := failures(o.Differences)
	switch {
	case !o.Started && res.ExitCode == 126:
		return "Permission denied: " + strings.TrimSuffix(res.Explanation, ".")
	case !o.Started && res.ExitCode == 127:
		return "Command not found: " + strings.TrimSuffix(res.Explanation, ".")
	case res.TimedOut:
		return fmt.Sprintf("Execution timed out after %v", run.effective.Timeout)
	case res.Status != result.StatusExited && res.Status != result.StatusSignaled:
		return strings.TrimSuffix(res.Explanation, ".")
	case len(failed) == 0:
		return strings.TrimSuffix(res.Explanation, ".")
	}
	const most = 3
	var texts []string
	for _, d := range failed[:min(most, len(failed))] {
		texts = append(texts, d.String())
	}
	if more := len(failed) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// String is the difference in one line. What a program or a contract says is quoted.
func (d Difference) String() string {
	name := strings.ReplaceAll(d.What, "_", " ")
	if d.Path != "" {
		name += " " + quoted(d.Path)
	}
	switch d.Problem {
	case "differs":
		return fmt.Sprintf("%s differs: expected %s, got %s", name, d.Expected, d.Got)
	case "missing":
		return fmt.Sprintf("%s is missing: %s", name, d.Got)
	case "not_a_file":
		return fmt.Sprintf("%s is not a regular file: %s", name, d.Got)
	case "too_large":
		return fmt.Sprintf("%s is too large: %s; %s", name, d.Got, d.Expected)
	case "not_applied":
		return fmt.Sprintf("%s was written, but not carried over: %s", name, d.Got)
	}
	return fmt.Sprintf("%s is not named in the contract", name)
}

// changedInputs warns of input files that somebody changed on the host meanwhile: the
// program may have read something else than what was hashed.
func changedInputs(r Resolved) (warnings []string) {
	for _, p := range r.inputs {
		info, err := os.Stat(p.real)
		if err != nil || !os.SameFile(info, p.info) || info.Size() != p.info.Size() || !info.ModTime().Equal(p.info.ModTime()) {
			warnings = append(warnings, fmt.Sprintf("%s %s changed on the host while the program ran", p.field, quoted(p.asked)))
		}
	}
	return warnings
}

// unenforced compares what was enforced with the contract (resolution 50). The sandbox
// refuses what it cannot enforce.
func unenforced(e Effective, res *result.Result) []string {
	var open []string
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

// normalize makes lists of what is nil, so that the document has lists.
func (o *Outcome) normalize() {
	notNil(&o.Violations)
	notNil(&o.Stripped)
	notNil(&o.Differences)
	notNil(&o.OutputFiles)
	notNil(&o.Artifacts)
	notNil(&o.Folders)
	for i := range o.Folders {
		notNil(&o.Folders[i].NotWritten)
	}
	notNil(&o.Checklist)
	notNil(&o.Unenforced)
	notNil(&o.Warnings)
	if o.Executed != nil {
		notNil(&o.Executed.Environment)
		notNil(&o.Executed.InputFiles)
		notNil(&o.Executed.Mounts)
		notNil(&o.Executed.NetworkAllow)
		notNil(&o.Executed.NetworkDeny)
	}
	if o.Network != nil {
		network := *o.Network
		notNil(&network.Allow)
		notNil(&network.Deny)
		o.Network = &network
	}
	if o.Approval != nil {
		approval := *o.Approval
		notNil(&approval.Levels)
		o.Approval = &approval
	}
}

func notNil[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}

var _ Runner = (*sandbox.Runner)(nil)
