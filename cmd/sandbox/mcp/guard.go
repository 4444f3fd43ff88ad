package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// labelSession labels the runs of a session.
const labelSession = "mcp.session"

// guard is the box of all tools. Whatever a harness makes of a document, its runs have the image of
// the server, files below the root, a quota, and the label of the session. The limits are those of
// the policy of the runner.
type guard struct {
	sandbox.Box
	root    rootDir
	session string
	image   string
	// own are directories of the server and of its harnesses, which no agent can name.
	own   []string
	quota *quota
	kill  <-chan struct{}

	mu   sync.Mutex
	runs []string // of this session, oldest first
	mine map[string]bool
}

// Run runs a request within the rules.
func (g *guard) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	if err := g.checkImage(ctx, req); err != nil {
		return nil, note(ctx, err)
	}
	if err := g.quota.take(); err != nil {
		return nil, note(ctx, err)
	}
	labels := map[string]string{}
	maps.Copy(labels, req.Labels)
	labels[labelSession] = g.session
	req.Labels = labels
	res, err := g.Box.Run(ctx, req, g.hooked(ctx, opts)...)
	if res == nil {
		g.quota.giveBack()
		return nil, err
	}
	g.add(res.ID)
	g.quota.use(res.DurationSeconds, g.left(ctx, res.ID))
	return res, err
}

// hooked adds to the hooks of a run the check of what it really mounts, and its place in the list.
func (g *guard) hooked(ctx context.Context, opts []sandbox.RunOption) []sandbox.RunOption {
	var hooks sandbox.Hooks
	var kept []sandbox.RunOption
	for _, opt := range opts {
		if given, ok := opt.(sandbox.Hooks); ok {
			hooks = given
		} else {
			kept = append(kept, opt)
		}
	}
	begin := hooks.Begin
	hooks.Kill = cmp.Or(hooks.Kill, g.kill)
	hooks.Begin = func(id string) error {
		if err := g.checkMounts(id); err != nil {
			return note(ctx, err)
		}
		g.add(id)
		if begin != nil {
			return begin(id)
		}
		return nil
	}
	return append(kept, hooks)
}

// checkImage refuses an image that is not the server's.
func (g *guard) checkImage(ctx context.Context, req sandbox.Request) error {
	if req.Image == g.image {
		return nil
	}
	other, err := g.Box.Plan(ctx, imageOnly(req, req.Image))
	if err != nil {
		return err
	}
	own, err := g.Box.Plan(ctx, imageOnly(req, g.image))
	if err != nil {
		return err
	}
	if other.Class.Image.ID != own.Class.Image.ID {
		return refusef("leave the image out", "image %s: is not the image of this server", text.Quote(req.Image, 200))
	}
	return nil
}

func imageOnly(req sandbox.Request, image string) sandbox.Request {
	return sandbox.Request{Image: image, AllowUnlocked: req.AllowUnlocked, Command: []string{"true"}, User: req.User, Runtime: req.Runtime, Transfer: req.Transfer}
}

// checkMounts looks at the host paths of a run as they were resolved, right before its program
// starts. The runner has compared them with the files that are mounted, so a link that took the
// place of a directory meanwhile leads nowhere.
func (g *guard) checkMounts(id string) error {
	var s spec.Spec
	dir := g.Store().RecordDir(id)
	if err := record.ReadJSON(filepath.Join(dir, record.SpecFile), &s); err != nil {
		return fmt.Errorf("the plan of run %s: %w", id, err)
	}
	for _, source := range append(s.Job.Sources(), s.Job.Script) {
		if source != "" && !fsx.Within(source, dir) && !g.permits(source) {
			return refusef(rootHint, "%s: is not below the root of this server", text.Quote(source, 200))
		}
	}
	return nil
}

// permits reports whether a resolved path may be mounted.
func (g *guard) permits(real string) bool {
	for _, dir := range g.own {
		if fsx.Within(real, dir) {
			return true
		}
	}
	// The harnesses mount copies, which they make in temporary directories of this process. No document
	// can name one: its paths lie below the root, or are refused in the state directory.
	return g.Store().IsOwnTemp(real) || g.root.broken(real) == ""
}

// add notes a run of this session.
func (g *guard) add(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mine == nil {
		g.mine = map[string]bool{}
	}
	if !g.mine[id] {
		g.mine[id] = true
		g.runs = append(g.runs, id)
	}
}

// newest are the runs of this session, newest first.
func (g *guard) newest() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := make([]string, 0, len(g.runs))
	for i := len(g.runs) - 1; i >= 0; i-- {
		ids = append(ids, g.runs[i])
	}
	return ids
}

// owns reports whether a run is of this session.
func (g *guard) owns(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mine[id]
}

// left is what a run left on the disk, in bytes.
func (g *guard) left(ctx context.Context, id string) int64 {
	ctx = context.WithoutCancel(ctx)
	dir := g.Store().RecordDir(id)
	found, err := g.Store().Load(id)
	if err != nil || fsx.Within(found.OutputDir(), dir) {
		return sizeOf(ctx, dir)
	}
	return sizeOf(ctx, dir) + sizeOf(ctx, found.OutputDir())
}

// refusedKey is the place in the context of a call for the first error of the guard: a harness may
// wrap it in words of its own.
type refusedKey struct{}

func note(ctx context.Context, err error) error {
	if first, ok := ctx.Value(refusedKey{}).(*firstError); ok {
		first.set(err)
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return &policy.FieldError{Field: "mcp", Rule: err.Error()} // a harness takes it for a refusal
	}
	return err
}

// firstError keeps the first error that it gets.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
