// Package build makes the images of a catalog. The base of an image is a root file system
// from Debian packages, which needs no registry, or an image that package pull pulls by its
// digest; Dockerfile.runner is built on it, with Python packages whose hashes are pinned.
package build

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/opencontainers/go-digest"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/images/store"
)

// Options say how [Ensure] works. Dockerfile is needed, and Requirements for an entry that
// has them; the rest has defaults.
type Options struct {
	// Dockerfile is the text of the entry's Dockerfile. Its SHA-256 must be the one in the
	// catalog.
	Dockerfile string
	// Requirements is the text of the entry's requirements. Its SHA-256 must be the one in
	// the catalog.
	Requirements string
	// Network is the engine's network for the build of an entry with requirements: default,
	// host, or the name of one. Defaults to default. All others are built without a
	// network.
	Network string
	// PipIndex is the URL of the package index for the requirements, whose hashes are
	// checked. It must not hold a password, because the classic builder writes it into the
	// history of the image. Defaults to PyPI.
	PipIndex string
	// Force makes the image again although the engine has it.
	Force bool
	// Pull says how a base is pulled. Its Progress also receives one line per step of the
	// build and what the engine's builder prints.
	Pull pull.Options
	// Root makes the root file system. Defaults to [Mmdebstrap].
	Root RootFunc
}

