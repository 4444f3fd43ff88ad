package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// Keys of the runner's log records.
const (
	logRun       = "run_id"
	logContainer = "container_id"
	logError     = "error"
	logGPUs      = "gpus"
)

// Runner runs programs on one engine. Its methods may be called concurrently.
type Runner struct {
	engine  engine.Engine
	catalog images.Catalog
	// lock is what images must be; nil for no rule.
	lock   *lock.Lock
	policy policy.Policy
	store  *record.Store
	log    *slog.Logger
	// gpuDir is where GPUs are leased; empty for a folder of the store.
	gpuDir string
	// launchWait bounds the wait for the launcher of an observed run.
	launchWait time.Duration

	// facts are what the engine last said of itself.
	factsMu sync.Mutex
	facts   engine.Info
	asked   time.Time // when they were last looked up
	told    time.Time // when the engine told them
	// apart says, by mount namespace, that the engine was seen not to share our files.
	apart map[string]bool
}

// Option configures a [Runner]; a value that makes no sense is refused.
type Option func(*Runner) error

// WithEngine sets the engine, such as docker.FromEnv of the package sandbox/engine/docker.
// It is required. The runner closes the engine.
func WithEngine(e engine.Engine) Option {
	return func(r *Runner) error {
		if e == nil {
			return errors.New("sandbox: nil engine")
		}
		r.engine = e
		return nil
	}
}

// WithCatalog sets the named images. Without one, images are named as the engine
// names them.
func WithCatalog(catalog images.Catalog) Option {
	return func(r *Runner) error {
		r.catalog = catalog
		return nil
	}
}

// WithLock sets what images must be: a run of another one is refused with an
// error that satisfies errors.Is with lock.ErrUnlocked, before anything is made,
// unless its request says AllowUnlocked. A lock without entries permits no image.
// Without this option any image runs, and no result says that its image is locked.
func WithLock(l lock.Lock) Option {
	return func(r *Runner) error {
		r.lock = &l
		return nil
	}
}

// WithPolicy sets what runs may do. The default is the zero [policy.Policy].
func WithPolicy(p policy.Policy) Option {
	return func(r *Runner) error {
		r.policy = p
		return nil
	}
}

// WithStateDir sets the folder of records and locks; see [record.DefaultDir].
func WithStateDir(dir string) Option {
	return func(r *Runner) (err error) {
		if dir == "" {
			return errors.New("sandbox: empty state folder")
		}
		r.store, err = record.Open(dir)
		return err
	}
}

// WithLogger sets where the steps of a run are logged, at level debug, and
// trouble that no caller hears of, at level warn. The default is silence. What a
// program prints is never logged.
func WithLogger(log *slog.Logger) Option {
	return func(r *Runner) error {
		if log == nil {
			return errors.New("sandbox: nil logger")
		}
		r.log = log
		return nil
	}
}

