package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/handover"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// A keeper is a process that keeps the pool of a state directory for the runners of other processes,
// as ssh does with ControlPersist. A runner asks it for a container of the class of its run and gets
// the open connection to its init, and the lock of its user ID. From there on the keeper has no part
// in the run. What a keeper cannot give, a runner makes itself.

// Errors of keepers, for errors.Is.
var (
	// ErrNoKeeper means that no process keeps a pool for the state directory.
	ErrNoKeeper = errors.New("no pool is kept for this state directory")
	// ErrKept means that another process keeps the pool of the state directory.
	ErrKept = errors.New("a pool is kept for this state directory already")
)

// WithKeeper makes the runner take containers of the keeper of its state directory, if there is one
// when a run starts; see [Runner.KeepPool]. A runner with a pool of its own uses that.
func WithKeeper() Option {
	return func(r *Runner) error {
		r.keeper = true
		return nil
	}
}

// keeperSocket is the socket of a keeper in its state directory.
const keeperSocket = "pool.sock"

// Messages between a runner and a keeper, each of which waits for the next one of the other. A
// runner that asks for a container gets an answer with the files, says that it has them, and closes
// the connection when the next one may be prepared.
type (
	keeperRequest struct {
		Do string `json:"do"`
		// Of keeperTake. Version and Class, the hash of the class, differ if the other side is of
		// another version that may mean something else.
		Version string        `json:"version"`
		Class   string        `json:"class"`
		Spec    spec.Spec     `json:"spec"`
		Engine  string        `json:"engine"`
		UIDs    string        `json:"uids"`
		Limit   time.Duration `json:"limit"`
		// More is what [Hooks].More says; absent if nobody knows.
		More *int `json:"more,omitempty"`
	}
	keeperAnswer struct {
		// Reason is why there is no container, or why something else was not done.
		Reason string        `json:"reason,omitempty"`
		ID     string        `json:"id,omitempty"`
		User   string        `json:"user,omitempty"`
		Last   bool          `json:"last,omitempty"`
		Passed engine.Passed `json:"passed,omitzero"`
		// Of keeperStatus, and of keeperStop at the end.
		Status KeeperStatus `json:"status,omitzero"`
	}
	keeperDone struct{}
)

const (
	keeperTake   = "take"
	keeperStatus = "status"
	keeperStop   = "stop"
	// keeperYield removes a container that waits, because a run needs its user ID.
	keeperYield = "yield"
)

// keeperVersion is that of the messages of [keeperTake], and of the init that gets the job.
func keeperVersion() string { return "1 " + wire.BuildID() }

// KeeperStatus says what a keeper has.
type KeeperStatus struct {
	PID int `json:"pid"`
	// Size bounds the containers that wait. IdleSeconds is after how long without a run the
	// keeper ends.
	Size        int     `json:"size"`
	IdleSeconds float64 `json:"idle_seconds"`
	PoolStatus
}

const (
	// keeperPatience is how long the other side may take for a message. A keeper may wait for a
	// container, and looks at it, before it answers.
	keeperPatience = soonPatience + 2*lookPatience
	// soonPatience is how long a keeper waits for a container that is being prepared.
	soonPatience = 2 * time.Second
)

// askKeeper asks the keeper for a container that waits for a run like this one. The reason says why
// there is none; it is empty without a keeper.
func (a *run) askKeeper(ctx context.Context) (w *waiting, reason string) {
	conn, err := dialKeeper(a.runner.store)
	switch {
	case errors.Is(err, ErrNoKeeper):
		return nil, ""
	case err != nil:
		return nil, err.Error()
	}
	a.keeper = conn
	if why := a.runner.notPooled(a.planned); why != "" {
		return nil, why
	}
	plan := a.spec
	plan.Job = waitingJob(plan.Job)
	request := keeperRequest{Do: keeperTake, Version: keeperVersion(), Class: engine.ClassHash(plan.Class), Spec: plan,
		Engine: a.info.ID, UIDs: a.runner.users.pool(a.info).String(), Limit: a.limit() + deadlineSlack}
	if a.more != nil {
		request.More = new(a.more())
	}
	err = conn.Send(request)
	var answer keeperAnswer
	var files []*os.File
	if err == nil {
		files, err = conn.Receive(&answer, time.Now().Add(keeperPatience))
	}
	if err == nil && answer.ID != "" && len(files) > 0 {
		return a.receive(ctx, answer, files)
	}
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		a.leaveKeeper()
		return nil, "the keeper of the pool did not answer: " + err.Error()
	}
	return nil, answer.Reason
}

