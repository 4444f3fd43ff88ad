package invoke

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Run calls the tool once and verifies its artifacts. The result holds every way in which
// the call can end; see [Result.Err]. The error is not nil only if nobody knows how it
// would have ended: we failed, or ctx ended. The result then has everything that is known.
//
// The output directory is locked until Run returns: a second call with the same one is
// refused.
func (h *Harness) Run(ctx context.Context, inv Invocation) (Result, error) {
	res := newResult()
	c, err := h.prepare(inv)
	if err != nil {
		return res.failed(ReasonRefused, err)
	}
	root, err := h.openOutput(c.OutputDir)
	if err != nil {
		return res.failed(ReasonRefused, err)
	}
	defer root.Close()
	lock, err := fsx.Lock(root)
	if err != nil {
		rule := "cannot be locked: " + fsx.Cause(err).Error()
		if errors.Is(err, fsx.ErrLocked) {
			rule = "is in use by another call: give each call a directory of its own"
		}
		return res.failed(ReasonRefused, fieldError("output", c.OutputDir, rule))
	}
	defer lock.Close()
	res.Command, res.WorkDir = c.request.Command, c.request.WorkDir
	ran, err := h.box.Run(ctx, c.request, h.o.IO, h.o.Hooks, sandbox.Work{Key: "invoke " + c.OutputDir})
	if ran == nil {
		return res.failed(reasonOf(ctx, err), err)
	}
	res.see(*ran)
	if c.noConfig {
		res.Warnings = append(res.Warnings, "the configuration does not exist")
	}
	stay := res.Reason.unstarted() || res.Reason.ours()
	if stay {
		res.cause, err = errors.Join(res.cause, err), nil // the explanation says it
	}
	files := h.carryOver(ctx, *ran, stay)
	res.NotWritten = append(res.NotWritten, files.notWritten...)
	if files.why(root, ManifestName) == "" {
		res.ManifestPath = filepath.Join(c.OutputDir, ManifestName)
	}
	if files.why(root, TracePackName) == "" {
		res.TracePackPath = filepath.Join(c.OutputDir, TracePackName)
	}
	h.judge(&res, c, root, ran.Explanation, files, err)
	switch {
	case res.Reason.ours():
		return res, res.Err()
	case res.Reason != "" && res.Reason != ReasonMissingArtifact:
		return res, nil
	}
	report, err := verify(ctx, c.OutputDir, h.o.Verify, files.created, []string{OutputDir})
	if err != nil {
		return res.failed(ReasonUnverified, fmt.Errorf("exited 0, but its artifacts were not verified: %w", err))
	}
	res.Verification, res.OK = &report, report.OK && res.Reason == ""
	return res, nil
}

// newResult is the result of a call that did not begin.
func newResult() Result {
	return Result{
		Schema: ResultSchemaV1, Engine: engineName,
		Command: []string{}, GPUs: []string{}, NotWritten: []string{}, Unenforced: []string{}, Warnings: []string{},
	}
}

// failed ends a call for a reason with an error, which is returned unless it is a refusal.
func (r Result) failed(reason Reason, err error) (Result, error) {
	r.Reason, r.Error, r.cause = reason, err.Error(), err
	if reason == ReasonRefused {
		return r, nil
	}
	return r, err
}

// reasonOf is the reason of a run that has no result.
func reasonOf(ctx context.Context, err error) Reason {
	var field *policy.FieldError
	var path *sandbox.PathError
	switch {
	case ctx.Err() != nil:
		return ReasonCanceled
	case errors.As(err, &field), errors.As(err, &path) && path.Field != "state directory":
		return ReasonRefused
	}
	return ReasonEngine
}

