package invoke

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"
)

// ran is what an engine saw of a call.
type ran struct {
	result RunResult
	// ended says how the tool ended: ReasonNonzeroExit stands for any end of its own.
	ended Reason
	// detail says more of an end that is not the tool's own, and err is its cause. Beside
	// an end of the tool's own err is what failed after it.
	detail string
	err    error
	// lost is why nothing more could be carried over to the output directory.
	lost error
	left leftOut
	// created are the names that were carried over as new, with the SHA-256 of files; nil
	// where nothing is carried.
	created map[string]string
}

// Run calls the tool once and returns what it did. The output directory is locked for
// as long as that takes: a second call with the same one is refused. A call that did not
// end well, or left no manifest.json or no trace_pack.jsonl, is an [*InvocationError] or
// a [*TimeoutError], which hold all that was seen; input that is refused, before anything
// is started, is another error (MI-02). What the artifacts say is for [RunResult.Verify]
// to judge.
func (r *Runner) Run(ctx context.Context, inv Invocation) (res RunResult, err error) {
	c, p, err := r.prepare(inv)
	if err != nil {
		return RunResult{}, err
	}
	root, err := openOutput(c.OutputDir)
	if err != nil {
		return RunResult{}, err
	}
	defer root.Close()
	lock, err := fsx.Lock(root)
	if err != nil {
		return RunResult{}, outputError(c.OutputDir, lockRule(err))
	}
	defer lock.Close()
	before, err := r.lookAt(root, c.OutputDir)
	if err != nil {
		return RunResult{}, err
	}
	_, noConfig := os.Stat(c.Config)
	out, err := r.engine.run(ctx, c, p)
	if err != nil {
		return RunResult{}, err
	}
	res = out.result
	res.Schema, res.Engine, res.Command, res.WorkDir, res.Unenforced = RunResultSchemaV1, p.Engine, p.Command, p.WorkDir, p.Unenforced
	res.origin = &origin{c.OutputDir, before, out.created}
	res.NotWritten, res.Unenforced, res.Warnings = append([]string{}, out.left.list...), append([]string{}, res.Unenforced...), append([]string{}, res.Warnings...)
	if errors.Is(noConfig, fs.ErrNotExist) {
		res.Warnings = append(res.Warnings, "the configuration does not exist")
	}
	// The tool may have put another directory in its place.
	after, err := openOutput(c.OutputDir)
	if err == nil {
		defer after.Close()
		res.ManifestPath, res.TracePackPath = res.origin.path(after, ManifestName), res.origin.path(after, TracePackName)
	}
	return res, r.judge(c, after, out, res)
}

func lockRule(err error) string {
	if errors.Is(err, fsx.ErrLocked) {
		return "is in use by another call: give each call a directory of its own"
	}
	return "cannot be locked: " + fsx.Cause(err).Error()
}

// lookAt refuses an output directory that cannot be used, and remembers what it holds.
func (r *Runner) lookAt(root *os.Root, dir string) (stamps, error) {
	if err := checkOutput(root, dir, r.profile.names()); err != nil {
		return stamps{}, err
	}
	return stampsOf(root, dir)
}
