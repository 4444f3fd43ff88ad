package invoke

import (
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
	return h.run(ctx, inv, h.o.Hooks)
}

func (h *Harness) run(ctx context.Context, inv Invocation, hooks sandbox.Hooks) (Result, error) {
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
	ran, err := h.box.Run(ctx, c.request, sandbox.IO{Stdout: h.o.IO.Stdout, Stderr: h.o.IO.Stderr}, hooks)
	if ran == nil {
		return res.failed(reasonOf(ctx, err), err)
	}
	e := res.see(*ran)
	if e.reason == ReasonCannotExecute || e.reason.ours() {
		e.cause = errors.Join(e.cause, err) // and detail says it
	} else {
		e.sandbox = err
	}
	if c.noConfig {
		res.Warnings = append(res.Warnings, "the configuration does not exist")
	}
	files := h.carryOver(ctx, *ran, e)
	res.NotWritten = append(res.NotWritten, files.notWritten...)
	if files.why(root, ManifestName) == "" {
		res.ManifestPath = filepath.Join(c.OutputDir, ManifestName)
	}
	if files.why(root, TracePackName) == "" {
		res.TracePackPath = filepath.Join(c.OutputDir, TracePackName)
	}
	h.judge(&res, c, root, e, files)
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
		Command: []string{}, NotWritten: []string{}, Unenforced: []string{}, Warnings: []string{},
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
	case errors.As(err, &field), errors.As(err, &path) && path.Field != "state folder":
		return ReasonRefused
	}
	return ReasonEngine
}

// end is how a tool ended, as the sandbox saw it.
type end struct {
	// reason is empty if the tool ended by itself.
	reason Reason
	// detail describes any other end.
	detail string
	// cause is the cause of reason. sandbox is a failure of the sandbox after the tool ended.
	cause, sandbox error
}