// see takes over the result of the sandbox. It sets a reason for every end that is not the
// tool's own.
func (r *Result) see(ran result.Result) {
	r.RunID, r.Image, r.CPUSeconds, r.GPUs = ran.ID, ran.Image.ID, ran.Resources.CPUSeconds, append(r.GPUs, ran.Enforced.GPUs...)
	r.Stdout, r.StdoutBytes, r.StdoutTruncated = ran.Stdout, ran.StdoutBytes, ran.StdoutTruncated
	r.Stderr, r.StderrBytes, r.StderrTruncated = ran.Stderr, ran.StderrBytes, ran.StderrTruncated
	r.OutputComplete, r.Signal, r.TimedOut, r.DurationSeconds = ran.OutputComplete, ran.Signal, ran.TimedOut, ran.DurationSeconds
	for _, warning := range ran.Warnings {
		// The ID would make two runs of the same differ, and the result has it.
		r.Warnings = append(r.Warnings, strings.ReplaceAll(warning, ran.ID, "RUN"))
	}
	switch ran.Status {
	case result.StatusExited, result.StatusSignaled:
		r.ExitCode = &ran.ExitCode
	case result.StatusOutOfMemory, result.StatusDiskLimit, result.StatusOutputLimit, result.StatusStoppedByRule:
		r.Reason, r.ExitCode = ReasonLimit, &ran.ExitCode
	case result.StatusTimedOut:
		if r.Reason = ReasonTimeout; ran.Deadline == result.DeadlineSoft {
			r.TimeoutSeconds = ran.Enforced.SoftTimeoutSeconds
		}
	case result.StatusCanceled:
		r.Reason = ReasonCanceled
	case result.StatusStartFailed:
		switch ran.ExitCode {
		case 126:
			r.Reason = ReasonCannotExecute
		case 127:
			r.Reason = ReasonNotFound
		default:
			r.Reason = ReasonEngine // the program is not to blame
		}
	default:
		r.Reason = ReasonEngine
	}
	if !ran.Conclusive() && !r.Reason.ours() && !r.Reason.unstarted() {
		r.Reason = ReasonDisturbed
	}
}

// maxNotWritten bounds the names in [Result.NotWritten].
const maxNotWritten = 100

// carried says which files of the tool the output directory got.
type carried struct {
	// created has the new files and directories that were written to the output
	// directory, with the SHA-256 of files. Only they are of this run: a name that existed
	// before is not, whatever the tool did to it, since the same bytes written again look
	// like nothing written.
	created map[string]string
	// notWritten is the list for [Result.NotWritten], and reasons its reasons by name.
	notWritten []string
	reasons    map[string]string
	// conflict is the first file that others had changed in the output directory. cut is
	// the first one that a limit left out, or that could not be read. With either, the
	// output is incomplete. Pipes, links and files that Git executes are never written,
	// and are neither.
	conflict, cut string
	// err means that nothing could be written.
	err error
}

// special are the kinds that are never written to the output directory.
var special = []string{"symlink", "fifo", "socket", "device"}

// carryOver writes the files of the tool to the output directory, also if the tool failed:
// they often explain the failure. After an end that was not seen the list of changes may
// be incomplete, so all files stay in the record.
func (h *Harness) carryOver(ctx context.Context, ran result.Result, stay bool) carried {
	c := carried{created: map[string]string{}, reasons: map[string]string{}}
	var copied result.Tree
	if i := slices.IndexFunc(ran.Trees, func(t result.Tree) bool { return t.Target == OutputDir }); i >= 0 {
		copied = ran.Trees[i]
	}
	if stay {
		if n := len(copied.Created) + len(copied.Changed) + len(copied.Deleted); n > 0 {
			c.notWritten = []string{fmt.Sprintf("%d changes: %s; they are in the record", n, ran.Explanation)}
		}
		return c
	}
	report, err := h.box.ApplyTree(context.WithoutCancel(ctx), ran.ID, OutputDir, tree.ApplyOptions{})
	for _, change := range report.Changes {
		if change.State == tree.Applied {
			continue
		}
		shown := c.leave(change.Path, change.Change+", but "+change.Reason)
		if change.State == tree.Conflict {
			c.conflict = cmp.Or(c.conflict, shown)
		}
	}
	for _, entry := range copied.Created {
		raw, err := base64.StdEncoding.DecodeString(entry.PathBase64)
		if c.reasons[entry.Path] == "" && err == nil {
			c.created[cmp.Or(string(raw), entry.Path)] = entry.SHA256
		}
	}
	for _, skipped := range copied.Skipped {
		switch {
		case c.reasons[skipped.Path] != "":
		case slices.Contains(special, skipped.Kind):
			c.leave(skipped.Path, "is a "+skipped.Kind+": "+skipped.Reason)
		default:
			c.cut = cmp.Or(c.cut, c.leave(skipped.Path, skipped.Reason))
		}
	}
	if more := len(c.reasons) - maxNotWritten; more > 0 {
		c.notWritten = append(c.notWritten, fmt.Sprintf("and %d more", more))
	}
	if !report.Complete || !copied.Complete {
		c.cut = cmp.Or(c.cut, "the list of changes is not whole")
	}
	switch {
	case err != nil:
		c.err, c.created = err, map[string]string{}
		c.notWritten = append(c.notWritten, fmt.Sprintf("all other changes: %v", err))
	case c.cut != "":
		c.notWritten = append(c.notWritten, "and maybe more: what is beyond a limit is not looked at")
	}
	return c
}