// yield frees the user ID of a container that waits, in the pool of this runner or of the keeper. It is
// false if none waits.
func (a *run) yield() bool {
	if a.runner.pool.yield() {
		return true
	}
	if a.keeper == nil {
		return false
	}
	_, err := askKeeper(a.runner.store, keeperYield, cleanupBudget)
	return err == nil
}

// receive takes a container over from the keeper. From here on it is the one of this process.
func (a *run) receive(ctx context.Context, answer keeperAnswer, files []*os.File) (_ *waiting, reason string) {
	r := a.runner
	w := &waiting{id: answer.ID, user: answer.User, last: answer.Last}
	if len(files) > 1 {
		id, _, _ := strings.Cut(answer.User, ":")
		n, _ := strconv.Atoi(id) // a keeper sends it
		w.lease = uid.Open(r.users.dir).Receive(n, files[1])
	}
	err := r.store.Own(w.id)
	if err == nil {
		err = a.keeper.Send(keeperDone{})
	}
	if err != nil { // the keeper takes it back
		a.leaveKeeper()
		if w.lease != nil {
			err = errors.Join(err, w.lease.Forget())
		}
		return nil, "the keeper of the pool did not answer: " + errors.Join(err, files[0].Close()).Error()
	}
	looking, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	class := a.spec.Class
	class.User = w.user
	if e, ok := r.engine.(engine.Passer); ok {
		w.container, err = e.Receive(looking, class, answer.Passed, files[0])
	} else {
		err = errors.Join(errors.New("the engine cannot take a container over"), files[0].Close())
	}
	if err == nil {
		err = engine.CheckReady(class, w.container.Ready())
	}
	if err != nil {
		r.log.Debug("a container of the keeper is not as it should be", logRun, w.id, logError, err)
		r.discardPassed(w.id, answer.Passed.ID, w.lease)
		return nil, "the container that waited for it was changed or stopped by somebody else"
	}
	return w, ""
}

// discardPassed removes a container that nobody has a connection to.
func (r *Runner) discardPassed(id, containerID string, lease *uid.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
	defer cancel()
	err := r.engine.Remove(ctx, containerID)
	gone := err == nil
	if gone { // else its directory leads the next run to it
		err = r.store.Unreserve(id)
	}
	if err = errors.Join(err, giveBackUID(lease, gone)); err != nil {
		r.log.Warn("a waiting container was left behind", logRun, id, logError, err)
	}
}

// leaveKeeper ends the conversation with the keeper, which prepares the next container then.
func (a *run) leaveKeeper() {
	if a.keeper != nil {
		_ = a.keeper.Close() // it has all that it needs
		a.keeper = nil
	}
}

// CanKeepPool returns an error if no process can keep a pool for runners like this one; see
// [Runner.KeepPool].
func (r *Runner) CanKeepPool(ctx context.Context) error {
	info, err := r.facts.get(ctx, r.engine)
	if err != nil {
		return err
	}
	if _, ok := r.engine.(engine.Passer); !ok || !info.Local {
		return fmt.Errorf("a pool needs an engine on this machine, behind a Unix socket: the one at %s is not", info.Address)
	}
	return handover.CheckPath(filepath.Join(r.store.Dir(), keeperSocket))
}

