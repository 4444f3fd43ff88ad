package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// Pool bounds the containers that a [Runner] prepares ahead. Each of them waits for one run, has it,
// and is removed: no two programs share a container.
//
// After a run, the runner prepares containers for runs of the same class: those that agree on the
// image, the limits, the user, the network, the runtime, the paths in the container, and the
// directories that are mounted there. The file name of the script is one of those paths. Such a run
// starts in the time that its program needs, and has the same result as one that creates its
// container.
type Pool struct {
	// Size is the most containers that wait at once; 0 means none.
	Size int
	// Memory bounds the memory of the waiting containers together, as their kernel counts it,
	// in bytes; 0 means [DefaultPoolMemory].
	Memory int64
	// Age is how long a container waits at most before another one takes its place, and for how
	// long a class that is not used any more has containers; 0 means [DefaultPoolAge].
	Age time.Duration
}

// Defaults of a [Pool].
const (
	DefaultPoolMemory = 1 << 30
	DefaultPoolAge    = 10 * time.Minute
)

// WithPool makes the runner prepare containers ahead. The default is none.
func WithPool(p Pool) Option {
	return func(r *Runner) error {
		if p.Size < 0 || p.Memory < 0 || p.Age < 0 {
			return &policy.FieldError{Field: "pool", Rule: "has a negative bound"}
		}
		p.Memory, p.Age = cmp.Or(p.Memory, DefaultPoolMemory), cmp.Or(p.Age, DefaultPoolAge)
		r.pool.bounds = p
		return nil
	}
}

// PoolStatus says what a pool has.
type PoolStatus struct {
	// Waiting is the number of containers that wait for a run; Memory is what they use, in
	// bytes.
	Waiting int   `json:"waiting"`
	Memory  int64 `json:"memory_bytes"`
	// Taken counts the runs that took a container, Cold those that created their own although
	// the pool is for them as well.
	Taken int `json:"taken"`
	Cold  int `json:"cold"`
	// Problem is why the last container could not be prepared; empty if it could.
	Problem string `json:"problem,omitempty"`
}

// pool is the containers of a runner that wait for runs. Its methods may be called concurrently.
type pool struct {
	runner *Runner
	bounds Pool

	mu      sync.Mutex
	classes []*poolClass // the one that was used last comes first
	// rejected are containers that nobody can use, or that could not be removed yet.
	rejected []*waiting
	status   PoolStatus
	// filling is closed when the goroutine that prepares containers has ended; nil if there is
	// none. stop ends it, and wake tells it that there may be something to do.
	filling chan struct{}
	stop    context.CancelFunc
	wake    chan struct{}
	closed  bool
	// changed is closed and replaced when a container is waiting, when one could not be prepared,
	// and when nothing is left to prepare: then full is as high as asked was.
	changed chan struct{}
	// making is the class that a container is being prepared for; awaited says that a run waits
	// for that one.
	making      *poolClass
	awaited     bool
	asked, full int
}

// poolClass is the containers for runs of one class.
type poolClass struct {
	key string // does not change
	// plan is that of the last run of the class.
	plan    planned
	limit   time.Duration
	used    time.Time
	waiting []*waiting
	// memory is that of one waiting container; 0 until the first one was measured.
	memory int64
	// failed is the last error; the next run of the class tries again.
	failed error
}

// waiting is a container that waits for its run.
type waiting struct {
	id        string
	container engine.Container
	user      string
	lease     *uid.Lease // nil if runs share a user
	made      time.Time
	// until is the deadline in its labels: its run must end before.
	until  time.Time
	memory int64
	// copied says that it has a volume for the files of its run.
	copied bool
	// last says that no other one of its class was waiting when it was taken.
	last bool
}

// lasts reports whether a run that takes at most as long as limit is over before the deadline.
func (w *waiting) lasts(limit time.Duration) bool { return time.Now().Add(limit).Before(w.until) }