// Ensure makes an image of the catalog unless the engine has it; the empty name means the
// default. It returns the image and whether it was made just now. A base of a registry is
// pulled, see [pull.Pull], and stays in the engine.
//
// At most one process of a user makes a given image at a time; the others wait and then
// find it. A failure or the end of ctx leaves nothing unfinished in the engine. The errors
// wrap those of [pull.Pull] and [images.Resolve].
func Ensure(ctx context.Context, api client.APIClient, cat images.Catalog, name string, opts Options) (r images.Resolved, changed bool, err error) {
	entry, ok := cat.Lookup(name)
	if !ok {
		return images.Resolved{}, false, refused(name, "is not in the catalog "+cat.Source, "it names: "+strings.Join(cat.Names(), ", "))
	}
	if opts.Root == nil {
		opts.Root = Mmdebstrap
	}
	m := &maker{eng: store.Docker{APIClient: api}, entry: entry, opts: opts, progress: pull.NewProgress(opts.Pull.Progress)}
	if r, err := m.present(ctx, cat); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := checkRecipe(cat, entry, opts); err != nil {
		return images.Resolved{}, false, err
	}
	unlock, err := images.WaitLock(ctx, "image-"+entry.Name, func() {
		m.progress.Line("lock", "another process is making this image, waiting for it")
	})
	if err != nil {
		return images.Resolved{}, false, m.failed(ctx, "lock", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if r, err := m.present(ctx, cat); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := m.make(ctx); err != nil {
		return images.Resolved{}, false, err
	}
	r, err = images.Resolve(ctx, m.eng, cat, entry.Name)
	return r, err == nil, err
}

// refused returns the error of an image that cannot be made.
func refused(name, reason, hint string) error {
	return fmt.Errorf("image %s: %w", name, images.WithHint(errors.New(reason), hint))
}

// checkRecipe refuses files that are not the pinned ones, before they are used,
// and an index that would leave a password in the image.
func checkRecipe(cat images.Catalog, entry images.Entry, opts Options) error {
	for _, file := range []struct{ name, text, pin, key string }{
		{entry.Dockerfile, opts.Dockerfile, entry.DockerfileSHA256, "dockerfile_sha256"},
		{entry.Requirements, opts.Requirements, entry.RequirementsSHA256, "requirements_sha256"},
	} {
		if have := digest.FromString(file.text).Encoded(); file.name != "" && have != file.pin {
			return refused(entry.Name, file.name+" has SHA-256 "+have+", the catalog pins "+file.pin,
				"set "+file.key+" in "+cat.Source+" after a wanted change")
		}
	}
	return checkIndex(entry.Name, opts.PipIndex)
}

// checkIndex refuses a text that is not the URL of a package index, and a URL with a password.
func checkIndex(name, address string) error {
	if address == "" {
		return nil
	}
	// The URL is not repeated: it may hold a password.
	index, err := url.Parse(address)
	if err != nil || index.Host == "" || index.Scheme != "https" && index.Scheme != "http" {
		return refused(name, "the package index is not an http or https URL", "give one such as https://pypi.org/simple")
	}
	if index.User != nil {
		return refused(name, "the URL of the package index holds a user or a password, which would stay in the image's history",
			"use an index that needs none: the hashes make its answers safe")
	}
	return nil
}

// A maker makes one image once.
type maker struct {
	eng      store.Docker
	entry    images.Entry
	opts     Options
	progress *pull.Progress
	own      *ownBuild // nil for an image of the catalog
}

// present returns the image; the zero value if the engine does not have it, or if it must be
// made again.
func (m *maker) present(ctx context.Context, cat images.Catalog) (images.Resolved, error) {
	if m.opts.Force {
		return images.Resolved{}, nil
	}
	r, err := images.Resolve(ctx, m.eng, cat, m.entry.Name)
	if errors.Is(err, images.ErrNotFound) {
		return images.Resolved{}, nil
	}
	return r, err
}

// failed adds the step to an error; nil stays nil. If ctx has ended, its error replaces that
// of the call.
func (m *maker) failed(ctx context.Context, step string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return fmt.Errorf("image %s: %s: %w", m.entry.Name, step, err)
}

// make makes the image and removes everything else that the build left.
func (m *maker) make(ctx context.Context) (err error) {
	if err := m.discard(ctx); err != nil { // of a process that was killed
		return err
	}
	old, err := m.eng.Image(ctx, m.entry.Tag())
	if err := store.IgnoreNotFound(err); err != nil {
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
		return m.failed(ctx, "build", err)
	}
	if err := m.cleanUp(ctx, old.ID); err != nil {
		return err
	}
	if m.own != nil && m.own.dir != "" { // stages of the Dockerfile that are not the last one
		if err := m.discard(ctx); err != nil {
			return err
		}
	}
	m.progress.Line("done", m.entry.Tag())
	return nil
}

// base makes sure that the engine has the base, and returns its name there.
func (m *maker) base(ctx context.Context) (string, error) {
	if m.entry.Base.Bootstrap != nil {
		return m.entry.BaseTag(), m.importRoot(ctx)
	}
	if m.own != nil {
		return m.own.base, nil
	}
	r, pulled, err := pull.Pull(ctx, m.eng, m.entry.Base.Reference, m.opts.Pull)
	if err == nil && !pulled {
		m.progress.Line("pull", "the engine has "+r.Reference)
	}
	return r.Reference, m.failed(ctx, "pull", err)
}

// cleanUp removes the temporary name of the base of a bootstrap; its layer stays as part of
// the image. It also removes the image before this one, unless it is the same or in use. An
// image in use stays in the engine without a name.
func (m *maker) cleanUp(ctx context.Context, old string) error {
	ctx, cancel := store.Cleanup(ctx)
	defer cancel()
	if m.entry.Base.Bootstrap != nil {
		if err := m.eng.Remove(ctx, m.entry.BaseTag(), image.RemoveOptions{Force: true}); err != nil {
			return m.failed(ctx, "clean up", err)
		}
	}
	now, err := m.eng.Image(ctx, m.entry.Tag())
	if err != nil || old == "" || old == now.ID {
		return m.failed(ctx, "clean up", err)
	}
	if err := m.eng.Remove(ctx, old, image.RemoveOptions{PruneChildren: true}); err != nil {
		m.progress.Line("clean up", "the image before this one stays: "+err.Error())
	}
	return nil
}

// discard removes the rest of an unfinished build.
func (m *maker) discard(ctx context.Context) error {
	ctx, cancel := store.Cleanup(ctx)
	defer cancel()
	if m.entry.Base.Bootstrap != nil {
		return m.failed(ctx, "clean up", m.discardBase(ctx))
	}
	return m.failed(ctx, "clean up", m.discardSteps(ctx))
}

// discardSteps removes the rest of an unfinished build on a base of a registry: only images
// with the label of this recipe, because others may have images on the same base. Their
// parents without a name go too, but not the base, which has a digest.
func (m *maker) discardSteps(ctx context.Context) error {
	all, err := m.eng.ImageList(ctx, image.ListOptions{All: true})
	errs := []error{err}
	for _, img := range all {
		if img.Labels[images.LabelRecipe] != m.entry.Recipe() || store.Named(img) {
			continue
		}
		// The last of a chain of steps takes its parents with it.
		if ids, used := store.Above(all, img.ID); !used && len(ids) == 0 {
			errs = append(errs, m.eng.RemoveUnused(ctx, img.ID))
		}
	}
	return errors.Join(errs...)
}

// discardBase removes the temporary base, if there is one, and the steps of an unfinished
// build on it.
func (m *maker) discardBase(ctx context.Context) error {
	base, err := m.eng.Image(ctx, m.entry.BaseTag())
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	all, err := m.eng.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return err
	}
	var errs []error
	above, _ := store.Above(all, base.ID)
	for _, id := range above {
		errs = append(errs, m.eng.Remove(ctx, id, image.RemoveOptions{}))
	}
	errs = append(errs, m.eng.Remove(ctx, m.entry.BaseTag(), image.RemoveOptions{Force: true, PruneChildren: true}))
	return errors.Join(errs...)
}
