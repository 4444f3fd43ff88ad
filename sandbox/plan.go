package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/disk"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// Plan returns the Spec that [Runner.Run] would carry out, with the facts of the engine and
// the resolved image. It changes nothing.
func (r *Runner) Plan(ctx context.Context, req Request) (spec.Spec, error) {
	if err := r.isOpen(); err != nil {
		return spec.Spec{}, err
	}
	prepared, err := r.plan(ctx, req)
	return prepared.spec, err
}

// protected names the files that no program may see and no run may empty.
func (r *Runner) protected() hostpath.Protected {
	return hostpath.Protected{StateDir: r.store.Dir(), TempDir: r.store.TempDir(), OwnTemp: r.store.IsOwnTemp, Output: isOutput, Filled: r.filled}
}

// filled reports whether a run has filled a directory as its ./final.
func (r *Runner) filled(dir string) bool {
	last, next := stage.FilledLast(r.store, dir)
	return last != "" || next != ""
}

// planned is a Spec with everything that was found out for it.
type planned struct {
	request Request
	spec    spec.Spec
	info    engine.Info
	// warnings are for the result.
	warnings  []string
	inventory gpu.Inventory
	layout    spec.Layout
	verified  hostpath.Verified
	// asked is the transfer that the caller asked for; named says that the caller chose the ID.
	asked string
	named bool
	// more is that of [Hooks].
	more func() int
}

// plan does the steps of a run that change nothing: paths, engine, plan, image.
func (r *Runner) plan(ctx context.Context, req Request) (planned, error) {
	if req.ID == "" {
		req.ID = record.NewID(time.Now())
	}
	layout, verified, err := hostpath.Resolve(ctx, req, r.protected())
	if err != nil {
		return planned{}, err
	}
	if req.Image == "" && r.catalog.Default == "" {
		return planned{}, &policy.FieldError{Field: "image", Rule: "none is named, and there is no catalog with a default"}
	}
	info, image, err := r.ask(ctx, req.Image)
	if err == nil && req.GPUs != "" {
		// The cached facts may be older than the list of devices.
		info, err = r.engine.Info(ctx)
	}
	if err != nil {
		return planned{}, err
	}
	if len(info.Missing) > 0 {
		return planned{}, fmt.Errorf("%w: engine %s %s cannot apply %s", ErrUnenforceable, info.Name, info.Version, strings.Join(info.Missing, ", "))
	}
	asked := req.Transfer
	req.Transfer = r.facts.transfer(asked, info)
	rootIs, err := r.users.choose(&req, asked, info)
	if err != nil {
		return planned{}, err
	}
	root := info.RootDir
	if req.Transfer != spec.TransferBind {
		root = "" // of another machine
	}
	if err := hostpath.CheckEngine(layout, root, info.Address); err != nil {
		return planned{}, err
	}
	var hidden []string
	if req.Transfer == spec.TransferBind {
		if hidden, err = hostpath.HideSpecial(ctx, &layout); err != nil {
			return planned{}, err
		}
	}
	locked, warnings, err := checkLock(r.lock, image, req.AllowUnlocked)
	if refused, ok := errors.AsType[*lock.UnlockedError](err); ok {
		refused.Remote = r.images != nil
	}
	if err != nil {
		return planned{}, err
	}
	host := hostOf(info)
	host.RootIs = rootIs
	if r.policy.HardDisk {
		if err := disk.CanLoop(); err != nil {
			host.NoLoop = err.Error()
		}
	}
	s, err := plan.Plan(req, layout, r.policy, host)
	if err != nil {
		return planned{}, err
	}
	if finder, ok := r.engine.(engine.Networks); ok && s.Class.Network != "none" {
		if err := finder.FindNetwork(ctx, s.Class.Network); err != nil {
			return planned{}, err
		}
	}
	s.Class.Image = spec.Image{Reference: cmp.Or(image.Name, req.Image), ID: image.ID,
		Digest: image.Digest, Platform: image.Platform, Locked: locked}
	s.Class.Runtime = cmp.Or(s.Class.Runtime, info.Host.DefaultRuntime)
	gpus, err := r.gpusFor(ctx, s.Class.GPUs, info)
	if err != nil {
		return planned{}, err
	}
	return planned{request: req, spec: s, info: info, inventory: gpus, warnings: append(warnings, hidden...), layout: layout, verified: verified, asked: asked}, nil
}

