package enginetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func (f *Fake) Info(ctx context.Context) (engine.Info, error) {
	if err := f.enter(ctx, "Info", ""); err != nil {
		return engine.Info{}, err
	}
	defer f.mu.Unlock()
	return f.Facts, nil
}

func (f *Fake) Resolve(ctx context.Context, ref string) (images.Resolved, error) {
	if err := f.enter(ctx, "Resolve", ref); err != nil {
		return images.Resolved{}, err
	}
	defer f.mu.Unlock()
	if ref == "" {
		ref = "debian"
	}
	if ref == unknownImage {
		return images.Resolved{}, fmt.Errorf("%w: %s", images.ErrNotFound, ref)
	}
	image := images.Resolved{Name: ref, Reference: ref, ID: "sha256:0123", Platform: "linux/amd64"}
	if f.Image != nil {
		f.Image(ref, &image)
	}
	return image, nil
}

// FindNetwork finds every network.
func (f *Fake) FindNetwork(ctx context.Context, name string) error {
	if err := f.enter(ctx, "FindNetwork", name); err != nil {
		return err
	}
	f.mu.Unlock()
	return nil
}

func (f *Fake) Identity(context.Context) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Own
}

// Recall implements [engine.Identified].
func (f *Fake) Recall(engine.Info) {}

func (f *Fake) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	if err := f.enter(ctx, "Prepare", meta.Name); err != nil {
		return nil, err
	}
	f.Created = append(f.Created, Created{class, meta})
	err := f.check(class, meta)
	took := f.PrepareTakes
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := f.findSources(class, meta); err != nil {
		return nil, err
	}
	if err := pause(ctx, took); err != nil {
		return nil, err
	}
	ready := f.lookAround(class, meta)

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[meta.Name] != nil {
		return nil, fmt.Errorf("%w: %s", engine.ErrNameTaken, meta.Name)
	}
	if f.away {
		return nil, fmt.Errorf("%w: EOF", engine.ErrUnavailable)
	}
	f.made++
	c := &container{
		fake: f, id: fmt.Sprintf("%012x", 0xfa4e00000000+f.made), class: class, meta: meta, ready: ready, created: time.Now(),
		nonce: newNonce(), signals: make(chan engine.Signal), over: make(chan struct{}), killed: make(chan struct{}),
		abandoned: make(chan struct{}), tape: newTape(),
	}
	c.mount()
	f.containers[meta.Name] = c
	if f.Fail.Prepare != nil {
		return nil, f.Fail.Prepare
	}
	return &handle{c: c, cut: make(chan struct{})}, nil
}

// check refuses names that are taken, and records violations of the contract. The lock is
// held.
func (f *Fake) check(class spec.Class, meta engine.Meta) error {
	switch {
	case meta.Name == "":
		f.misused("Prepare without a name")
	case class.Image.ID == "":
		f.misused("Prepare of %s: the image is not resolved", meta.Name)
	}
	for _, bind := range class.Binds {
		if source := meta.Sources[bind.Role]; !filepath.IsAbs(source) {
			f.misused("Prepare of %s: the bind %s has the source %q", meta.Name, bind.Role, source)
		}
	}
	for _, listed := range f.Listed {
		if listed.Name == meta.Name {
			return fmt.Errorf("%w: %s", engine.ErrNameTaken, meta.Name)
		}
	}
	if f.containers[meta.Name] != nil {
		return fmt.Errorf("%w: %s", engine.ErrNameTaken, meta.Name)
	}
	return nil
}

func (f *Fake) Open(ctx context.Context, ref engine.Ref, streams engine.Streams) (engine.Container, error) {
	if err := f.enter(ctx, "Open", ref.ID); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	c := f.find(ref.ID)
	if c == nil {
		return nil, fmt.Errorf("%w: %s", engine.ErrNoContainer, ref.ID)
	}
	h := &handle{c: c, opened: true, streams: streams, cut: make(chan struct{}), strange: ref.Nonce != c.nonce}
	h.join(f.Stuck || f.StuckAgain)
	return h, nil
}

