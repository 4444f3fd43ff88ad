package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
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
	lock   *images.Lock
	policy policy.Policy
	store  *Store
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

// WithEngine sets the engine, such as that of a [docker.Endpoint]. The default is
// the Docker engine that the docker command would use here; see [docker.Address]. The
// runner closes it.
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
// error that satisfies errors.Is with images.ErrUnlocked, before anything is made,
// unless its request says AllowUnlocked. A lock without entries permits no image.
// Without this option any image runs, and no result says that its image is locked.
func WithLock(lock images.Lock) Option {
	return func(r *Runner) error {
		r.lock = &lock
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

// WithStateDir sets the folder of records and locks; see [DefaultStateDir].
func WithStateDir(dir string) Option {
	return func(r *Runner) (err error) {
		if dir == "" {
			return errors.New("sandbox: empty state folder")
		}
		r.store, err = OpenStore(dir)
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
	if r.store == nil {
		dir, err := DefaultStateDir()
		if err != nil {
			return nil, err
		}
		if r.store, err = OpenStore(dir); err != nil {
			return nil, err
		}
	}
	if r.engine == nil {
		endpoint, err := docker.FindEngine(docker.Address{})
		if err != nil {
			return nil, err
		}
		if r.engine, err = endpoint.Engine(docker.WithLogger(r.log)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close waits until the containers of all runs are certain to be removed, and releases
// the engine's connections. Runs in flight fail.
func (r *Runner) Close() error { return r.engine.Close() }

// Store gives access to the records of runs.
func (r *Runner) Store() *Store { return r.store }

// Info describes the engine.
func (r *Runner) Info(ctx context.Context) (engine.Info, error) { return r.engine.Info(ctx) }

// Containers lists the containers of all runs on the engine, also of other
// controllers. One whose run has just got its result is about to be removed, which the
// engine was asked for, and is left out.
func (r *Runner) Containers(ctx context.Context) ([]engine.Found, error) {
	all, err := r.engine.List(ctx)
	return slices.DeleteFunc(all, func(c engine.Found) bool { return c.Labels[spec.LabelPart] != "" || r.isGoing(c) }), err
}

// removalPatience is how long an engine may take for a removal that it was asked for.
const removalPatience = 30 * time.Second

// isGoing reports whether a container was asked to be removed a moment ago.
func (r *Runner) isGoing(c engine.Found) bool {
	if c.Labels[spec.LabelKeep] == "true" {
		return false
	}
	written, err := os.Stat(filepath.Join(r.storeOf(c).runsDir(), c.Labels[spec.LabelRun], resultFile))
	return err == nil && time.Since(written.ModTime()) < removalPatience
}

// Plan returns the Spec that [Runner.Run] would carry out, with the engine's
// facts and the image resolved. It changes nothing.
func (r *Runner) Plan(ctx context.Context, req Request) (spec.Spec, error) {
	prepared, err := r.plan(ctx, req)
	return prepared.spec, err
}

// planned is a Spec with what was learned while planning.
type planned struct {
	request Request
	spec    spec.Spec
	info    engine.Info
	// warnings are for the result.
	warnings []string
	gpus     gpu.Inventory
	layout   spec.Layout
	verified hostpath.Verified
	// asked is the way of the files that the request named.
	asked string
}

// plan does the steps of a run that change nothing: paths, engine, plan, image.
func (r *Runner) plan(ctx context.Context, req Request) (planned, error) {
	if req.ID == "" {
		req.ID = newID(time.Now())
	}
	if req.User == "" {
		req.User = defaultUser(os.Getuid(), os.Getgid())
	}
	layout, verified, err := hostpath.Resolve(ctx, req, hostpath.Protected{StateDir: r.store.dir, Output: isOutput})
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
	req.Transfer = r.chooseTransfer(asked, info)
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
	locked, warnings, err := r.checkLock(image, req.AllowUnlocked)
	if err != nil {
		return planned{}, err
	}
	s, err := plan.Plan(req, layout, r.policy, hostOf(info))
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
	return planned{request: req, spec: s, info: info, gpus: gpus, warnings: append(warnings, hidden...), layout: layout, verified: verified, asked: asked}, nil
}

// hostOf is what a plan needs to know of the engine's machine.
func hostOf(info engine.Info) spec.Host {
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
	asked.Go(func() { image, imageErr = r.engine.Resolve(ctx, r.catalog, ref) })
	info, err := r.engineFacts(ctx)
	asked.Wait()
	if err == nil {
		err = imageErr
	}
	return info, image, err
}

// isOutput reports whether a path of the state directory is what a run left behind, and
// nothing else of its record.
func isOutput(rel string) bool {
	parts := strings.Split(rel, "/")
	return len(parts) >= 3 && parts[0] == "runs" && (parts[2] == ownFinal || parts[2] == keptTrees && len(parts) >= 4)
}

// defaultUser is the caller, so that files in ./final are the caller's; never
// root, whose files and rights in a container are those of the host's root.
func defaultUser(uid, gid int) string {
	switch {
	case uid <= 0:
		return spec.DedicatedUser
	case gid <= 0:
		return fmt.Sprintf("%d:%d", uid, spec.DedicatedID)
	}
	return fmt.Sprintf("%d:%d", uid, gid)
}

// newID makes an ID that sorts by time and is unique on any number of hosts.
func newID(now time.Time) string {
	var random [5]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(err) // crypto/rand never fails since Go 1.24
	}
	return now.UTC().Format("20060102t150405") + "-" + hex.EncodeToString(random[:])
}
