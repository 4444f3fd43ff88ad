package sandbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"

	"github.com/evalbox/evalbox/sandbox/stream"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// attempt is one run on its way from its plan to its result. Its methods are
// called in the order of the file run.go by one goroutine; the fields that
// helpers touch are safe for that or written before the helpers start.
type attempt struct {
	runner *Runner
	req    Request
	io     IO
	hooks  Hooks
	spec   spec.Spec
	info   engine.Info
	log    *slog.Logger
	work   *workspace
	depot  *depot // of a run whose files are copied
	egress egressPart
	// observer is nil unless something is observed.
	observer *observer

	// container is nil until it is prepared.
	container engine.Container
	// nameTaken says that the container of this run's name is another's.
	nameTaken bool
	// left says that the container could not be removed, and may hold processes.
	left bool
	// unwatched says that nobody could look after the disk of the copied files.
	unwatched bool
	// asked is the way of the files that the request named.
	asked    string
	warnings []string
	// pinned are the sources of mounts as they were checked.
	pinned []pinned

	// release says that the program has ended; see [Hooks].
	release func()

	// Times of our own monotonic clock.
	began, started, ended time.Time

	// stopHelpers ends what watches the run.
	stopHelpers context.CancelFunc
	// stops is how helpers ask for the end of the run.
	stops chan outcome.StopReason

	stdout  *output
	stderr  *output
	live    *stream.Live
	written atomic.Int64

	gpus      gpuPart
	score     result.ScoreScanner
	traceback result.TracebackScanner

	facts outcome.Evidence
}

// askStop asks for the end of the run; only the first reason counts.
func (a *attempt) askStop(reason outcome.StopReason) {
	select {
	case a.stops <- reason:
	default:
	}
}
