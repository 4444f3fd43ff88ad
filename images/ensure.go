package images

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/containerd/errdefs"
)

// EnsureOptions say how [Ensure] works. Dockerfile is needed, and Requirements for
// an entry that has them; the rest has defaults.
type EnsureOptions struct {
	// Dockerfile is the text of the entry's Dockerfile. Its SHA-256 must be
	// the one in the catalog.
	Dockerfile string
	// Requirements is the text of the entry's requirements. Its SHA-256 must be
	// the one in the catalog.
	Requirements string
	// BuildNetwork is the engine's network for the build of an entry with
	// requirements: default, host, or the name of one. Defaults to default. All
	// others are built without a network.
	BuildNetwork string
	// PipIndex is the URL of the package index for the requirements. Their
	// hashes are checked whatever it serves. It must not hold a password,
	// because the classic builder writes it into the history of the image.
	// Defaults to PyPI.
	PipIndex string
	// IgnoreMovedTag and Credentials are for the pull of the base, see
	// [PullOptions].
	IgnoreMovedTag bool
	Credentials    Credentials
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
// means the default. It returns the image and whether it was made just now. A base
// of a registry is pulled, see [Pull], and stays in the engine.
//
// At most one process per LockDir makes a given image at a time; the others
// wait and then find it. A failure or the end of ctx leaves nothing half-made in
// the engine. The errors are [*CannotMakeError], [*StepError] with those of [Pull]
// or a [*BuildError] in it, or those of [Resolve].
func Ensure(ctx context.Context, eng Engine, cat Catalog, name string, opts EnsureOptions) (r Resolved, changed bool, err error) {
	entry, ok := cat.Lookup(name)
	if !ok {
		return Resolved{}, false, &CannotMakeError{
			Name: name, Reason: "is not in the catalog " + cat.Source, hint: "it names: " + strings.Join(cat.Names(), ", "),
		}
	}
	if r, err := present(ctx, eng, cat, entry, opts.Force); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := checkRecipe(cat, entry, opts); err != nil {
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

// ignoreNotFound forgets that something to be removed was not there.
func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