// Pass implements [engine.Passer]. The file is one end of a pipe.
func (f *Fake) Pass(passed engine.Container) (engine.Passed, *os.File, error) {
	h, ok := passed.(*handle)
	if !ok {
		return engine.Passed{}, nil, errors.New("not of this engine")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.started || h.opened || h.c.job != nil {
		f.misused("Pass of %s, which has its job", h.c.meta.Name)
		return engine.Passed{}, nil, errors.New("the container has had its job")
	}
	if f.Fail.Pass != nil {
		return engine.Passed{}, nil, f.Fail.Pass
	}
	h.started = true
	end, connection, err := os.Pipe()
	if err != nil {
		return engine.Passed{}, nil, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, end) // until all copies are closed
		_ = end.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		h.c.orphan()
	}()
	return engine.Passed{ID: h.c.id, Up: h.c.created, Warnings: slices.Clone(f.Warn)}, connection, nil
}

// Receive implements [engine.Passer].
func (f *Fake) Receive(ctx context.Context, _ spec.Class, passed engine.Passed, connection *os.File) (engine.Container, error) {
	if err := f.enter(ctx, "Receive", passed.ID); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	defer f.mu.Unlock()
	c := f.find(passed.ID)
	if c == nil || c.gone {
		return nil, errors.Join(fmt.Errorf("%w: %s", engine.ErrNoContainer, passed.ID), connection.Close())
	}
	return &handle{c: c, cut: make(chan struct{}), connection: connection}, nil
}

// find looks a container up by its ID or name. The lock is held.
func (f *Fake) find(name string) *container {
	if c := f.containers[name]; c != nil {
		return c
	}
	for _, c := range f.containers {
		if c.id == name {
			return c
		}
	}
	return nil
}

func (f *Fake) List(ctx context.Context) ([]engine.Found, error) {
	if err := f.enter(ctx, "List", ""); err != nil {
		return nil, err
	}
	all := slices.Clone(f.Listed)
	for _, name := range slices.Sorted(maps.Keys(f.containers)) {
		c := f.containers[name]
		found := engine.Found{ID: c.id, Name: name, Image: c.class.Image.ID, Labels: maps.Clone(c.meta.Labels),
			Running: !c.gone, Ended: c.gone, Status: "Up", CreatedAt: c.created}
		if c.gone {
			found.Status = "Exited"
		}
		all = append(all, found)
	}
	f.mu.Unlock()
	return append(all, f.helpers()...), nil
}

func (f *Fake) Remove(ctx context.Context, name string) error {
	f.mu.Lock()
	f.RemoveCtxErr = ctx.Err()
	if name == "" {
		f.misused("Remove without a name")
	}
	f.mu.Unlock()
	if err := f.enter(ctx, "Remove", name); err != nil {
		return err
	}
	defer f.mu.Unlock()
	f.remove(name)
	f.forgetHelper(name)
	return nil
}

// remove removes a container. The lock is held.
func (f *Fake) remove(name string) {
	listed := slices.IndexFunc(f.Listed, func(found engine.Found) bool { return found.ID == name || found.Name == name })
	switch c := f.find(name); {
	case c != nil:
		delete(f.containers, c.meta.Name)
		for _, file := range c.mounted {
			_ = file.Close() // it was only opened
		}
		c.mounted = nil
		f.Removed = append(f.Removed, c.meta.Name)
		c.abort()
	case listed >= 0:
		if found := f.Listed[listed]; found.Name != "" {
			name = found.Name
		}
		f.Removed = append(f.Removed, name)
		f.Listed = slices.Delete(slices.Clone(f.Listed), listed, listed+1)
	default:
		f.Removed = append(f.Removed, name)
	}
}

func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, c := range f.containers {
		c.orphan()
	}
	return f.Fail.Close
}

// pause waits for a duration or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newNonce() string {
	nonce := make([]byte, 32)
	_, _ = rand.Read(nonce[1:]) // never fails
	return hex.EncodeToString(nonce)
}

// unknownImage is a reference that no engine has.
const unknownImage = "evalbox.invalid/no-such-image:none"
