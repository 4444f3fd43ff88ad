package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/recover"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Errors of runs, for errors.Is. Those of records are in package record.
var (
	// ErrEngineUnavailable means that the engine cannot be reached.
	ErrEngineUnavailable = engine.ErrUnavailable
	// ErrEnginePermission means that the engine denied access. It is an
	// ErrEngineUnavailable as well.
	ErrEnginePermission = engine.ErrPermission
	// ErrNameTaken means that the engine has a container with the name of this run.
	ErrNameTaken = engine.ErrNameTaken
	// ErrUnenforceable means that the engine cannot enforce a limit that every run has.
	ErrUnenforceable = engine.ErrUnenforceable
	// ErrClosed means that the runner is closed.
	ErrClosed = recover.ErrClosed
	// ErrBusy means that another run uses the same ./final.
	ErrBusy = stage.ErrBusy
	// ErrUnobserved means that an observation that the request requires is not possible;
	// the program did not start. See [Observe].
	ErrUnobserved = observe.ErrUnobserved
)

// Keys of the runner's log records.
const (
	logRun       = "run_id"
	logContainer = "container_id"
	logError     = "error"
	logGPUs      = "gpus"
	logUser      = "user"
)

// Runner runs programs on one engine. Its methods may be called concurrently.
type Runner struct {
	engine engine.Engine
	// open opens the engine if no option gives one. connect is its way to a cluster; nil for none.
	open    func(connect engine.Connector) (engine.Engine, error)
	connect engine.Connector
	catalog images.Catalog
	// images are the engine's references for names of the catalog; nil for the tags of the catalog.
	images map[string]string
	// lock pins the images; nil permits all.
	lock   *lock.Lock
	policy policy.Policy
	store  *record.Store
	log    *slog.Logger
	// gpuDir is the directory of GPU leases; empty for a directory of the store.
	gpuDir string
	users  users
	// observeWait bounds the wait for the start of an observation.
	observeWait time.Duration
	facts       factCache
	// recovery finishes what dead controllers have left; behind does so behind the runs of this one.
	recovery     *recover.Recovery
	behind       *recover.Behind
	lookedBehind atomic.Pointer[time.Time]
	pool         pool
	// keeper says that the keeper of the state directory is asked for containers.
	keeper bool
	// taken has the IDs of the runs of dead controllers whose results were returned for a
	// [Work]: a job that tries again after such a result gets a run of its own. They are forgotten at the
	// end of their job.
	taken sync.Map
	// closed says that Close was called; closing does its work once.
	closed  atomic.Bool
	closing func() error
	// at, for tests, is called at each step of a run.
	at func(step string, a *run)
}

// Option configures a [Runner]. An invalid value is an error of [New].
type Option func(*Runner) error

// WithEngine sets the engine, such as docker.FromEnv of the package sandbox/engine/docker.
// It is required. The runner closes the engine, and one that a later option replaces.
func WithEngine(e engine.Engine) Option {
	return func(r *Runner) error {
		if e == nil {
			return errors.New("sandbox: nil engine")
		}
		if r.engine != nil {
			if err := r.engine.Close(); err != nil {
				return err
			}
		}
		r.engine = e
		return nil
	}
}

// WithEngineFrom sets how [New] opens the engine if no option gives one. open gets what
// [WithKubernetes] gives, or nil.
func WithEngineFrom(open func(connect engine.Connector) (engine.Engine, error)) Option {
	return func(r *Runner) error {
		r.open = open
		return nil
	}
}

// WithKubernetes lets the settings of evalbox.New choose a cluster. connect is Connect of the package
// sandbox/engine/kubernetes, without which a program is about half as large. The option alone chooses nothing:
// for a cluster whatever the settings say, give [WithEngine] what Connect returns.
func WithKubernetes(connect engine.Connector) Option {
	return func(r *Runner) error {
		r.connect = connect
		return nil
	}
}

// WithCatalog sets the named images. Without it, images only have the names of the engine.
func WithCatalog(catalog images.Catalog) Option {
	return func(r *Runner) error {
		r.catalog = catalog
		return nil
	}
}

// WithImages sets the references of an engine that does not have the tags of the catalog, by the name
// in the catalog. A run that asks for another name is refused.
func WithImages(references map[string]string) Option {
	return func(r *Runner) error {
		r.images = map[string]string{}
		maps.Copy(r.images, references)
		return nil
	}
}

// WithLock pins the images. A run of another image is refused with a [lock.ErrUnlocked],
// before anything is made, unless its request says AllowUnlocked. A lock without entries
// permits no image. Without this option any image runs, and no result says that its image
// is locked.
func WithLock(l lock.Lock) Option {
	return func(r *Runner) error {
		r.lock = &l
		return nil
	}
}

// WithPolicy sets the limits of runs. The default is the zero [policy.Policy].
func WithPolicy(p policy.Policy) Option {
	return func(r *Runner) error {
		r.policy = p
		return nil
	}
}