// hostOf returns the properties of the engine's machine that a plan depends on.
func hostOf(info engine.Info) spec.Host {
	host := info.Host
	host.Unseen = observe.Unobservable(info)
	host.Seccomp, host.UserNamespace, host.LSM = info.Seccomp, info.UserNamespace, info.LSM != ""
	// The leases of this machine do not bind controllers of others.
	host.OwnUIDs = info.Local
	return host
}

// checkLock reports whether the image is the locked one. Another image is an error, or a
// warning if the caller allows it.
func checkLock(l *lock.Lock, image images.Resolved, allow bool) (locked bool, warnings []string, err error) {
	if l == nil {
		return false, nil, nil
	}
	switch err := l.Check(image); {
	case err == nil:
		return true, nil, nil
	case allow:
		return false, []string{err.Error()}, nil
	default:
		return false, nil, err
	}
}

// ask asks the engine for its facts and for the image, both at once. An error of the engine
// comes before one of the image.
func (r *Runner) ask(ctx context.Context, ref string) (engine.Info, images.Resolved, error) {
	var (
		image    images.Resolved
		imageErr error
		asked    sync.WaitGroup
	)
	asked.Go(func() {
		step := steps{tracer: tracerOf(ctx)}
		step.begin(StepImage)
		image, imageErr = r.resolve(ctx, ref)
		step.end(imageErr)
	})
	info, err := r.facts.get(ctx, r.engine)
	asked.Wait()
	if err == nil {
		err = imageErr
	}
	return info, image, err
}

// resolve finds an image that the engine has. The empty string is the default of the
// catalog; a name of the catalog wins over an equal reference.
func (r *Runner) resolve(ctx context.Context, ref string) (images.Resolved, error) {
	entry, named := r.catalog.Lookup(ref)
	if !named {
		return r.engine.Resolve(ctx, r.referenceOf(ref))
	}
	tag := entry.Tag()
	if r.images != nil {
		if tag = r.images[entry.Name]; tag == "" {
			return images.Resolved{}, &policy.FieldError{Field: "image", Value: fmt.Sprintf("%q", entry.Name),
				Rule: "is a name of the catalog, and the cluster has no image for it",
				Hint: "push it with: sandbox image push " + entry.Name + " REGISTRY/REPOSITORY; then give the reference that it prints with --image, or for every run in the setting kubernetes.images"}
		}
	}
	image, err := r.engine.Resolve(ctx, tag)
	image.Name, image.CatalogName = cmp.Or(ref, r.catalog.Default), true
	if errors.Is(err, images.ErrNotFound) {
		err = &images.NotFoundError{Ref: image.Name, CatalogName: true, Entry: entry}
	}
	return image, err
}

// referenceOf is the reference of an ID, which alone does not name an image of a cluster.
func (r *Runner) referenceOf(ref string) string {
	for _, reference := range r.images {
		if strings.HasPrefix(ref, "sha256:") && strings.HasSuffix(reference, "@"+ref) {
			return reference
		}
	}
	return ref
}

// isOutput reports whether a path of the state directory is an output of a run, and not
// another part of its record.
func isOutput(rel string) bool {
	parts := strings.Split(rel, "/")
	return len(parts) >= 3 && parts[0] == "runs" && (parts[2] == record.OwnFinal || parts[2] == record.KeptTrees && len(parts) >= 4)
}

// defaultUser is the caller, so that files in ./final are the caller's. It is never root: root
// in a container has the files and rights of the host's root.
func defaultUser(uid, gid int) string {
	switch {
	case uid <= 0:
		return spec.DedicatedUser
	case gid <= 0:
		return fmt.Sprintf("%d:%d", uid, spec.DedicatedID)
	}
	return fmt.Sprintf("%d:%d", uid, gid)
}
