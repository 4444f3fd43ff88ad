package images

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// A maker makes one image once.
type maker struct {
	eng   Engine
	entry Entry
	opts  EnsureOptions
	steps *steps
}

func newMaker(eng Engine, entry Entry, opts EnsureOptions) *maker {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	if opts.Root == nil {
		opts.Root = Mmdebstrap
	}
	return &maker{eng: eng, entry: entry, opts: opts, steps: newSteps(opts.Progress)}
}

// failed names the step in which an error happened. When ctx has ended, that is
// the error, and plain: what a call made of it does not matter.
func (m *maker) failed(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("image %s: %s: %w", m.entry.Name, step, ctx.Err())
	}
	return &StepError{Name: m.entry.Name, Step: step, Err: err}
}

// make makes the image and removes everything else that came with it.
func (m *maker) make(ctx context.Context) (err error) {
	if err := m.discardBase(ctx); err != nil { // of a process that was killed
		return err
	}
	old, err := m.eng.ImageInspect(ctx, m.entry.Tag())
	if ignoreNotFound(err) != nil {
		return m.failed(ctx, "build", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.discardBase(ctx))
		}
	}()
	if err := m.importRoot(ctx); err != nil {
		return err
	}
	if err := m.build(ctx); err != nil {
		return err
	}
	if err := m.untagBase(ctx); err != nil {
		return err
	}
	m.discardOld(ctx, old.ID)
	m.steps.line("done", m.entry.Tag())
	return nil
}