// see takes over the result of the sandbox.
func (r *Result) see(ran result.Result) end {
	r.RunID, r.Image, r.cpuSeconds, r.gpus = ran.ID, ran.Image.ID, ran.Resources.CPUSeconds, len(ran.Enforced.GPUs)
	r.Stdout, r.StdoutBytes, r.StdoutTruncated = ran.Stdout, ran.StdoutBytes, ran.StdoutTruncated
	r.Stderr, r.StderrBytes, r.StderrTruncated = ran.Stderr, ran.StderrBytes, ran.StderrTruncated
	r.OutputComplete, r.Signal, r.TimedOut, r.DurationSeconds = ran.OutputComplete, ran.Signal, ran.TimedOut, ran.DurationSeconds
	for _, warning := range ran.Warnings {
		// The ID would make two runs of the same differ, and the result has it.
		r.Warnings = append(r.Warnings, strings.ReplaceAll(warning, ran.ID, "RUN"))
	}
	e := end{detail: ran.Explanation}
	code := &ran.ExitCode
	switch ran.Status {
	case result.StatusExited, result.StatusSignaled:
	case result.StatusTimedOut:
		e.reason, code = ReasonTimeout, nil
	case result.StatusOutOfMemory, result.StatusDiskLimit, result.StatusOutputLimit:
		e.reason = ReasonLimit
	case result.StatusCanceled:
		e.reason, code = ReasonCanceled, nil
	case result.StatusStartFailed:
		code = nil
		switch e.reason = ReasonCannotExecute; ran.ExitCode {
		case 126:
			e.cause = ErrNotExecutable
		case 127:
		default:
			e.reason = ReasonEngine // the program is not to blame
		}
	default:
		e.reason, code = ReasonEngine, nil
	}
	r.ExitCode = code
	return e
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
func (h *Harness) carryOver(ctx context.Context, ran result.Result, e end) carried {
	c := carried{created: map[string]string{}, reasons: map[string]string{}}
	var copied result.Tree
	if i := slices.IndexFunc(ran.Trees, func(t result.Tree) bool { return t.Target == OutputDir }); i >= 0 {
		copied = ran.Trees[i]
	}
	if e.reason == ReasonCannotExecute || e.reason.ours() {
		if n := len(copied.Created) + len(copied.Changed) + len(copied.Deleted); n > 0 {
			c.notWritten = []string{fmt.Sprintf("%d changes: %s; they are in the record", n, e.detail)}
		}
		return c
	}
	report, err := h.box.ApplyTree(context.WithoutCancel(ctx), ran.ID, OutputDir, tree.ApplyOptions{})
	for _, change := range report.Changes {
		if change.State == tree.Applied {
			continue
		}
		shown := c.leave(change.Path, change.Change+", but "+change.Reason)
		if change.State == tree.Conflict && c.conflict == "" {
			c.conflict = shown
		}
	}
	for _, entry := range copied.Created {
		if raw, err := base64.StdEncoding.DecodeString(entry.PathBase64); c.reasons[entry.Path] == "" && err == nil {
			name := entry.Path
			if len(raw) > 0 {
				name = string(raw)
			}
			c.created[name] = entry.SHA256
		}
	}
	for _, skipped := range copied.Skipped {
		switch {
		case c.reasons[skipped.Path] != "":
		case slices.Contains(special, skipped.Kind):
			c.leave(skipped.Path, "is a "+skipped.Kind+": "+skipped.Reason)
		default:
			if shown := c.leave(skipped.Path, skipped.Reason); c.cut == "" {
				c.cut = shown
			}
		}
	}
	if more := len(c.reasons) - maxNotWritten; more > 0 {
		c.notWritten = append(c.notWritten, fmt.Sprintf("and %d more", more))
	}
	if c.cut == "" && !(report.Complete && copied.Complete) {
		c.cut = "the list of changes is not whole"
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
		return "does not exist"
	case !info.Mode().IsRegular():
		return "is " + fsx.Kind(info.Mode())
	case !created:
		return notOfThisRun
	}
	return ""
}

const notOfThisRun = "was not written by this run"

// judge sets the reason of a call that did not end well, for the first thing that is wrong.
func (h *Harness) judge(res *Result, c call, root *os.Root, e end, files carried) {
	lost := "what the tool left could not be written to " + c.OutputDir
	set := func(reason Reason, cause error, format string, args ...any) {
		res.Reason, res.Error, res.cause = reason, fmt.Sprintf(format, args...), cause
		for _, more := range []struct {
			what string
			err  error
		}{{"the sandbox failed", e.sandbox}, {lost, files.err}} {
			if more.err != nil {
				res.Error += fmt.Sprintf("; %s: %v", more.what, more.err)
				res.cause = errors.Join(res.cause, more.err)
			}
		}
	}
	switch {
	case e.reason == ReasonTimeout:
		res.limit = h.o.Timeout
		set(e.reason, nil, "the tool timed out after %s seconds", strconv.FormatFloat(h.o.Timeout.Seconds(), 'f', -1, 64))
	case e.reason == ReasonCannotExecute:
		if res.Stderr == "" {
			res.Stderr = e.detail
		}
		set(e.reason, e.cause, "the tool could not be executed: %s", e.detail)
	case e.reason != "":
		set(e.reason, e.cause, "the tool did not end by itself: %s", e.detail)
	case res.Signal != 0:
		set(ReasonNonzeroExit, nil, "the tool was ended by signal %d", res.Signal)
	case *res.ExitCode != 0:
		set(ReasonNonzeroExit, nil, "the tool exited with code %d", *res.ExitCode)
	case files.err != nil:
		set(ReasonNotWritten, nil, "the tool exited with code 0")
	case e.sandbox != nil:
		set(ReasonEngine, nil, "the tool exited with code 0")
	case files.conflict != "":
		set(ReasonNotWritten, nil, "%s: %s", lost, files.conflict)
	case files.cut != "":
		set(ReasonLimit, nil, "the tool left what the sandbox does not carry over: %s", files.cut)
	default:
		for _, name := range h.o.Verify.Profile.required() {
			why := files.why(root, name)
			if why == "" {
				continue
			}
			if why = " (" + why + ")"; why == " (does not exist)" {
				why = ""
			}
			res.artifact = filepath.Join(c.OutputDir, filepath.FromSlash(name))
			set(ReasonMissingArtifact, nil, "required artifact missing: %s%s", res.artifact, why)
			return
		}
	}
}