// notPooled says why a run cannot have a container that has waited; empty if it can. A container
// that waits holds nothing that others need, and has nothing that is the run's alone.
func (r *Runner) notPooled(p planned) string {
	class, job := p.spec.Class, p.spec.Job
	copied := class.Transfer == spec.TransferCopy
	switch {
	case copied && !p.info.Refills:
		return "its files are copied to the engine"
	case class.GPUs.Any():
		return "it has GPUs"
	case len(job.Trees) > 0:
		return "it has working copies"
	case job.Egress != nil:
		return "it has a proxy"
	case job.Observe != nil:
		return "it is observed"
	case job.DiskBound == spec.DiskLoop:
		return "it has a file system of its own"
	case job.Keep:
		return "its container is kept"
	case p.named:
		return "its ID was chosen by the caller"
	case copied:
		return "" // its ./final is on the engine
	}
	if !stage.InRecord(r.store, job.Final) {
		return "its ./final is on another mount than the state directory"
	}
	return ""
}

// poolKey identifies the class of a run: everything that is fixed when its container is created,
// with the identity of the mounted files, and what was run in it before. Files that are copied come
// with the run: there the kind of each mount is fixed, and the size of the volume.
func poolKey(p planned) (string, error) {
	type source struct {
		spec.HostMount
		Device, Inode uint64
	}
	mounts := p.spec.Job.Mounts
	if p.spec.Job.Input != "" {
		mounts = append([]spec.HostMount{{Source: p.spec.Job.Input, Target: spec.InputDir}}, mounts...)
	}
	var sources []source
	for _, m := range mounts {
		var stat unix.Stat_t
		if err := unix.Stat(m.Source, &stat); err != nil {
			return "", &os.PathError{Op: "stat", Path: m.Source, Err: err}
		}
		sources = append(sources, source{m, uint64(stat.Dev), stat.Ino}) //nolint:unconvert // int32 on some platforms
	}
	fixed := []any{engine.ClassHash(p.spec.Class), p.info.ID, sources, warmUp(p)}
	if p.spec.Class.Transfer == spec.TransferCopy {
		var dirs []bool
		for _, m := range p.spec.Job.Mounts {
			dirs = append(dirs, fsx.IsDir(m.Source))
		}
		fixed[2] = []any{dirs, p.spec.Job.DiskBytes}
	}
	text, err := json.Marshal(fixed)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// takeWaiting gives the run a container that waits for one of its class, if there is one. The run
// then has the ID of the container. Otherwise its warnings say why not, if the pool is on.
func (a *run) takeWaiting(ctx context.Context) {
	p := &a.runner.pool
	var w *waiting
	switch {
	case p.bounds.Size > 0:
		if a.cold = a.runner.notPooled(a.planned); a.cold != "" {
			return
		}
		key, err := poolKey(a.planned)
		if err != nil {
			return // the run will say so
		}
		if w = p.take(ctx, a.limit(), key, a.planned, a.limit()+a.slack()); w == nil {
			a.cold = errNoneWaits
		}
	case a.runner.keeper && a.info.Local:
		w, a.cold = a.askKeeper(ctx)
	}
	if w == nil {
		return
	}
	a.spec.Job.RunID, a.request.ID = w.id, w.id
	a.spec.Class.User, a.uid, a.container, a.waited, a.spare = w.user, w.lease, w.container, true, !w.last
	a.log = a.runner.log.With(logRun, w.id, logContainer, w.container.Ref().ID)
	a.log.Debug("took a container that was waiting")
}

// errNoneWaits is why a run has no container that waited, usually.
const errNoneWaits = "no container of its class was waiting"

// dropWaiting gives up the container of a run that could not be staged.
func (a *run) dropWaiting(ctx context.Context) error {
	if !a.waited {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
	defer cancel()
	err := a.container.Remove(ctx)
	if a.spec.Class.Transfer == spec.TransferCopy {
		err = errors.Join(err, stage.RemoveVolume(ctx, a.runner.engine, a.spec.Job.RunID))
	}
	err = errors.Join(err, a.runner.store.Unreserve(a.spec.Job.RunID))
	a.left = err != nil
	return err
}

// lookPatience is how long the init of a waiting container may take to answer. Only one that was
// paused takes longer on a machine that works.
const lookPatience = 2 * time.Second

// take takes a waiting container that is as it should be, for a run that takes at most as long as
// limit. It removes those that are not. For one that is being prepared it waits as long as patience.
func (p *pool) take(ctx context.Context, patience time.Duration, key string, plan planned, limit time.Duration) *waiting {
	for {
		w, soon := p.next(key, plan, limit)
		if soon != nil {
			select {
			case <-soon:
				continue
			case <-time.After(patience):
			case <-ctx.Done():
			}
		}
		if w == nil {
			p.count(func(s *PoolStatus) { s.Cold++ })
			return nil
		}
		err := w.check(ctx, plan.spec.Class)
		if err == nil {
			p.count(func(s *PoolStatus) { s.Taken++ })
			return w
		}
		p.runner.log.Debug("a waiting container is not as it should be", logRun, w.id, logError, err)
		bad := []*waiting{w}
		silent := errors.Is(err, context.DeadlineExceeded)
		if silent && ctx.Err() == nil {
			bad = append(bad, p.drop(key)...) // what happened to this one may have happened to all
		}
		for _, w := range bad {
			p.reject(w)
		}
		if silent || ctx.Err() != nil {
			p.count(func(s *PoolStatus) { s.Cold++ })
			return nil
		}
	}
}

// reject has a container removed in the background, so that the run does not wait for that.
func (p *pool) reject(w *waiting) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.rejected = append(p.rejected, w)
	}
	p.mu.Unlock()
	if closed {
		p.discard(w)
	}
}