// New makes a runner. It does not talk to the engine yet.
func New(opts ...Option) (*Runner, error) {
	r := &Runner{log: slog.New(slog.DiscardHandler), launchWait: defaultLaunchWait}
	for _, opt := range opts {
		if err := opt(r); err != nil {
			return nil, err
		}
	}
	if r.engine == nil {
		return nil, errors.New("sandbox: no engine is given; use WithEngine, for example with docker.FromEnv()")
	}
	if r.store == nil {
		dir, err := record.DefaultDir()
		if err != nil {
			return nil, err
		}
		if r.store, err = record.Open(dir); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close waits until the containers of all runs are certain to be removed, and releases
// the engine's connections. Runs in flight fail.
func (r *Runner) Close() error { return r.engine.Close() }

// Store gives access to the records of runs.
func (r *Runner) Store() *record.Store { return r.store }

// Info describes the engine.
func (r *Runner) Info(ctx context.Context) (engine.Info, error) { return r.engine.Info(ctx) }

// Containers lists the containers of all runs on the engine, also of other
// controllers. One whose run has just got its result is about to be removed, which the
// engine was asked for, and is left out.
func (r *Runner) Containers(ctx context.Context) ([]engine.Found, error) {
	all, err := r.engine.List(ctx)
	return slices.DeleteFunc(all, func(c engine.Found) bool { return c.Labels[LabelPart] != "" || r.isGoing(c) }), err
}

// removalPatience is how long an engine may take for a removal that it was asked for.
const removalPatience = 30 * time.Second

// isGoing reports whether a container was asked to be removed a moment ago.
func (r *Runner) isGoing(c engine.Found) bool {
	if c.Labels[LabelKeep] == "true" {
		return false
	}
	written, err := os.Stat(filepath.Join(r.storeOf(c).RunsDir(), c.Labels[LabelRun], record.ResultFile))
	return err == nil && time.Since(written.ModTime()) < removalPatience
}

// ApplyTree applies what the program of a finished run changed in a tree to the host
// directory that the tree was copied from.
func (r *Runner) ApplyTree(ctx context.Context, id, target string, opts ApplyOptions) (TreeReport, error) {
	return applyRecorded(ctx, r.store, id, target, opts)
}

// Plan returns the Spec that [Runner.Run] would carry out, with the engine's
// facts and the image resolved. It changes nothing.
func (r *Runner) Plan(ctx context.Context, req Request) (Spec, error) {
	prepared, err := r.plan(ctx, req)
	return prepared.spec, err
}

// planned is a Spec with what was learned while planning.
type planned struct {
	request Request
	spec    Spec
	info    engine.Info
	// warnings are for the result.
	warnings []string
	gpus     gpu.Inventory
	pinned   []pinned
	// asked is the way of the files that the request named.
	asked string
}

// plan does the steps of a run that change nothing: paths, engine, plan, image.
func (r *Runner) plan(ctx context.Context, req Request) (planned, error) {
	if req.ID == "" {
		req.ID = record.NewID(time.Now())
	}
	if req.User == "" {
		req.User = defaultUser(os.Getuid(), os.Getgid())
	}
	req, pinned, err := resolveAll(ctx, req, r.store.Dir())
	if err != nil {
		return planned{}, err
	}
	if req.Image == "" && r.catalog.Default == "" {
		return planned{}, &policy.FieldError{Field: "image", Rule: "none is named, and there is no catalog with a default"}
	}
	info, image, err := r.ask(ctx, req.Image)
	if err == nil && req.GPUs != "" {
		// What is remembered may be older than a list of devices.
		info, err = r.engine.Info(ctx)
	}
	if err != nil {
		return planned{}, err
	}
	if len(info.Missing) > 0 {
		return planned{}, fmt.Errorf("%w: engine %s %s cannot apply %s", ErrUnenforceable, info.Name, info.Version, strings.Join(info.Missing, ", "))
	}
	asked := req.Transfer
	if req.Transfer, err = r.chooseTransfer(asked, info); err != nil {
		return planned{}, err
	}
	var hidden []string
	if req.Transfer == TransferBind {
		if err := checkEngineFolder(req, info.RootDir); err != nil {
			return planned{}, err
		}
		if req, hidden, err = hideSpecial(ctx, req); err != nil {
			return planned{}, err
		}
	}
	if req.Transfer != TransferBind {
		info.RootDir = "" // of another machine
	}
	if err := checkEngineSource(req, info.RootDir, info.Address); err != nil {
		return planned{}, err
	}
	req.Host = hostOf(info)
	locked, warnings, err := r.checkLock(image, req.AllowUnlocked)
	if err != nil {
		return planned{}, err
	}
	spec, err := Plan(req, r.policy)
	if err != nil {
		return planned{}, err
	}
	if finder, ok := r.engine.(engine.Networks); ok && spec.Class.Network != "none" {
		if err := finder.FindNetwork(ctx, spec.Class.Network); err != nil {
			return planned{}, err
		}
	}
	spec.Class.Image = Image{Reference: orDefault(image.Name, req.Image), ID: image.ID,
		Digest: image.Digest, Platform: image.Platform, Locked: locked}
	spec.Class.Runtime = orDefault(spec.Class.Runtime, info.Host.DefaultRuntime)
	gpus, err := r.gpusFor(ctx, spec.Class.GPUs, info)
	if err != nil {
		return planned{}, err
	}
	return planned{request: req, spec: spec, info: info, gpus: gpus, warnings: append(warnings, hidden...), pinned: pinned, asked: asked}, nil
}

// hostOf is what a plan needs to know of the engine's machine.
func hostOf(info engine.Info) Host {
	host := info.Host
	host.Unseen = unseen(info)
	return host
}

// checkLock says whether the image is the locked one. One that is not is an
// error, or a warning if the caller allows it.
func (r *Runner) checkLock(image images.Resolved, allow bool) (locked bool, warnings []string, err error) {
	if r.lock == nil {
		return false, nil, nil
	}
	switch err := r.lock.Check(image); {
	case err == nil:
		return true, nil, nil
	case allow:
		return false, []string{err.Error()}, nil
	default:
		return false, nil, err
	}
}

// ask puts the two questions of a plan to the engine, both at once. What is
// wrong with the engine is told before what is wrong with the image.
func (r *Runner) ask(ctx context.Context, ref string) (engine.Info, images.Resolved, error) {
	var (
		image    images.Resolved
		imageErr error
		asked    sync.WaitGroup
	)
	asked.Go(func() { image, imageErr = r.resolve(ctx, ref) })
	info, err := r.engineFacts(ctx)
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
		return r.engine.Resolve(ctx, ref)
	}
	image, err := r.engine.Resolve(ctx, entry.Tag())
	image.Name, image.CatalogName = orDefault(ref, r.catalog.Default), true
	if errors.Is(err, images.ErrNotFound) {
		err = &images.NotFoundError{Ref: image.Name, CatalogName: true, Entry: entry}
	}
	return image, err
}

// defaultUser is the caller, so that files in ./final are the caller's; never
// root, whose files and rights in a container are those of the host's root.
func defaultUser(uid, gid int) string {
	switch {
	case uid <= 0:
		return DedicatedUser
	case gid <= 0:
		return fmt.Sprintf("%d:%d", uid, dedicatedID)
	}
	return fmt.Sprintf("%d:%d", uid, gid)
}