// WithStateDir sets the directory of records and locks; see [record.Open]. The default is
// [record.DefaultDir].
func WithStateDir(dir string) Option {
	return func(r *Runner) (err error) {
		if dir == "" {
			return errors.New("sandbox: empty state directory")
		}
		r.store, err = record.Open(dir)
		return err
	}
}

// WithLogger sets the logger. Steps of a run have level debug. Problems that are in no result
// and no error have level warn. By default nothing is logged. The output of a program is
// never logged.
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
	r := &Runner{log: slog.New(slog.DiscardHandler), users: users{caller: os.Getuid(), dir: uidDir()}, behind: recover.NewBehind(), observeWait: observe.DefaultWait}
	for _, opt := range opts {
		if err := opt(r); err != nil {
			return nil, err
		}
	}
	if r.engine == nil && r.open == nil {
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
	if r.engine == nil {
		var err error
		if r.engine, err = r.open(r.connect); err != nil {
			return nil, err
		}
	}
	r.facts.log, r.pool.runner = r.log, r
	r.recovery = &recover.Recovery{Store: r.store, Engine: r.engine, Log: r.log, Free: r.free}
	r.closing = sync.OnceValue(func() error {
		r.behind.Close()
		r.pool.close()
		return r.engine.Close()
	})
	return r, nil
}

// Close waits until the containers of all runs are certain to be removed, and releases
// the engine's connections. Runs in flight fail, and later ones are [ErrClosed]: end the runs
// first. Close may be called several times, also concurrently. Each call waits for the first one,
// and returns its error.
func (r *Runner) Close() error {
	r.closed.Store(true)
	return r.closing()
}

// isOpen returns [ErrClosed] once the runner is closed.
func (r *Runner) isOpen() error {
	if r.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Store returns the records of runs.
func (r *Runner) Store() *record.Store { return r.store }

// Info describes the engine.
func (r *Runner) Info(ctx context.Context) (engine.Info, error) { return r.engine.Info(ctx) }

// Containers lists the containers of all runs on the engine, also of other controllers. It
// leaves out a container whose run has just got its result: the engine is removing it; and one that
// waits for its run in a [Pool]. One that has waited has no labels of the caller.
func (r *Runner) Containers(ctx context.Context) ([]engine.Found, error) {
	all, err := r.engine.List(ctx)
	all = slices.DeleteFunc(all, func(c engine.Found) bool {
		return c.Labels[spec.LabelPart] != "" || r.isGoing(c) || r.recovery.StoreOf(c).IsWaiting(c.Labels[spec.LabelRun])
	})
	for _, c := range all {
		if c.Labels[spec.LabelName] != "" {
			continue
		}
		if found, err := r.recovery.StoreOf(c).Load(c.Labels[spec.LabelRun]); err == nil && found.Spec.Job.Name != "" {
			c.Labels[spec.LabelName] = found.Spec.Job.Name // the container has waited for its run
		}
	}
	return all, err
}

// removalPatience is how long an engine may take for a requested removal.
const removalPatience = 30 * time.Second

// isGoing reports whether the removal of a container was requested a moment ago.
func (r *Runner) isGoing(c engine.Found) bool {
	if c.Labels[spec.LabelKeep] == "true" {
		return false
	}
	written, err := os.Stat(filepath.Join(r.recovery.StoreOf(c).RunsDir(), c.Labels[spec.LabelRun], record.ResultFile))
	return err == nil && time.Since(written.ModTime()) < removalPatience
}

// ApplyTree applies the changes of a finished run in a tree to the host directory that the
// tree was copied from.
func (r *Runner) ApplyTree(ctx context.Context, id, target string, opts tree.ApplyOptions) (tree.Report, error) {
	return tree.Apply(ctx, r.store, id, target, opts)
}

// ClearFinal empties a ./final as [EmptyFinal] does right before a start, without a run: outputs
// of an earlier run are deleted, and anything else is moved to a directory beside it, which
// the warning names. The ./final that the run keep filled last stays as it is. One that
// does not exist is empty. One that a run is using is [ErrBusy].
func (r *Runner) ClearFinal(ctx context.Context, final, keep string) (warning string, err error) {
	path, err := stage.ResolveFinal(final)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = r.protected().CheckLinks("final", final)
	}
	if err != nil {
		return "", err
	}
	if err := r.store.Prepare(); err != nil {
		return "", err
	}
	if last, _ := stage.FilledLast(r.store, path); keep != "" && last == keep {
		return "", nil
	}
	if err := r.recoverFinal(ctx, path); err != nil {
		return "", err
	}
	return stage.Clear(ctx, r.store, path)
}

// Record returns the record of a run; see [record.Store.Get].
func (r *Runner) Record(id string) (record.Record, error) { return r.store.Get(id) }

// LeftBy returns the run whose outputs a ./final holds: all of them, unchanged, and nothing
// else, by its record. It is empty if there is no such run.
func (r *Runner) LeftBy(ctx context.Context, final string) string {
	path, err := stage.ResolveFinal(final)
	if err != nil {
		return ""
	}
	return stage.LeftBy(ctx, r.store, path)
}
