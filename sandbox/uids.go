package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// uidDir is the directory of leases of user IDs of every root controller of a machine. It is
// emptied when the machine starts, as its containers are.
func uidDir() string {
	if runtime.GOOS == "linux" {
		return "/run/evalbox/uids"
	}
	return "/var/run/evalbox/uids"
}

// WithUIDs sets the user IDs that the programs of a root caller get, each run one of its own:
// a range as [uid.ParseRange] reads it, or "none", which gives [spec.DedicatedUser] to all
// runs. The default is [uid.Default], or [uid.Remapped] for an engine with a user namespace.
// Without root, programs have the user ID of the caller.
func WithUIDs(text string) Option {
	return func(r *Runner) (err error) {
		if r.users.shared = text == "none"; !r.users.shared {
			if r.users.lent, err = uid.ParseRange(text); err != nil {
				return &policy.FieldError{Field: "uid_range", Value: fmt.Sprintf("%q", text), Rule: err.Error()}
			}
		}
		return nil
	}
}

// users says which users the programs of a runner have.
type users struct {
	// caller is the user ID of this process.
	caller int
	// lent is the range of user IDs; the zero Range is the default. shared means that
	// runs share one.
	lent   uid.Range
	shared bool
	// dir is the directory of leases.
	dir string
}

// pool is the range that a run of this process leases from; the zero Range means none.
func (u users) pool(info engine.Info) uid.Range {
	switch {
	case u.caller > 0 || u.shared:
		return uid.Range{}
	case u.lent.Any():
		return u.lent
	case info.UserNamespace:
		return uid.Remapped
	}
	return uid.Default
}

// choose sets the user of a request, and, if the engine has a user namespace, how its files get
// there; asked is the transfer that the caller asked for. Files that are mounted keep their users
// of this machine, which are others in the container: only the caller's own are root's there, with
// a rootless engine of the caller. Then rootIs is the caller, and the program is root there: see
// [spec.Host].
func (u users) choose(req *Request, asked string, info engine.Info) (rootIs string, err error) {
	switch {
	case !info.UserNamespace || req.Transfer == spec.TransferCopy:
	case req.User == "" && u.isRoot(info):
		return defaultUser(u.caller, os.Getgid()), nil
	case asked == spec.TransferBind:
		return "", &policy.FieldError{Field: "transfer", Value: asked,
			Rule: "would leave ./final to another user than that of the program: the engine has a user namespace",
			Hint: "leave --transfer out: then the files are copied"}
	default:
		req.Transfer = spec.TransferCopy
	}
	req.User, err = u.of(req.User, info)
	return "", err
}

// isRoot reports whether root of the engine's containers is this process's user: the engine is
// rootless, and its files are that user's.
func (u users) isRoot(info engine.Info) bool {
	if !info.Rootless || !info.Local || u.caller <= 0 {
		return false
	}
	dir, err := os.Stat(info.RootDir)
	if err != nil {
		return false
	}
	uid, _, ok := fsx.OwnerOf(dir)
	return ok && uid == u.caller
}

// of is the user of a request. A user ID that may belong to another run is refused.
func (u users) of(asked string, info engine.Info) (string, error) {
	lent := u.pool(info)
	if asked == "" {
		if lent.Any() {
			return spec.LeasedUser, nil
		}
		return defaultUser(u.caller, os.Getgid()), nil
	}
	id, _, _ := strings.Cut(asked, ":")
	if n, err := strconv.Atoi(id); err == nil && lent.Contains(n) {
		return "", &policy.FieldError{Field: "user", Value: fmt.Sprintf("%q", asked),
			Rule: fmt.Sprintf("is in the range %v, from which every run leases a user ID of its own", lent),
			Hint: "leave --user out, or choose a user ID outside of uid_range"}
	}
	return asked, nil
}

// leaseUID gives the run a user ID of its own, if the plan asks for one. Nothing of the run
// exists yet, except its lease of GPUs. until is when its container has certainly ended.
// If no ID is free, yield may free one, unless it is nil; it is true if it did.
func (a *run) leaseUID(ctx context.Context, until time.Time, yield func() bool) error {
	if a.spec.Class.User != spec.LeasedUser {
		return nil
	}
	lent := a.runner.users.pool(a.info)
	holder := uid.Holder{RunID: a.spec.Job.RunID, Engine: a.info.ID, Until: until.UTC()}
	lease, err := uid.Open(a.runner.users.dir).Lease(ctx, lent, holder, a.runner.mayRun(a.info.ID))
	for errors.Is(err, uid.ErrExhausted) && yield != nil && yield() {
		lease, err = uid.Open(a.runner.users.dir).Lease(ctx, lent, holder, a.runner.mayRun(a.info.ID))
	}
	switch {
	case errors.Is(err, uid.ErrExhausted):
		return &policy.FieldError{Field: "user", Rule: err.Error() + " by runs that have not ended",
			Hint: "run fewer programs at once, or set a larger uid_range"}
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", outcome.ErrCanceled, err)
	case err != nil:
		return err
	}
	a.uid = lease
	a.spec.Class.User = fmt.Sprintf("%d:%d", lease.ID(), lease.ID())
	a.log.Debug("user ID leased", logUser, a.spec.Class.User)
	return nil
}

// releaseUID gives the user ID back once no process has it any more. Otherwise the container
// keeps it: the ID is not lent again before the end of the container is certain.
func (a *run) releaseUID() {
	if err := giveBackUID(a.uid, a.evidence.Lost == nil && !a.left); err != nil {
		a.log.Warn("the user ID was not given back in order", logUser, a.spec.Class.User, logError, err)
	}
}

// giveBackUID ends a lease, which may be nil. over says that no process of its container lives.
func giveBackUID(lease *uid.Lease, over bool) error {
	switch {
	case lease == nil:
		return nil
	case over:
		return lease.Release()
	}
	return lease.Leave()
}

// adoptUID takes over the lease of the user ID of a run whose controller is gone, by the user
// of its plan. Nil means that there is no lease, because the run had none, or because its
// container has certainly ended.
func (r *Runner) adoptUID(user, runID string) (*uid.Lease, error) {
	text, _, _ := strings.Cut(user, ":")
	if r.users.caller > 0 {
		return nil, nil
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil //nolint:nilerr // only numbers are leased
	}
	lease, err := uid.Open(r.users.dir).Adopt(id, runID)
	if errors.Is(err, uid.ErrNotHeld) {
		return nil, nil
	}
	return lease, err
}

// mayRun asks an engine which holders, whose controllers are gone, may still have processes.
// It removes nothing. Other engines are not asked: there the deadline decides.
func (r *Runner) mayRun(engineID string) func(context.Context) (uid.MayRun, error) {
	return func(ctx context.Context) (uid.MayRun, error) {
		containers, err := r.engine.List(ctx)
		there := map[string]bool{}
		for _, c := range containers {
			// A container that was only created may still start.
			if !c.Ended && c.Labels[spec.LabelPart] == "" {
				there[c.Labels[spec.LabelRun]] = true
			}
		}
		return func(h uid.Holder) bool {
			if h.Engine != engineID {
				return time.Now().Before(h.Until)
			}
			return there[h.RunID]
		}, err
	}
}

// sweepUIDs frees the user IDs of runs whose controllers died and whose containers are gone.
func (r *Runner) sweepUIDs(ctx context.Context) error {
	info, err := r.facts.get(ctx, r.engine)
	if err != nil || !r.users.pool(info).Any() {
		return err
	}
	return uid.Open(r.users.dir).Sweep(ctx, r.mayRun(info.ID))
}