// KeepPool keeps the pool of this runner for the runners of other processes that have the same state
// directory, until ctx ends, another process calls [StopKeeper], or no run asked for a container for as
// long as idle; 0 means [DefaultPoolAge]. ready is called once the keeper can be found. If another
// process keeps the pool, the error is [ErrKept].
func (r *Runner) KeepPool(ctx context.Context, idle time.Duration, ready func()) (err error) {
	switch {
	case r.pool.bounds.Size == 0:
		return errors.New("sandbox: the runner has no pool; use WithPool")
	case idle < 0:
		return &policy.FieldError{Field: "pool.idle", Rule: "is negative"}
	}
	if err := r.CanKeepPool(ctx); err != nil {
		return err
	}
	passer, _ := r.engine.(engine.Passer) // CanKeepPool has checked that
	if err := r.store.Prepare(); err != nil {
		return err
	}
	lock, err := fsx.OpenByteLocks(filepath.Join(r.store.LocksDir(), "keeper"))
	if err != nil {
		return record.StateError(r.store.LocksDir(), "cannot be locked", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := lock.Lock(0); err != nil {
		if errors.Is(err, fsx.ErrLocked) {
			err = ErrKept
		}
		return err
	}
	listener, err := handover.Listen(filepath.Join(r.store.Dir(), keeperSocket))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	k := &keeper{runner: r, engine: passer, idle: cmp.Or(idle, DefaultPoolAge), stop: stop, last: time.Now(), over: make(chan struct{})}
	defer func() {
		stop()
		err = errors.Join(err, listener.Close()) // also deletes the socket
		k.talks.Wait()
		r.pool.close()
		close(k.over)
		k.stops.Wait()
	}()
	closing := context.AfterFunc(ctx, func() { _ = listener.SetDeadline(time.Unix(1, 0)) }) // ends Accept
	defer closing()
	go k.watch(ctx, listener)
	ready()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close() // nothing was said yet
			}
			return nil
		case err != nil:
			return fmt.Errorf("the keeper of the pool cannot be asked any more: %w", err)
		}
		k.talks.Go(func() { k.serve(ctx, conn) })
	}
}

// keeper is one call of [Runner.KeepPool].
type keeper struct {
	runner *Runner
	engine engine.Passer
	idle   time.Duration
	stop   context.CancelFunc
	// talks are the conversations in progress, stops those that wait for the end. over is closed
	// when the pool is empty.
	talks, stops sync.WaitGroup
	over         chan struct{}

	mu   sync.Mutex
	last time.Time // when a container was asked for
}

// watch ends a keeper that nobody needs, or that nobody can find any more.
func (k *keeper) watch(ctx context.Context, listener *handover.Listener) {
	tick := time.NewTicker(min(time.Second, k.idle/4+1))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		k.mu.Lock()
		unused := time.Since(k.last) >= k.idle
		k.mu.Unlock()
		if unused || !listener.IsThere() {
			k.stop()
			return
		}
	}
}

// serve answers one connection.
func (k *keeper) serve(ctx context.Context, conn *handover.Conn) {
	var request keeperRequest
	stays := false
	defer func() {
		if !stays {
			_ = conn.Close() // nothing is left to do about it
		}
	}()
	if _, err := conn.Receive(&request, time.Now().Add(keeperPatience)); err != nil {
		k.runner.log.Debug("a request to the keeper could not be read", logError, err)
		return
	}
	switch request.Do {
	case keeperTake:
		k.give(ctx, conn, request)
	case keeperYield:
		answer := keeperAnswer{}
		if !k.runner.pool.yield() {
			answer.Reason = errNoneWaits
		}
		_ = conn.Send(answer)
	case keeperStatus:
		_ = conn.Send(keeperAnswer{Status: k.status()})
	case keeperStop:
		status := k.status()
		stays = true
		k.stops.Go(func() {
			<-k.over
			_ = errors.Join(conn.Send(keeperAnswer{Status: status}), conn.Close()) // as above
		})
		k.stop()
	}
}

func (k *keeper) status() KeeperStatus {
	return KeeperStatus{PID: os.Getpid(), Size: k.runner.pool.bounds.Size, IdleSeconds: k.idle.Seconds(), PoolStatus: k.runner.PoolStatus()}
}

