package sandbox

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/internal/stream"
)

// attempt is one run on its way from its plan to its result. Its methods are
// called in the order of the file run.go by one goroutine; the fields that
// helpers touch are safe for that or written before the helpers start.
type attempt struct {
	runner *Runner
	req    Request
	spec   Spec
	info   EngineInfo
	log    *slog.Logger
	work   *workspace
	depot  *depot // of a run whose files are copied
	egress egressPart
	// observer is nil unless something is observed.
	observer *observer

	container string
	// nameTaken says that the container of this run's name is another's.
	nameTaken bool
	warnings  []string
	// pinned are the sources of mounts as they were checked.
	pinned []pinned

	// release says that the program has ended; see [Request].
	release func()

	// Times of our own monotonic clock.
	began, started, ended time.Time

	// exits reports the end of the container; cancelWait ends the wait and
	// every helper.
	exits      <-chan Exit
	cancelWait context.CancelFunc

	// stops is how helpers ask for the end of the run.
	stops chan stopReason

	streams Streams
	// attached feeds the reader with a new connection after a loss of the
	// engine; noMore tells it that none will come, and readerDone is closed
	// when it has read the last to its end.
	attached   chan Streams
	noMore     chan struct{}
	readerDone chan struct{}
	reading    bool
	// current is the connection that is being read.
	currentMu sync.Mutex
	current   Streams
	stdout    *output
	stderr    *output
	live      *stream.Live
	written   atomic.Int64

	gpus      gpuPart
	score     result.ScoreScanner
	traceback result.TracebackScanner

	usage *usageWatch
	facts facts
	// backAt is when an engine that had been away was found to run the program
	// still.
	backAt atomic.Pointer[time.Time]
}

// stopReason says why we ended a run.
type stopReason int

const (
	stopNone stopReason = iota
	stopTimeout
	stopCanceled
	stopOutputLimit
	stopDiskLimit
	// stopTooDeep is for folders so deep that nobody can tell what they hold.
	stopTooDeep
	stopDiskFull
	// stopUnwatched is for a disk that nobody could look at any more.
	stopUnwatched
)

// askStop asks for the end of the run; only the first reason counts.
func (a *attempt) askStop(reason stopReason) {
	select {
	case a.stops <- reason:
	default:
	}
}