// leave notes a name that is not written.
func (c *carried) leave(name, reason string) (shown string) {
	shown = name + ": " + reason
	c.reasons[name] = reason
	if len(c.reasons) <= maxNotWritten {
		c.notWritten = append(c.notWritten, shown)
	}
	return shown
}

// why says why a name is not a regular file of this run; empty if it is.
func (c carried) why(root *os.Root, name string) string {
	info, err := fsx.LstatBelow(root, filepath.FromSlash(name))
	_, created := c.created[name]
	switch {
	case c.reasons[name] != "":
		return c.reasons[name]
	case err != nil:
		return missing
	case !info.Mode().IsRegular():
		return "is " + fsx.Kind(info.Mode())
	case !created:
		return notOfThisRun
	}
	return ""
}

const missing, notOfThisRun = "does not exist", "was not written by this run"

// judge says why a call did not end well, for the first thing that is wrong. failed is a
// failure of the sandbox after the tool ended.
func (h *Harness) judge(res *Result, c call, root *os.Root, explanation string, files carried, failed error) {
	lost := "what the tool left could not be written to " + c.OutputDir
	set := func(reason Reason, format string, args ...any) {
		res.Reason, res.Error = reason, fmt.Sprintf(format, args...)
	}
	switch {
	case res.Reason == ReasonTimeout:
		res.TimeoutSeconds = cmp.Or(res.TimeoutSeconds, h.o.Timeout.Seconds())
		set(res.Reason, "the tool timed out after %s seconds", strconv.FormatFloat(res.TimeoutSeconds, 'f', -1, 64))
	case res.Reason.unstarted():
		res.Stderr = cmp.Or(res.Stderr, explanation)
		set(res.Reason, "the tool could not be executed: %s", explanation)
	case res.Reason != "":
		set(res.Reason, "the tool did not end by itself: %s", explanation)
	case res.Signal != 0:
		set(ReasonNonzeroExit, "the tool was ended by signal %d", res.Signal)
	case *res.ExitCode != 0:
		set(ReasonNonzeroExit, "the tool exited with code %d", *res.ExitCode)
	case files.err != nil:
		set(ReasonNotWritten, "the tool exited with code 0")
	case failed != nil:
		set(ReasonEngine, "the tool exited with code 0")
	case files.conflict != "":
		set(ReasonNotWritten, "%s: %s", lost, files.conflict)
	case files.cut != "":
		set(ReasonLimit, "the tool left what the sandbox does not carry over: %s", files.cut)
	default:
		for _, name := range h.o.Verify.Profile.required() {
			if why := files.why(root, name); why != "" {
				res.MissingArtifact = filepath.Join(c.OutputDir, filepath.FromSlash(name))
				set(ReasonMissingArtifact, "required artifact missing: %s%s", res.MissingArtifact, strings.TrimSuffix(" ("+why+")", " ("+missing+")"))
				return
			}
		}
	}
	if failed != nil {
		res.Error += fmt.Sprintf("; the sandbox failed: %v", failed)
	}
	if files.err != nil {
		res.Error += fmt.Sprintf("; %s: %v", lost, files.err)
	}
	res.cause = errors.Join(res.cause, failed, files.err)
}
