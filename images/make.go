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
	if err := m.discard(ctx); err != nil { // of a process that was killed
		return err
	}
	old, err := m.eng.ImageInspect(ctx, m.entry.Tag())
	if ignoreNotFound(err) != nil {
		return m.failed(ctx, "build", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.discard(ctx))
		}
	}()
	base, err := m.base(ctx)
	if err != nil {
		return err
	}
	if err := m.build(ctx, base); err != nil {
		return err
	}
	if m.entry.Base.Bootstrap != nil {
		if err := m.untagBase(ctx); err != nil {
			return err
		}
	}
	if err := m.discardOld(ctx, old.ID); err != nil {
		return err
	}
	m.steps.line("done", m.entry.Tag())
	return nil
}

// base makes sure that the engine has what the image stands on, and returns its
// name there.
func (m *maker) base(ctx context.Context) (string, error) {
	if m.entry.Base.Bootstrap != nil {
		return m.entry.baseTag(), m.importRoot(ctx)
	}
	r, pulled, err := Pull(ctx, m.eng, m.entry.Base.Reference, PullOptions{
		IgnoreMovedTag: m.opts.IgnoreMovedTag, Credentials: m.opts.Credentials, LockDir: m.opts.LockDir,
		Progress: m.opts.Progress, Terminal: m.opts.Terminal, TerminalFD: m.opts.TerminalFD,
	})
	if err != nil {
		return "", m.failed(ctx, "pull", err)
	}
	if !pulled {
		m.steps.line("pull", "the engine has "+r.Reference)
	}
	return r.Reference, nil
}