// check compares a waiting container with its class, and with what it was when it was prepared:
// somebody else may have changed its limits.
func (w *waiting) check(ctx context.Context, class spec.Class) error {
	before := w.container.Ready()
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	now, err := w.container.Look(ctx)
	if err != nil {
		return err
	}
	class.User = w.user
	if err := engine.CheckReady(class, now); err != nil {
		return err
	}
	if now.Cgroup != before.Cgroup || !slices.Equal(now.Interfaces, before.Interfaces) || !slices.Equal(now.Mounts, before.Mounts) {
		return errors.New("its limits, its network or its mounts were changed")
	}
	return nil
}

// drop takes all containers of a class from the pool. The caller removes them.
func (p *pool) drop(key string) (all []*waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.classes, func(c *poolClass) bool { return c.key == key }); i >= 0 {
		all, p.classes[i].waiting = p.classes[i].waiting, nil
	}
	return all
}

func (p *pool) count(change func(*PoolStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.status)
}

// use notes that a class is used, and returns it. The lock is held.
func (p *pool) use(key string, plan planned, limit time.Duration) *poolClass {
	i := slices.IndexFunc(p.classes, func(c *poolClass) bool { return c.key == key })
	c := &poolClass{key: key}
	if i >= 0 {
		c = p.classes[i]
		p.classes = slices.Delete(p.classes, i, i+1)
	}
	p.classes = slices.Insert(p.classes, 0, c)
	c.plan, c.limit, c.used, c.failed = plan, max(c.limit, limit), time.Now(), nil
	return c
}

// next takes the oldest container of a class from the pool, and notes that the class is used. If one
// is being prepared, and nobody waits for it, soon is closed when it is ready: that takes less time than
// to prepare another one.
func (p *pool) next(key string, plan planned, limit time.Duration) (w *waiting, soon <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	c := p.use(key, plan, limit)
	for n, w := range c.waiting {
		if time.Since(w.made) < p.bounds.Age && w.lasts(limit) {
			c.waiting = slices.Delete(c.waiting, n, n+1)
			w.last = len(c.waiting) == 0
			return w, nil
		}
	}
	if p.making == c && !p.awaited {
		p.awaited = true
		return nil, p.change()
	}
	return nil, nil
}

