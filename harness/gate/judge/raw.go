package judge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/result"
)

// maxResult bounds the result of one gate, in bytes.
const maxResult = 64 << 20

// checkRaw compares what the evidence says of each gate with what node 2 saw of it.
// Whoever edits one of them and makes the hashes fit contradicts the other.
func (in *Input) checkRaw(ctx context.Context, root *os.Root) error {
	c := rawCheck{ctx: ctx, root: root, in: in, read: map[string]*result.Result{}}
	for _, gate := range in.Tests.Commands {
		if err := c.result("", gate.Index, ended{gate.Started, gate.Ending, gate.ExitCode, &gate.LogsComplete}); err != nil {
			return err
		}
		if b := gate.Baseline; b != nil {
			if err := c.result(evidence.BaselineSet, gate.Index, ended{b.Started, b.Ending, b.ExitCode, nil}); err != nil {
				return err
			}
		}
	}
	for _, o := range in.Observations.Commands {
		if err := c.observation(o); err != nil {
			return err
		}
	}
	return nil
}

type rawCheck struct {
	ctx  context.Context //nolint:containedctx // lives as long as the one call that it belongs to
	root *os.Root
	in   *Input
	// read are the results so far by their names; nil is one that cannot be used. However
	// often somebody names a gate, its result is read once.
	read map[string]*result.Result
}

// ended is how a gate ended.
type ended struct {
	started bool
	ending  string
	exit    *int
	// whole says that its logs are complete; nil where nobody says it.
	whole *bool
}

func (c *rawCheck) result(set string, index int, said ended) error {
	name, r, err := c.open(set, index)
	if r == nil {
		return err
	}
	differs := func(part, says, was string) {
		c.in.tampered(evidence.TestsFile, index, "%s says of gate %d that %s is %s; %s has %s.", evidence.TestsFile, index, part, says, name, was)
	}
	if started := r.Status != result.StatusStartFailed; started != said.started {
		differs("whether it started", fmt.Sprint(said.started), fmt.Sprint(started))
	}
	if r.Status.String() != said.ending {
		differs("its end", fmt.Sprintf("%q", shortened(said.ending)), fmt.Sprintf("%q", r.Status))
	}
	if was := codeOf(r); code(was) != code(said.exit) {
		differs("its exit code", code(said.exit), code(was))
	}
	if said.whole == nil {
		return nil
	}
	whole := r.OutputComplete
	for _, stream := range []struct {
		name  string
		wrote int64
	}{{"stdout.log", r.StdoutBytes}, {"stderr.log", r.StderrBytes}} {
		switch info, err := c.root.Lstat(evidence.RawFile(set, index, stream.name)); {
		case errors.Is(err, fs.ErrNotExist): // told as missing
		case err != nil:
			return err
		default:
			whole = whole && info.Size() == stream.wrote
		}
	}
	if *said.whole && !whole {
		differs("its output", "complete", "other sizes than its logs have, or says that some was lost")
	}
	return nil
}

// observation compares the numbers that are taken over as they are.
func (c *rawCheck) observation(o evidence.Observation) error {
	if o.Set != "" && o.Set != evidence.BaselineSet && !evidence.IsRepeat(o.Set) {
		return nil // told as a set that nobody asked for
	}
	name, r, err := c.open(o.Set, o.Index)
	if r == nil {
		return err
	}
	kernel, watched := o.Counted == countedByKernel, false
	less := kernel
	if seen := r.Observed; seen != nil {
		less = kernel && (seen.NetworkAttempts == nil || *seen.NetworkAttempts > o.NetworkAttempts) || !kernel && seen.NetworkAttempts != nil
		watched = seen.WatchWhy == "" && len(seen.Watched) > 0
	}
	level, refused := "none", int64(0)
	if r.Network != nil {
		level, refused = r.Network.Level, r.Network.Refused
	}
	if less || o.Watched && !watched || level != o.Network || refused > o.Refused {
		c.in.tampered(evidence.ObservationsFile, o.Index, "%s says something else of what %s tried than %s.", evidence.ObservationsFile, place{o.Set, o.Index}, name)
	}
	return nil
}

// open reads a raw result; nil without one that can be used, which is told.
func (c *rawCheck) open(set string, index int) (string, *result.Result, error) {
	name := evidence.RawFile(set, index, "result.json")
	if r, again := c.read[name]; again {
		return name, r, nil
	}
	if err := context.Cause(c.ctx); err != nil {
		return name, nil, err
	}
	r := new(result.Result)
	if err := evidence.Read(c.root, name, maxResult, r); err != nil {
		c.read[name] = nil
		return name, nil, c.in.took(name, err)
	}
	c.read[name] = r
	return name, r, nil
}

// codeOf is the exit code of a result; nil if it has none.
func codeOf(r *result.Result) *int {
	if r.ExitCode < 0 {
		return nil
	}
	return &r.ExitCode
}

func code(c *int) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprint(*c)
}
