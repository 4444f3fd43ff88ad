package sandbox

import (
	"context"
	"io"

	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stop"
)

// The data of a request, see [spec].
type (
	Request   = spec.Request
	Mount     = spec.Mount
	Alias     = spec.Alias
	Tree      = spec.Tree
	FakeClock = spec.FakeClock
	Observe   = spec.Observe
	PathError = spec.PathError
	Secret    = spec.Secret
)

// RunOption is a part of a run that is not data: an [IO], a [Hooks] or a [Work]. A later option
// replaces an earlier one of its kind.
type RunOption interface{ apply(*runOptions) }

type runOptions struct {
	io    IO
	hooks Hooks
	work  Work
	empty bool
	// workFile is the note of the job; empty without one.
	workFile string
	// named says that the caller chose the ID of the run.
	named bool
}

// EmptyFinal says that ./final is emptied right before the program starts (EX-002, EX-015). Otherwise what
// lies there stays until the outputs of the run come there.
type EmptyFinal bool

func (e EmptyFinal) apply(all *runOptions) { all.empty = bool(e) }

// IO connects the streams of a program.
type IO struct {
	// Stdin is read by the program; nil is an empty stdin. Run does not close it, and
	// may leave one Read of it pending when it returns.
	Stdin io.Reader
	// Stdout and Stderr get the program's output live, as raw bytes, while it is
	// recorded. A writer that blocks or fails never delays the program. Both are
	// called from one goroutine.
	Stdout, Stderr io.Writer
	// WatchStdout, if not nil, gets every byte of stdout before Run returns. It must not block
	// or fail, which would delay the program.
	WatchStdout io.Writer
}

func (o IO) apply(all *runOptions) { all.io = o }

// Hooks connect a run with its caller. Every field may be nil.
type Hooks struct {
	// Waiting is called with the reason of a wait, for GPUs or for the engine, before the wait and
	// whenever the reason changes. The reason follows "waiting for", and begins with what is
	// awaited, such as "GPUs: " or "a node: ". It must not block.
	Waiting func(why string)
	// Started is called right before the program starts. A run that is canceled earlier
	// never calls it.
	Started func()
	// Running is called once the container has accepted the program, or may have: the engine was
	// lost before it answered.
	Running func()
	// Admit is called when the container is ready, and the program does not start
	// before it returns. release, if not nil, is called once the program has ended,
	// before its outputs are collected. So runs can be prepared and cleaned up while
	// others run; see [Slots]. An error ends the run as ctx would before the start.
	// Admit may wait for as long as the time limit and the grace period. After a longer
	// wait, a controller that cannot see this one considers it dead.
	Admit func(ctx context.Context) (release func(), err error)
	// Begin is called with the ID of the run right before the start, after Admit. It does not
	// wait. An error ends the run as ctx would before the start.
	Begin func(id string) error
	// More says how many runs of the same class are still to begin. It may be called at any time
	// until the runner is closed. A [Pool] prepares no more containers for the class than that; if
	// More is nil, it prepares as many as it may.
	More func() int
	// Peers are the runs that rules of [Request].StopWhen compare this one with, such as those of the same
	// batch. A run whose program ends by itself becomes one of them.
	Peers *stop.Peers
	// Kill, when closed after the context was canceled, skips the rest of the grace
	// period. The outputs are still collected, for at most two minutes.
	Kill <-chan struct{}
}

func (h Hooks) apply(all *runOptions) { all.hooks = h }

// Slots returns a function for Admit of [Hooks]. At most n programs of the runs that share it
// run at the same time. They are admitted in the order in which they asked.
func Slots(n int) func(ctx context.Context) (release func(), err error) {
	slots := make(chan struct{}, n)
	return func(ctx context.Context) (func(), error) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		select {
		case slots <- struct{}{}:
			return func() { <-slots }, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