// refill prepares containers in the background.
func (p *pool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bounds.Size == 0 || p.closed || len(p.classes) == 0 {
		return
	}
	if p.filling == nil {
		ctx, stop := context.WithCancel(context.Background())
		p.filling, p.stop, p.wake = make(chan struct{}), stop, make(chan struct{}, 1)
		go p.fill(ctx, p.wake, p.filling)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// fill prepares one container after the other, and removes those that are too old, until ctx ends.
func (p *pool) fill(ctx context.Context, wake <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		next := p.todo()
		for _, w := range next.old {
			p.discard(w)
		}
		p.prepares(next.class)
		if next.class == nil {
			p.rest(next.asked)
			select {
			case <-ctx.Done():
			case <-wake:
			case <-time.After(max(p.bounds.Age/8, minPoolTick)):
			}
			continue
		}
		w, err := p.runner.prepareWaiting(ctx, next.class.key, next.plan, next.limit)
		if err != nil {
			p.runner.log.Debug("no container could be prepared ahead", logError, err)
		} else if w.memory = next.memory; w.memory == 0 {
			w.measure(ctx)
		}
		if p.put(next.class, w, err) {
			continue
		}
		p.discard(w)
	}
}

// minPoolTick is how often the ages of the containers are looked at, at most.
const minPoolTick = 100 * time.Millisecond

// poolWork is what the pool does next.
type poolWork struct {
	// class is what the next container is for, nil if there are enough; plan and limit are its own.
	class *poolClass
	plan  planned
	limit time.Duration
	// memory is that of the other containers of the class; 0 if it is not known.
	memory int64
	// old are the containers that are removed before.
	old   []*waiting
	asked int
}

// todo decides what to do next. Classes that were used lately share the pool.
func (p *pool) todo() poolWork {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	total := 0
	old := p.rejected
	p.rejected = nil
	most := map[*poolClass]int{} // of the classes that containers are prepared for
	var active []*poolClass
	for _, c := range p.classes {
		c.waiting = slices.DeleteFunc(c.waiting, func(w *waiting) bool {
			out := now.Sub(w.made) >= p.bounds.Age || now.Sub(c.used) >= p.bounds.Age || !w.lasts(c.limit)
			if out {
				old = append(old, w)
			}
			return out
		})
		total += len(c.waiting)
		if most[c] = p.bounds.Size; c.plan.more != nil {
			most[c] = min(p.bounds.Size, c.plan.more())
		}
		if now.Sub(c.used) < p.bounds.Age && c.failed == nil && len(active) < p.bounds.Size && most[c] > 0 {
			active = append(active, c)
		}
	}
	p.classes = slices.DeleteFunc(p.classes, func(c *poolClass) bool { return now.Sub(c.used) >= p.bounds.Age && len(c.waiting) == 0 })
	shares := map[*poolClass]int{}
	for i, c := range active {
		shares[c] = p.bounds.Size / len(active)
		if i < p.bounds.Size%len(active) {
			shares[c]++
		}
		shares[c] = min(shares[c], most[c])
	}
	surplus := func(c *poolClass) int { return len(c.waiting) - shares[c] }
	for _, c := range active {
		switch {
		case surplus(c) >= 0:
			continue
		case total >= p.bounds.Size: // another class has more than its share
			rich := slices.MaxFunc(p.classes, func(a, b *poolClass) int { return surplus(a) - surplus(b) })
			old = append(old, rich.waiting[0])
			rich.waiting = rich.waiting[1:]
			total--
		}
		if used, largest := p.memory(); used+largest > p.bounds.Memory {
			c.failed = errPoolMemory
			p.status.Problem = errPoolMemory.Error()
			continue
		}
		return poolWork{class: c, plan: c.plan, limit: c.limit, memory: c.memory, old: old}
	}
	return poolWork{old: old, asked: p.asked}
}

// prepares notes the class of the container that is prepared now; nil if none is.
func (p *pool) prepares(class *poolClass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making = class
}

// rest notes that nothing is left to do for those who had asked.
func (p *pool) rest(asked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = asked
	p.notify()
}

// change returns a channel that is closed when the pool has changed. The lock is held.
func (p *pool) change() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// notify tells those who wait that the pool has changed. The lock is held.
func (p *pool) notify() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

var errPoolMemory = errors.New("the waiting containers use all the memory that the pool may have")

// memory is the memory of the waiting containers, and that of the largest. The lock is held.
func (p *pool) memory() (sum, largest int64) {
	for _, c := range p.classes {
		for _, w := range c.waiting {
			sum, largest = sum+w.memory, max(largest, w.memory)
		}
	}
	return sum, largest
}

// put adds a container that waits now. It is false if that must be discarded.
func (p *pool) put(class *poolClass, w *waiting, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making, p.awaited = nil, false
	if p.closed && err == nil {
		return false
	}
	if used, _ := p.memory(); err == nil && used+w.memory > p.bounds.Memory {
		err = errPoolMemory
	}
	p.status.Problem = ""
	if err != nil {
		class.failed, p.status.Problem = err, err.Error()
	} else {
		class.waiting, class.memory = append(class.waiting, w), w.memory
	}
	p.notify()
	return err == nil || w == nil
}

// discard removes a container that gets no run, and everything that it has. One that cannot be removed
// now is removed later, at the latest when the pool is closed.
func (p *pool) discard(w *waiting) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
	defer cancel()
	// Nobody waits for a result here, so this waits until the container is gone.
	err := errors.Join(w.container.Remove(ctx), p.runner.engine.Remove(ctx, w.container.Ref().ID))
	if w.copied {
		err = errors.Join(err, stage.RemoveVolume(ctx, p.runner.engine, w.id))
	}
	p.mu.Lock()
	later := err != nil && !p.closed
	if later {
		p.rejected = append(p.rejected, w)
	}
	p.mu.Unlock()
	if later {
		p.runner.log.Debug("a waiting container could not be removed yet", logRun, w.id, logError, err)
		return
	}
	gone := err == nil
	if gone { // else its directory leads the next run to it
		err = p.runner.store.Unreserve(w.id)
	}
	if err = errors.Join(err, giveBackUID(w.lease, gone)); err != nil {
		p.runner.log.Warn("a waiting container was left behind", logRun, w.id, logError, err)
	}
}

