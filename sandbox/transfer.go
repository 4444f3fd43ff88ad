package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/stage/archive"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// depot is the folder on the engine's machine of a run whose files are copied, as
// its controller sees it.
type depot struct {
	labels map[string]string
	// taken says that the name is another run's: nothing of it is ours.
	taken   bool
	watcher *watcher
	// connected answers once the first watcher is there, and nobody asks it any
	// more while files are sent; or why there is none.
	connected chan error
	// sent is how much of the files was sent.
	sent atomic.Int64
	// empty is what ./final takes when nothing is in it.
	empty int64
	// looking is the watch of a running program; stopLooking ends it.
	looking     sync.WaitGroup
	stopLooking context.CancelFunc
}

// copies says that the files of this run are copied.
func (a *attempt) copies() bool { return a.spec.Class.Transfer == TransferCopy }

// openDepot makes the depot and fills it, before the run's container exists. The host paths are those of the engine's machine.
func (a *attempt) openDepot(ctx context.Context, labels map[string]string) (engine.Sources, error) {
	a.depot = &depot{labels: labels}
	// A container of the run's name that is there now is another's.
	a.nameTaken = true
	root, err := a.runner.copier().MakeDepot(context.WithoutCancel(ctx), a.spec, labels)
	if err != nil {
		a.depot.taken = errors.Is(err, engine.ErrNameTaken)
		return nil, err
	}
	// It takes as long to start as a few files take to be sent.
	sending, abort := context.WithCancelCause(ctx)
	sent := make(chan struct{})
	a.depot.connected = make(chan error, 1)
	go func() { a.depot.connected <- a.watchFill(context.WithoutCancel(ctx), sent, abort) }()
	err = a.fillDepot(sending)
	close(sent)
	if err != nil {
		watchErr := <-a.depot.connected
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
		case sending.Err() != nil:
			return nil, a.watchError(watchErr)
		}
		return nil, errors.Join(err, watchErr)
	}
	abort(nil)
	a.log.Debug("files copied to the engine")
	a.nameTaken = false
	return depotPaths(root, a.spec), nil
}

// fillDepot sends program, input and an empty ./final to the engine.
func (a *attempt) fillDepot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fillBudget, errFillBudget)
	defer cancel()
	warnings := len(a.warnings)
	err := a.withCourier(ctx, func() error {
		a.warnings = a.warnings[:warnings]
		return a.sendFiles(ctx)
	})
	if err != nil && errors.Is(context.Cause(ctx), errFillBudget) {
		return errFillBudget
	}
	return err
}

// errFillBudget means that the files took too long, however well they got on.
var errFillBudget = fmt.Errorf("sending the files to the engine took longer than %v", fillBudget)

// withCourier does something again for which the courier was not there: it never
// runs, and so it is the first to go when somebody tidies up the engine.
func (a *attempt) withCourier(ctx context.Context, do func() error) error {
	err := do()
	for range courierTries {
		if !errors.Is(err, engine.ErrNoContainer) || ctx.Err() != nil {
			return err
		}
		a.log.Debug("the courier is gone", logError, err)
		if mendErr := a.runner.copier().MendDepot(context.WithoutCancel(ctx), a.spec, a.depot.labels); mendErr != nil {
			return errors.Join(err, mendErr)
		}
		err = do()
	}
	return err
}

// courierTries is how often a courier is made again for one transfer.
const courierTries = 3

// sendFiles sends the files as they are read.
func (a *attempt) sendFiles(ctx context.Context) error {
	reader, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := a.pack(ctx, writer)
		packed <- err
		_ = writer.CloseWithError(err) // never fails
	}()
	a.depot.sent.Store(0)
	sendErr := a.runner.copier().FillDepot(ctx, a.spec.Job.RunID, counted(reader, &a.depot.sent))
	_ = reader.CloseWithError(errors.Join(sendErr, io.ErrClosedPipe)) // never fails
	packErr := <-packed
	var cannot *PathError
	switch {
	case errors.As(packErr, &cannot):
		return cannot
	case sendErr != nil:
		return sendErr
	}
	return packErr
}

// pack writes the archive that fills the depot.
func (a *attempt) pack(ctx context.Context, to io.Writer) error {
	packer := archive.NewPacker(to)
	uid, gid, err := numericUser(a.spec.Class.User)
	if err != nil {
		return err
	}
	if program := a.work.paths[RoleProgram]; program != "" {
		err = errors.Join(packer.Folder(archive.ProgramDir, 0, 0, 0o555),
			withFolder("script", filepath.Dir(program), func(root *os.Root) error {
				name := filepath.Base(program)
				return packer.File(path.Join(archive.ProgramDir, name), root, name)
			}))
	}
	if err == nil && a.spec.Job.Input == "" {
		err = errors.Join(packer.Folder(archive.InputDir, 0, 0, 0o555), packPoints(packer, archive.InputDir, pointsOf(a.spec, InputDir)))
	} else if err == nil {
		err = withFolder("input", a.spec.Job.Input, a.checked(a.spec.Job.Input, ".", func(root *os.Root) error {
			return packer.Tree(ctx, archive.InputDir, root, a.hiddenIn(InputDir))
		}))
	}
	if err == nil {
		err = a.packMounts(ctx, packer)
	}
	if err == nil {
		err = errors.Join(packer.Folder(archive.OutDir, 0, 0, 0o755), packer.Folder(archive.FinalDir, uid, gid, 0o755))
	}
	if err == nil {
		err = a.packTrees(ctx, packer, uid, gid)
	}
	if err == nil {
		err = packer.Close()
	}
	for _, omitted := range packer.Omitted {
		a.warnings = append(a.warnings, "left out of input: "+omitted)
	}
	return err
}

// withFolder opens a folder for do. What do cannot read becomes a [PathError] of
// the field.
func withFolder(field, dir string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &PathError{Field: field, Path: dir, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	err = errors.Join(do(root), root.Close())
	var file *fs.PathError
	if errors.As(err, &file) {
		return &PathError{Field: field, Path: filepath.Join(dir, file.Path), Rule: "cannot be copied to the engine", Err: file.Err}
	}
	return err
}

// closeDepot removes the depot of a run whose program never started.
func (a *attempt) closeDepot(ctx context.Context) error {
	if a.depot == nil {
		return nil
	}
	a.stopWatching()
	if a.depot.taken {
		return nil
	}
	return a.runner.removeDepot(ctx, a.spec.Job.RunID)
}

// dropDepot removes the depot of a run that is over. One that was told to stay
// keeps what its container has mounted.
func (a *attempt) dropDepot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	if !a.spec.Job.Keep {
		return a.closeDepot(ctx)
	}
	a.stopWatching()
	id := a.spec.Job.RunID
	a.warnings = append(a.warnings, fmt.Sprintf("volume %s and container %s stay with the container that was told to stay",
		spec.DepotName(id), spec.CourierName(id)))
	return a.runner.engine.Remove(ctx, spec.WatcherName(id))
}

// stopWatching ends the watch of the depot.
func (a *attempt) stopWatching() {
	a.stopLooking()
	if a.depot.watcher != nil {
		a.depot.watcher.close(nil)
	}
}

// stopLooking ends the look-out for a full disk; the watcher can still be asked.
func (a *attempt) stopLooking() {
	if a.depot.stopLooking != nil {
		a.depot.stopLooking()
		a.depot.looking.Wait()
	}
}
