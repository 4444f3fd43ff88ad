package invoke

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// judge says what is wrong with a call, the first thing first; nil for nothing. root is
// the output directory after the run, nil if it is gone.
func (r *Runner) judge(c call, root *os.Root, out ran, res RunResult) error {
	lost := "what the tool left could not be written to " + c.OutputDir
	switch out.ended {
	case ReasonTimeout:
		late := timedOut(res, c.timeout)
		_ = late.also("the sandbox failed", out.err).also(lost, out.lost) // the same error
		return late
	case ReasonCannotExecute:
		e := cannotExecute(res, out.detail, out.err)
		return e.also(lost, out.lost)
	case ReasonNonzeroExit:
	case ReasonLimit:
		e := failure(res, out.ended, nil, "the tool did not end by itself: %s", out.detail)
		return e.also("the sandbox failed", out.err).also(lost, out.lost)
	default:
		return failure(res, out.ended, out.err, "the tool did not end by itself: %s", out.detail).also(lost, out.lost)
	}
	if res.ExitCode == nil || *res.ExitCode != 0 {
		return failure(res, ReasonNonzeroExit, nil, "%s", endText(res)).also("the sandbox failed", out.err).also(lost, out.lost)
	}
	switch {
	case out.lost != nil:
		return failure(res, ReasonNotWritten, nil, "the tool exited with code 0").also(lost, out.lost).also("the sandbox failed", out.err)
	case out.err != nil:
		return failure(res, ReasonEngine, nil, "the tool exited with code 0").also("the sandbox failed", out.err)
	case out.left.conflict != "":
		return failure(res, ReasonNotWritten, nil, "%s: %s", lost, out.left.conflict)
	case out.left.cut != "":
		return failure(res, ReasonLimit, nil, "the tool left what the sandbox does not carry over: %s", out.left.cut)
	}
	for _, name := range append([]string{ManifestName, TracePackName}, r.profile.required()...) {
		if res.origin.path(root, name) != "" {
			continue
		}
		path := filepath.Join(c.OutputDir, filepath.FromSlash(name))
		e := failure(res, ReasonMissingArtifact, nil, "required artifact missing: %s%s", path, whyMissing(root, name, res.origin, out.left.odd[name]))
		e.Artifact = path
		return e
	}
	return nil
}

// endText says how a tool ended that did not exit with 0. The engine does not tell a
// program that a signal ended from one that exited with the code for it.
func endText(res RunResult) string {
	switch {
	case res.Signal == 0:
		return fmt.Sprintf("the tool exited with code %d", *res.ExitCode)
	case res.Engine == EngineSandbox:
		return fmt.Sprintf("the tool was ended by signal %d, or exited with code %d itself", res.Signal, *res.ExitCode)
	}
	return fmt.Sprintf("the tool was ended by signal %d", res.Signal)
}

// whyMissing says what is there in place of an artifact.
func whyMissing(root *os.Root, name string, from *origin, odd string) string {
	if root == nil {
		return " (the output directory is gone)"
	}
	if info, err := fsx.LstatBelow(root, filepath.FromSlash(name)); err == nil {
		if !info.Mode().IsRegular() {
			return " (is " + fsx.Kind(info.Mode()) + ")"
		}
		return " (" + from.foreign(name, info) + ")"
	}
	if odd != "" {
		return " (" + odd + ")"
	}
	return ""
}
