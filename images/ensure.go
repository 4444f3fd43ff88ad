package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/containerd/errdefs"
)

// EnsureOptions say how [Ensure] works. Dockerfile is needed, the rest has
// defaults.
type EnsureOptions struct {
	// Dockerfile is the text of the entry's Dockerfile. Its SHA-256 must be
	// the one in the catalog.
	Dockerfile string
	// Force makes the image again although it is there.
	Force bool
	// LockDir is the folder of the lock files that keep two processes from
	// making the same image. It is created when missing. Defaults to
	// evalbox in the user's cache folder.
	LockDir string
	// Progress receives one line per step and what the engine's builder
	// prints. Defaults to io.Discard.
	Progress io.Writer
	// Terminal says that Progress is a terminal, TerminalFD which one.
	Terminal   bool
	TerminalFD uintptr
	// Root makes the root file system. Defaults to [Mmdebstrap].
	Root RootFunc
}

// A RootFunc makes a root file system and writes it to w as one uncompressed
// tar archive. It reports what it does in lines to progress, which is safe for
// concurrent use. It returns only after every process that it started has
// ended, and leaves nothing on disk, also when ctx ends.
type RootFunc func(ctx context.Context, b Bootstrap, w io.Writer, progress func(line string)) error

// Ensure makes an image of the catalog unless the engine has it; the empty name
// means the default. It returns the image and whether it was made just now.
//
// At most one process per LockDir makes a given image at a time; the others
// wait and then find it. A failure or the end of ctx leaves nothing half-made in
// the engine. The errors are [*CannotMakeError], [*StepError], or those of
// [Resolve].
func Ensure(ctx context.Context, eng Engine, cat Catalog, name string, opts EnsureOptions) (r Resolved, changed bool, err error) {
	entry, ok := cat.Lookup(name)
	if !ok {
		return Resolved{}, false, &CannotMakeError{
			Name: name, Reason: "is not in the catalog " + cat.Source, hint: "this version makes: " + cat.makeable(),
		}
	}
	if r, err := present(ctx, eng, cat, entry, opts.Force); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := checkMakeable(cat, entry, opts.Dockerfile); err != nil {
		return Resolved{}, false, err
	}
	m := newMaker(eng, entry, opts)
	unlock, err := m.lock(ctx)
	if err != nil {
		return Resolved{}, false, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if r, err := present(ctx, eng, cat, entry, opts.Force); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := m.make(ctx); err != nil {
		return Resolved{}, false, err
	}
	r, err = Resolve(ctx, eng, cat, entry.Name)
	return r, err == nil, err
}

// present returns the image of an entry, or the zero value when there is none or
// when it is to be made again.
func present(ctx context.Context, eng Inspector, cat Catalog, entry Entry, force bool) (Resolved, error) {
	if force {
		return Resolved{}, nil
	}
	r, err := Resolve(ctx, eng, cat, entry.Name)
	if errors.Is(err, ErrNotFound) {
		return Resolved{}, nil
	}
	return r, err
}

// checkMakeable refuses what this version cannot make.
func checkMakeable(cat Catalog, entry Entry, dockerfile string) error {
	if entry.Base.Bootstrap == nil {
		return &CannotMakeError{
			Name:   entry.Name,
			Reason: "this version makes images without a registry only; this one stands on " + entry.Base.Reference,
			hint:   "this version makes: " + cat.makeable(),
		}
	}
	sum := sha256.Sum256([]byte(dockerfile))
	if have := hex.EncodeToString(sum[:]); have != entry.DockerfileSHA256 {
		return &CannotMakeError{
			Name:   entry.Name,
			Reason: entry.Dockerfile + " has SHA-256 " + have + ", the catalog pins " + entry.DockerfileSHA256,
			hint:   "set dockerfile_sha256 in " + cat.Source + " after a wanted change",
		}
	}
	return nil
}

// ignoreNotFound forgets that something to be removed was not there.
func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