// give passes a waiting container on, if there is one, and has the next one prepared.
func (k *keeper) give(ctx context.Context, conn *handover.Conn, request keeperRequest) {
	r := k.runner
	k.mu.Lock()
	k.last = time.Now()
	k.mu.Unlock()
	info, err := r.facts.get(ctx, r.engine)
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	case request.Version != keeperVersion(), request.Class != engine.ClassHash(request.Spec.Class):
		reason = "another version of sandbox keeps the pool; restart it with: sandbox pool stop, sandbox pool start"
	case request.Engine != info.ID:
		reason = "the pool is kept for another engine"
	case request.UIDs != r.users.pool(info).String():
		reason = "the pool is kept with another uid_range"
	}
	if reason != "" {
		_ = conn.Send(keeperAnswer{Reason: reason}) // then the runner makes a container
		return
	}
	plan := planned{spec: request.Spec, info: info}
	if request.More != nil {
		plan.more = func() int { return *request.More }
	}
	key, err := poolKey(plan)
	if err != nil {
		_ = conn.Send(keeperAnswer{Reason: err.Error()})
		return
	}
	defer r.pool.refill()
	w := r.pool.take(ctx, soonPatience, key, plan, request.Limit)
	if w == nil {
		_ = conn.Send(keeperAnswer{Reason: errNoneWaits})
	} else if err := k.pass(conn, w); err != nil {
		r.log.Debug("a waiting container was not passed on", logRun, w.id, logError, err)
		return
	}
	// Until then the machine is for the run.
	defer context.AfterFunc(ctx, conn.Interrupt)()
	_, _ = conn.Receive(&struct{}{}, time.Now().Add(cleanupBudget)) // the end of the connection
}

// pass passes a container to the runner behind a connection, and waits until that says that it has
// it. After an error the container is removed.
func (k *keeper) pass(conn *handover.Conn, w *waiting) error {
	r := k.runner
	passed, file, err := k.engine.Pass(w.container)
	if err != nil {
		r.pool.discard(w)
		return errors.Join(err, conn.Send(keeperAnswer{Reason: errNoneWaits}))
	}
	files := []*os.File{file}
	if w.lease != nil {
		files = append(files, w.lease.File())
	}
	err = conn.Send(keeperAnswer{ID: w.id, User: w.user, Last: w.last, Passed: passed}, files...)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = conn.Last(&keeperDone{}, time.Now().Add(keeperPatience))
	}
	if err != nil {
		r.discardPassed(w.id, passed.ID, w.lease)
		return err
	}
	if w.lease != nil {
		return w.lease.Forget()
	}
	return nil
}

// Keeper asks the keeper of a state directory what it has. Without one the error is [ErrNoKeeper].
func Keeper(store *record.Store) (KeeperStatus, error) {
	return askKeeper(store, keeperStatus, keeperPatience)
}

// StopKeeper ends the keeper of a state directory, and returns when its containers are removed, with
// what it had. Without one the error is [ErrNoKeeper].
func StopKeeper(store *record.Store) (KeeperStatus, error) {
	return askKeeper(store, keeperStop, 2*cleanupBudget)
}

func askKeeper(store *record.Store, do string, patience time.Duration) (KeeperStatus, error) {
	conn, err := dialKeeper(store)
	if err != nil {
		return KeeperStatus{}, err
	}
	var answer keeperAnswer
	if err = conn.Send(keeperRequest{Do: do}); err == nil {
		_, err = conn.Receive(&answer, time.Now().Add(patience))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		err = ErrNoKeeper // it has just ended
	}
	if err == nil && answer.Reason != "" {
		err = errors.New(answer.Reason)
	}
	return answer.Status, errors.Join(err, conn.Close())
}

// dialKeeper connects to the keeper of a state directory. In a directory that another user may change,
// that user may be the one who listens.
func dialKeeper(store *record.Store) (*handover.Conn, error) {
	if err := store.Trusted(); err != nil {
		return nil, err
	}
	conn, err := handover.Dial(filepath.Join(store.Dir(), keeperSocket))
	if errors.Is(err, handover.ErrNobody) {
		return nil, ErrNoKeeper
	}
	return conn, err
}
