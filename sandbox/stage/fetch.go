package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// fetchRetries is how often an interrupted transfer continues.
const fetchRetries = 3

// podGone is the reason for outputs that were deleted with the pod of their run.
const podGone = "pod_gone: the cluster deleted the pod, and what it held with it"

// outputs copies ./final back from the engine and lists it. The archive is untrusted.
func (c *copies) outputs(ctx context.Context, limited bool) ([]result.Output, collect.SkipList) {
	c.endWatch()
	limits := outputLimits(c.Plan.Job)
	if c.final.state != arriving { // the controller that died had fetched them
		return c.listAndPublish(ctx, c.handBack(), nil)
	}
	unpacker := archive.NewUnpacker(c.final.root, archive.FinalDir, limits, c.room)
	unpacker.Resume = c.resumed
	list := c.listFinal(ctx, limited)
	fetchErr := c.fetchAll(ctx, archive.FinalDir, unpacker, list)
	if fetchErr != nil {
		if list != nil {
			for _, full := range unpacker.Left(list) {
				unpacker.Missing(list, full, "was not copied: the transfer broke off")
			}
		}
		c.Warn("outputs are incomplete: %v", fsx.Cause(fetchErr))
	}
	outputs, skipped := c.listAndPublish(ctx, c.handBack(), fetchErr)
	for i, out := range outputs {
		if mode, ok := unpacker.Mode(out.Path); ok {
			outputs[i].Mode = fmt.Sprintf("%04o", mode)
		}
	}
	skipped.Merge(unpacker.Skipped)
	if list != nil {
		skipped.AtLeast(list.Files - len(outputs))
	}
	if errors.Is(fetchErr, engine.ErrFilesGone) {
		skipped.Add(".", "directory", 0, podGone)
	}
	return outputs, skipped
}

// room is the number of bytes that may still be written to the disk of the local ./final.
func (c *copies) room() int64 {
	free, known := fsx.FreeBytes(c.final.out)
	if !known {
		return math.MaxInt64
	}
	return free - minFree/2
}

// listFinal asks the monitor for the entries of ./final. Without an answer the archive has
// to do, which does not contain everything.
func (c *copies) listFinal(ctx context.Context, limited bool) *archive.Inventory {
	space, list, err := c.takeStock(ctx)
	if err != nil && c.engineBack(ctx) {
		// The monitor did not outlive the engine.
		if _, err = c.monitor.reconnect(ctx); err == nil {
			space, list, err = c.takeStock(ctx)
		}
	}
	if err != nil {
		c.Warn("the list of what was left out of the outputs is not complete: %v", fsx.Cause(err))
		return nil
	}
	if list.Truncated {
		c.Warn("final held more than could be listed: the list of what was left out is not complete")
	}
	if space.TooDeep {
		c.Warn("final holds directories so deep that neither their size nor all that was left out is known")
	}
	if !limited && c.tooMuch(space) {
		c.overLimit()
	}
	return list
}

func (c *copies) takeStock(ctx context.Context) (space archive.Space, list *archive.Inventory, err error) {
	if space, err = c.monitor.measure(ctx); err != nil {
		return space, nil, err
	}
	list, err = c.monitor.list(ctx, archive.FinalDir, c.Plan.Job.OutputFiles+1, c.Plan.Job.OutputDepth)
	return space, list, err
}

// fetchAll fetches a directory, and then piece by piece the entries that did not come with
// it: after a file that is not worth reading, and after a connection that broke.
func (c *copies) fetchAll(ctx context.Context, dir string, unpacker *archive.Unpacker, list *archive.Inventory) error {
	work, retries := []string{"."}, fetchRetries
	for len(work) > 0 {
		at := work[0]
		work = work[1:]
		err := c.fetchOne(ctx, dir, unpacker, at)
		switch {
		case errors.Is(err, archive.ErrTooMany):
			return nil // reported in the list of skipped outputs
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case list == nil && errors.Is(err, archive.ErrCut):
			return errors.New("what comes after a file that was left out could not be listed")
		case list == nil:
			return err
		case err == nil, errors.Is(err, archive.ErrCut):
			unpacker.Missing(list, at, "was not in what the engine sent")
		case errors.Is(err, engine.ErrUnavailable):
			if retries--; retries < 0 || !c.engineBack(ctx) {
				return err
			}
		case at == ".":
			return err
		default:
			unpacker.Missing(list, at, "could not be copied: "+fsx.Cause(err).Error())
		}
		if len(work) == 0 {
			work = unpacker.Left(list)
		}
	}
	return nil
}

// fetchOne fetches one path below a directory of the staging volume.
func (c *copies) fetchOne(ctx context.Context, dir string, unpacker *archive.Unpacker, at string) error {
	from, err := copier(c.Engine)
	if err != nil {
		return err
	}
	var sent io.ReadCloser
	err = c.withHelper(ctx, from, func() (err error) {
		sent, err = from.FetchVolume(ctx, c.Plan.Job.RunID, path.Join(dir, at))
		return err
	})
	if err != nil {
		return err
	}
	defer sent.Close()
	return unpacker.Unpack(ctx, sent, at)
}

// engineBack waits for an engine that went away.
func (c *copies) engineBack(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, engine.ReconnectBudget)
	defer cancel()
	for {
		if _, err := c.Engine.Info(ctx); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(reconnectPause):
		}
	}
}

// errIncomplete means that a tree may hold more than was fetched.
var errIncomplete = errors.New("not everything that the tree holds could be listed")

// tree fetches a working copy from the engine. The archive is untrusted.
func (c *copies) tree(ctx context.Context, i int, t *workingCopy) (treeState, error) {
	limits := outputLimits(c.Plan.Job)
	wide := limits
	wide.Files, wide.Depth = limits.Files+len(t.base), max(limits.Depth, t.base.Depth()+1)
	refused := tree.Now{Entries: map[string]tree.Entry{}, Left: map[string]result.SkippedOutput{}}
	unpacker := archive.NewUnpacker(t.root, treeDir(i), wide, c.room)
	unpacker.Resume = c.resumed
	unpacker.Known = func(name string, size int64) bool {
		was := t.base[name]
		return was.Kind == tree.KindFile && was.Size == size
	}
	unpacker.Refused = func(name, kind string, size int64, reason, target string) {
		if kind == tree.KindSymlink && target != "" {
			refused.Entries[name] = tree.Entry{Path: name, Kind: kind, Mode: 0o777, Target: target}
			return
		}
		refused.Left[name] = result.SkippedOutput{Kind: kind, SizeBytes: size, Reason: reason}
	}
	list, listErr := c.monitor.list(ctx, treeDir(i), wide.Files+1, wide.Depth)
	if listErr != nil {
		list = nil
	}
	fetchErr := c.fetchAll(ctx, treeDir(i), unpacker, list)
	now, err := tree.List(ctx, t.root, t.base, limits)
	for name, e := range now.Entries {
		text, _ := collect.EncodePath(name)
		if mode, ok := unpacker.Mode(text); ok {
			e.Mode = os.FileMode(mode).Perm()
			now.Entries[name] = e
		}
	}
	maps.Copy(now.Entries, refused.Entries)
	maps.Copy(now.Left, refused.Left)
	if whole := listErr == nil && !list.Truncated && !unpacker.Full(); !whole && fetchErr == nil {
		fetchErr = errIncomplete
	}
	return now, errors.Join(fetchErr, err)
}
