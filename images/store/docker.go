// Package store reads and cleans up the images of a Docker engine, for the other packages
// below images: it is the one place that knows how Docker describes an image.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/internal/said"
)

// Docker is the image store of a Docker engine: its API, and the engine interfaces of the
// packages images and lock.
type Docker struct{ client.APIClient }

// Image implements [images.Engine].
func (d Docker) Image(ctx context.Context, ref string) (images.Image, error) {
	found, err := d.ImageInspect(ctx, ref)
	if err != nil {
		return images.Image{}, err
	}
	platform := []string{found.Os, found.Architecture}
	if found.Variant != "" {
		platform = append(platform, found.Variant)
	}
	img := images.Image{
		ID: found.ID, Tags: realNames(found.RepoTags, noTag), Digests: found.RepoDigests,
		Platform: strings.Join(platform, "/"), Layers: found.RootFS.Layers, SizeBytes: found.Size, Created: found.Created,
		Builder: found.DockerVersion, //nolint:staticcheck // engines that still report it are right
	}
	if found.Config != nil {
		img.Config = found.Config.ImageConfig
	}
	return img, nil
}

// StreamError is an error at the end of a stream of messages, with a bounded message of the engine.
func StreamError(err error) error {
	if failed, ok := errors.AsType[*jsonmessage.JSONError](err); ok {
		failed.Message = said.Text(failed.Message)
	}
	return err
}

// Version is the version of the engine.
func (d Docker) Version(ctx context.Context) (string, error) {
	version, err := d.ServerVersion(ctx)
	return version.Version, err
}

// LabelReader marks the containers through which images are read. They are never started,
// and are removed afterwards; prune and `sandbox gc` remove those of killed processes.
const LabelReader = "org.evalbox.reader"

// readerAge is longer than reading an image takes. An older container whose owner is unknown
// was left behind.
const readerAge = time.Hour

// readerName begins the names of these containers. The container of a run never has it.
const readerName = "evalbox_reader-"

// createTime bounds the creation of such a container. The caller's context does not end the
// call, because the engine would carry it out anyway.
const createTime = 2 * time.Minute

// Contents lists the packages of an image without running anything of it: the engine
// exports the file system of a container that is never started.
func (d Docker) Contents(ctx context.Context, id string) (found packages.Contents, err error) {
	if err := ctx.Err(); err != nil {
		return packages.Contents{}, err
	}
	createCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel()
	made, err := d.ContainerCreate(createCtx,
		&container.Config{
			Image: id, Cmd: []string{"true"}, NetworkDisabled: true,
			Labels: map[string]string{
				LabelReader: id, owner.LabelManaged: "true", owner.LabelPart: "reader", owner.LabelOwner: owner.This().String(),
				owner.LabelDeadline: time.Now().Add(readerAge).UTC().Format(time.RFC3339),
			},
		},
		&container.HostConfig{NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"}}, nil, nil, readerName+rand.Text())
	if err != nil {
		return packages.Contents{}, err
	}
	defer func() {
		removeCtx, cancel := Cleanup(ctx)
		defer cancel()
		remove := container.RemoveOptions{Force: true, RemoveVolumes: true}
		err = errors.Join(err, IgnoreNotFound(d.ContainerRemove(removeCtx, made.ID, remove)))
	}()
	stream, err := d.ContainerExport(ctx, made.ID)
	if err != nil {
		return packages.Contents{}, err
	}
	defer stream.Close()
	return packages.Read(stream)
}

// LeftBehind reports whether a container was made to read an image by a process that is dead.
func LeftBehind(c container.Summary, now time.Time) bool {
	if c.Labels[LabelReader] == "" || c.State != container.StateCreated {
		return false
	}
	gone, _ := owner.Gone(c.Labels[owner.LabelOwner], time.Unix(c.Created, 0).Add(readerAge), now)
	return gone
}

// cleanupTime bounds cleaning up.
const cleanupTime = time.Minute

// Cleanup returns a context for cleaning up, which does not end with the caller's.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// Remove removes a name of an image, or an image by its ID. A missing one is not an error.
func (d Docker) Remove(ctx context.Context, ref string, opts image.RemoveOptions) error {
	_, err := d.ImageRemove(ctx, ref, opts)
	return IgnoreNotFound(err)
}

// RemoveUnused removes an image and its parents without a name, unless a container uses it.
func (d Docker) RemoveUnused(ctx context.Context, id string) error {
	err := d.Remove(ctx, id, image.RemoveOptions{PruneChildren: true})
	if errdefs.IsConflict(err) {
		return nil
	}
	return err
}

// IgnoreNotFound returns err, or nil if it is a "not found".
func IgnoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// noTag is the name that engines report for an image without one.
const noTag = "<none>:<none>"

// Tags returns the names of an image, without those that stand for none.
func Tags(img image.Summary) []string { return realNames(img.RepoTags, noTag) }

// Digests returns its names with digests.
func Digests(img image.Summary) []string { return realNames(img.RepoDigests, "<none>@<none>") }

func realNames(names []string, none string) []string {
	return slices.DeleteFunc(append([]string{}, names...), func(name string) bool { return name == none })
}

// errOver is the error of writing to a reader that has stopped.
var errOver = errors.New("the engine stopped reading")

// Pipe passes the output of write to read, without storing it, and returns when both have
// ended. A reader that fails ends the context of write, whose error is then nil.
func Pipe(ctx context.Context, write func(context.Context, io.Writer) error, read func(io.Reader) error) (writeErr, readErr error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	var failed atomic.Bool
	written := make(chan error, 1)
	go func() {
		err := write(ctx, pw)
		if failed.Load() {
			err = nil // a consequence
		}
		_ = pw.CloseWithError(err) // nil gives EOF; never fails
		written <- err
	}()
	// Without the Close method: the HTTP client would close it on an early answer.
	readErr = read(struct{ io.Reader }{pr})
	if readErr == nil {
		_, readErr = io.Copy(io.Discard, pr) // the engine may answer before it has read the padding
	}
	if readErr != nil {
		failed.Store(true)
		_ = pr.CloseWithError(errOver) // never fails
		cancel()
	}
	return <-written, readErr
}

// Named reports whether an image has a name.
func Named(img image.Summary) bool { return len(Tags(img))+len(Digests(img)) > 0 }

// Above returns the images without a name whose ancestor is base, and on which no named image
// is based; the last built first. Used reports whether a named image is based on base.
func Above(all []image.Summary, base string) (ids []string, used bool) {
	for _, img := range all {
		if img.ParentID != base {
			continue
		}
		above, usedAbove := Above(all, img.ID)
		ids = append(ids, above...)
		if usedAbove || Named(img) {
			used = true
		} else {
			ids = append(ids, img.ID)
		}
	}
	return ids, used
}