// yield removes the waiting container that a run is least likely to need, because a run needs what it
// holds. It is false if none is waiting.
func (p *pool) yield() bool {
	p.mu.Lock()
	var w *waiting
	for _, c := range slices.Backward(p.classes) {
		if len(c.waiting) > 0 {
			w, c.waiting = c.waiting[0], c.waiting[1:]
			break
		}
	}
	p.mu.Unlock()
	if w != nil {
		p.discard(w)
	}
	return w != nil
}

// close removes all waiting containers. Nobody takes one any more.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.notify()
	filling, stop := p.filling, p.stop
	p.mu.Unlock()
	if filling == nil {
		return
	}
	stop()
	<-filling
	p.mu.Lock()
	var discards sync.WaitGroup
	all := p.rejected
	for _, c := range p.classes {
		all = append(all, c.waiting...)
	}
	p.classes, p.rejected = nil, nil
	p.mu.Unlock()
	for _, w := range all {
		discards.Go(func() { p.discard(w) })
	}
	discards.Wait()
}

// Warm prepares containers for requests like this one, and returns when n of them are waiting, or
// as many as the pool may have. It is an error if this request cannot have a container that has
// waited.
func (r *Runner) Warm(ctx context.Context, req Request, n int) error {
	p := &r.pool
	if p.bounds.Size == 0 {
		return errors.New("sandbox: the runner has no pool; use WithPool")
	}
	plan, err := r.plan(ctx, req)
	if err != nil {
		return err
	}
	if reason := r.notPooled(plan); reason != "" {
		return fmt.Errorf("sandbox: no container can wait for this run: %s", reason)
	}
	key, err := poolKey(plan)
	if err != nil {
		return err
	}
	p.mu.Lock()
	c := p.use(key, plan, 2*programLimit(plan.spec.Job)+plan.slack()) // the run may wait for its admission
	p.mu.Unlock()
	return p.settle(ctx, func() (bool, error) {
		if c.failed != nil {
			return true, fmt.Errorf("preparing a container ahead: %w", c.failed)
		}
		good := 0
		for _, w := range c.waiting {
			if w.lasts(c.limit) {
				good++
			}
		}
		return good >= n, nil
	})
}

