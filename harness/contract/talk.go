package contract

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// lingers is how long a program may go on when the talk with it is over, and its input has ended.
const lingers = 2 * time.Second

// errLingers ends a program that goes on although its input has ended.
var errLingers = errors.New("the program did not end when its input ended")

// runProgram runs the program of the contract. Answer is what it said, if its adapter talks with
// it.
func (run *execution) runProgram(ctx context.Context, streams sandbox.IO, hooks sandbox.Hooks) (*result.Result, Answer, error) {
	a, req := run.Effective.Adapted, run.request
	if a != nil && len(a.Files) > 0 {
		temp, remove, err := run.box.Store().Temp("adapter")
		if err != nil {
			return nil, Answer{}, err
		}
		defer remove() //nolint:errcheck // a later sweep removes the rest
		dir := filepath.Join(temp, "files")
		if err := writeFiles(dir, a.Files); err != nil {
			return nil, Answer{}, err
		}
		req.Mounts = append(req.Mounts, sandbox.Mount{Source: dir, Target: a.FilesDir})
	}
	if a == nil || a.Talk == nil {
		res, err := run.box.Run(ctx, req, streams, hooks)
		return res, Answer{}, err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	in, pipe := io.Pipe()
	toProgram := newInput(pipe)
	fromProgram, out := io.Pipe()
	streams.Stdin, streams.Stdout, req.Stdin = in, out, true
	answer := make(chan Answer, 1)
	go func() {
		talked := a.Talk(running, run.Effective, toProgram, fromProgram)
		toProgram.close()
		answer <- talked
		patience := lingers
		if talked.Err != nil {
			patience = 0 // nobody waits for it
		}
		stop := time.AfterFunc(patience, func() { end(errLingers) })
		defer stop.Stop()
		_, _ = io.Copy(io.Discard, fromProgram) // the rest of its output, which the record has
	}()
	res, err := run.box.Run(running, req, streams, hooks)
	_ = errors.Join(out.Close(), in.Close()) // pipes in memory
	talked := <-answer
	if res != nil && ctx.Err() == nil && errors.Is(context.Cause(running), errLingers) && res.Status == result.StatusCanceled {
		run.lingered = true
		if talked.Err == nil {
			run.warn("%v, and was ended", errLingers)
		}
	}
	return res, talked, err
}

// input is the stdin of a program. A write does not wait until the program reads: so one that only
// writes does not keep its talk from reading.
type input struct {
	mu      sync.Mutex
	changed *sync.Cond
	waiting []byte
	ended   bool
	err     error // of the pipe
}

// newInput returns an input that goes to a pipe until it is closed.
func newInput(to *io.PipeWriter) *input {
	in := &input{}
	in.changed = sync.NewCond(&in.mu)
	go func() {
		defer to.Close() //nolint:errcheck // a pipe in memory
		for next := in.next(); next != nil; next = in.next() {
			if _, err := to.Write(next); err != nil {
				in.mu.Lock()
				in.err = err
				in.mu.Unlock()
				return
			}
		}
	}()
	return in
}

// next waits for the next bytes. nil is the end.
func (in *input) next() []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.waiting) == 0 && !in.ended {
		in.changed.Wait()
	}
	next := in.waiting
	in.waiting = nil
	return next
}

// Write implements [io.Writer].
func (in *input) Write(text []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.err != nil:
		return 0, in.err
	case in.ended:
		return 0, io.ErrClosedPipe
	}
	in.waiting = append(in.waiting, text...)
	in.changed.Signal()
	return len(text), nil
}

// close ends the input after what was written.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.changed.Signal()
}

// writeFiles writes the files of an adapter into a new directory that every user may read.
func writeFiles(dir string, files map[string]string) error {
	errs := []error{fsx.MkdirReadable(dir)} // the user of the container reads it
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		errs = append(errs, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}
