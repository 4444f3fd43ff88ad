package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/stage/archive"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// fetchRetries is how often a transfer that broke off goes on.
const fetchRetries = 3

// fetch copies ./final back from the engine and lists it, once nothing of the
// program can change it any more. What comes is an archive that a stranger wrote.
func (a *attempt) fetch(ctx context.Context) ([]result.Output, []result.SkippedOutput) {
	a.stopLooking()
	switch {
	case a.facts.StartError != nil:
		return nil, nil
	case a.facts.Lost != nil:
		a.warnings = append(a.warnings, mayStillRun)
		return nil, nil
	}
	ctx, cancel := a.collecting(ctx)
	defer cancel()
	limits := outputLimits(a.spec.Job)
	unpacker := archive.NewUnpacker(a.work.final, archive.FinalDir, limits, a.room)
	list := a.listDepot(ctx)
	fetchErr := a.fetchAll(ctx, archive.FinalDir, unpacker, list)
	if fetchErr != nil {
		if list != nil {
			for _, full := range unpacker.Left(list) {
				unpacker.Missing(list, full, "was not copied: the transfer broke off")
			}
		}
		a.warnings = append(a.warnings, "outputs are incomplete: "+fsx.Cause(fetchErr).Error())
	}
	outputs, skipped, err := collect.Outputs(ctx, a.work.final, limits)
	if err != nil && fetchErr == nil {
		a.warnings = append(a.warnings, "outputs are incomplete: "+fsx.Cause(err).Error())
	}
	for i, out := range outputs {
		if mode, ok := unpacker.Mode(out.Path); ok {
			outputs[i].Mode = fmt.Sprintf("%04o", mode)
		}
	}
	skipped = append(skipped, unpacker.Skipped.Sorted()...)
	slices.SortStableFunc(skipped, func(a, b result.SkippedOutput) int { return strings.Compare(a.Path, b.Path) })
	return outputs, skipped
}

// room is what may still be written to the disk of the local ./final.
func (a *attempt) room() int64 {
	free, known := freeBytes(a.work.paths[RoleFinal])
	if !known {
		return math.MaxInt64
	}
	return free - minFree/2
}

// listDepot asks the watcher what ./final holds. Without an answer the archive has
// to do, which does not tell of everything.
func (a *attempt) listDepot(ctx context.Context) *archive.Inventory {
	space, list, err := a.takeStock(ctx)
	if err != nil && a.engineBack(ctx) {
		// The watcher did not outlive the engine.
		if _, err = a.watchAnew(ctx); err == nil {
			space, list, err = a.takeStock(ctx)
		}
	}
	if err != nil {
		a.warnings = append(a.warnings, "not all of what was left out of the outputs can be told: "+fsx.Cause(err).Error())
		return nil
	}
	if list.Truncated {
		a.warnings = append(a.warnings, "final held more than could be listed: not all that was left out is told")
	}
	if space.TooDeep {
		a.warnings = append(a.warnings, "final holds folders so deep that their size could not be told, nor all that was left out")
	}
	if a.facts.Stop != outcome.StopDiskLimit && a.tooMuch(space) {
		a.warnings = append(a.warnings, fmt.Sprintf("%s more than its disk limit of %v: the program ended before that was noticed",
			a.heldBy(), policy.Size(a.spec.Job.DiskBytes)))
	}
	return list
}

func (a *attempt) takeStock(ctx context.Context) (space archive.Space, list *archive.Inventory, err error) {
	if a.depot.watcher == nil {
		return space, nil, errWatcherEnded
	}
	if space, err = a.depot.watcher.look(ctx); err != nil {
		return space, nil, err
	}
	list, err = a.depot.watcher.list(ctx, archive.FinalDir, a.spec.Job.OutputFiles+1, a.spec.Job.OutputDepth)
	return space, list, err
}

// fetchAll fetches the folder, and then piece by piece what did not come with it:
// after a file that is not worth reading, and after a connection that broke.
func (a *attempt) fetchAll(ctx context.Context, dir string, unpacker *archive.Unpacker, list *archive.Inventory) error {
	work, retries := []string{"."}, fetchRetries
	for len(work) > 0 {
		at := work[0]
		work = work[1:]
		err := a.fetchOne(ctx, dir, unpacker, at)
		switch {
		case errors.Is(err, archive.ErrTooMany):
			return nil // told in the list of what was left out
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case list == nil && errors.Is(err, archive.ErrCut):
			return errors.New("what comes after a file that was left out could not be listed")
		case list == nil:
			return err
		case err == nil, errors.Is(err, archive.ErrCut):
			unpacker.Missing(list, at, "was not in what the engine sent")
		case errors.Is(err, engine.ErrUnavailable):
			if retries--; retries < 0 || !a.engineBack(ctx) {
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

// fetchOne fetches one path below a folder of the depot.
func (a *attempt) fetchOne(ctx context.Context, dir string, unpacker *archive.Unpacker, at string) error {
	var sent io.ReadCloser
	err := a.withCourier(ctx, func() (err error) {
		sent, err = a.runner.copier().FetchDepot(ctx, a.spec.Job.RunID, path.Join(dir, at))
		return err
	})
	if err != nil {
		return err
	}
	defer sent.Close()
	return unpacker.Unpack(ctx, sent, at)
}

// engineBack waits for an engine that went away.
func (a *attempt) engineBack(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reconnectBudget)
	defer cancel()
	for {
		if _, err := a.runner.engine.Info(ctx); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(rewatchPause):
		}
	}
}