// settle prepares containers until enough says so, or the pool needs no more. enough is called with
// the lock held.
func (p *pool) settle(ctx context.Context, enough func() (bool, error)) error {
	p.mu.Lock()
	p.asked++
	asked := p.asked
	p.mu.Unlock()
	for {
		p.refill()
		p.mu.Lock()
		done, err := enough()
		changed, closed, full := p.change(), p.closed, p.full >= asked
		p.mu.Unlock()
		switch {
		case closed:
			return errors.New("sandbox: the runner is closed")
		case done || full:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// PoolStatus says what the pool has.
func (r *Runner) PoolStatus() PoolStatus {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	s := r.pool.status
	for _, c := range r.pool.classes {
		s.Waiting += len(c.waiting)
	}
	s.Memory, _ = r.pool.memory()
	return s
}

// prepareWaiting prepares one container for runs like a plan, whose class has this key. After an error
// nothing is left behind.
func (r *Runner) prepareWaiting(ctx context.Context, key string, plan planned, limit time.Duration) (_ *waiting, err error) {
	if err := enoughMemory(); err != nil {
		return nil, err
	}
	until := time.Now().Add(r.pool.bounds.Age + limit)
	plan.spec.Job = waitingJob(plan.spec.Job)
	plan.spec.Job.TimeoutSeconds = (r.pool.bounds.Age + limit - plan.slack()).Seconds() // the volume lives as long
	plan.spec.Job.RunID = record.NewID(time.Now())
	plan.asked = spec.TransferBind // what is found out about the engine here is for no run
	a := newRun(r, plan, runOptions{}, time.Now())
	a.warmUp = warmUp(plan)
	if err := a.leaseUID(ctx, until, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.releaseUID()
		}
	}()
	a.stage, err = stage.OpenAhead(stage.Options{Store: r.store, Engine: r.engine, Plan: a.spec, Verified: a.verified,
		Warn: a.warn.add, Stop: a.stop, Log: a.log})
	if err != nil {
		return nil, err
	}
	sources, err := a.stage.SendAhead(ctx, a.labels(until))
	if a.nameTaken = errors.Is(err, engine.ErrNameTaken); err == nil {
		err = a.create(ctx, sources, until)
	}
	if now, keyErr := poolKey(plan); err == nil && (keyErr != nil || now != key) {
		err = errors.Join(errors.New("a directory that is mounted was replaced"), keyErr)
	}
	if err != nil {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
		defer cancel()
		if !a.nameTaken {
			removeErr := r.engine.Remove(cleaning, a.spec.Job.ContainerName())
			if a.stage.Copied() {
				removeErr = errors.Join(removeErr, stage.RemoveVolume(cleaning, r.engine, a.spec.Job.RunID))
			}
			if a.left = removeErr != nil; a.left {
				return nil, errors.Join(err, removeErr) // its directory leads the next run to it
			}
		}
		return nil, errors.Join(err, r.store.Unreserve(a.spec.Job.RunID))
	}
	return &waiting{id: a.spec.Job.RunID, container: a.container, user: a.spec.Class.User, lease: a.uid, made: time.Now(), until: until,
		copied: a.stage.Copied()}, nil
}

// measure asks for the memory of a container. An old engine takes a second to answer, so it is
// asked once for each class.
func (w *waiting) measure(ctx context.Context) {
	if usage, ok := w.container.Sample(ctx); ok {
		w.memory = usage.PeakMemory
	}
}

// warmUp is what is run in a container that waits, so that its program finds the files of the
// interpreter in memory. A storage driver in user space keeps a copy for each container, which takes
// Python several times as long to read as to start. All others share one.
func warmUp(p planned) []string {
	command := p.spec.Job.Command
	// Another path could be that of a file of the run.
	if !strings.HasPrefix(p.info.StorageDriver, "fuse") || len(command) == 0 || command[0] != "python3" {
		return nil
	}
	return []string{"python3", "-c", "pass"}
}

// waitingJob is the part of a job that its container depends on, and the name of its program.
func waitingJob(job spec.Job) spec.Job {
	return spec.Job{Command: job.Command[:min(len(job.Command), 1)], Script: job.Script, Input: job.Input, Mounts: job.Mounts, DiskBytes: job.DiskBytes}
}

// sweepPool removes the waiting containers of dead processes. Their inits have ended. A process that
// cannot be seen from here is dead if the init of its container has ended.
func (r *Runner) sweepPool(ctx context.Context) error {
	ids, unseen, err := r.store.Abandoned()
	errs := []error{err}
	if len(unseen) > 0 {
		containers, err := r.engine.List(ctx)
		for _, id := range unseen {
			lives := func(c engine.Found) bool { return c.Labels[spec.LabelRun] == id && !c.Ended }
			if err == nil && !slices.ContainsFunc(containers, lives) {
				ids = append(ids, id)
			}
		}
		errs = append(errs, err)
	}
	for _, id := range ids {
		err := r.engine.Remove(ctx, spec.Job{RunID: id}.ContainerName())
		if err == nil {
			err = r.store.Unreserve(id)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// enoughMemory refuses to prepare a container ahead while the machine is short of memory: a run that
// needs one now comes first.
func enoughMemory() error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil //nolint:nilerr // not Linux
	}
	var total, available int64
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "MemTotal: %d kB", &total) // other lines
		_, _ = fmt.Sscanf(line, "MemAvailable: %d kB", &available)
	}
	if available*minAvailable < total {
		return fmt.Errorf("the machine has %v of %v of memory left", policy.Size(available<<10), policy.Size(total<<10))
	}
	return nil
}

// minAvailable is the part of the memory of the machine, as 1/n, that is left to others.
const minAvailable = 16
