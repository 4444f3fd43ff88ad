// Package docker carries out plans through Docker's API, version 1.41 (Docker 20.10) or
// newer. Above this package nothing of Docker is visible except the way an engine is
// found: see [FromEnv] and [Connect].
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// adapter implements [engine.Engine] with one client.
type adapter struct {
	api client.APIClient
	log *slog.Logger
	// exposed says which protection is missing on the connection; empty if none.
	exposed string
	// inits remembers where the engine keeps evalbox's init.
	inits initVolumes
	// removals counts removals whose requests are not yet written.
	removals sync.WaitGroup

	mu sync.Mutex
	// lines are the open connections; nil once closed.
	lines map[*line]struct{}
}

var (
	_ engine.Engine     = (*adapter)(nil)
	_ engine.Networks   = (*adapter)(nil)
	_ engine.Identified = (*adapter)(nil)
	_ engine.Copier     = (*adapter)(nil)
	_ engine.Passer     = (*adapter)(nil)
)

// An Option configures an engine.
type Option func(*adapter)

// WithLogger logs failures in the background. By default nothing is logged.
func WithLogger(log *slog.Logger) Option { return func(e *adapter) { e.log = log } }

// An Address selects a Docker daemon. The zero value means the one that the docker command
// would use here.
type Address = dockerhost.Address

// A ConnectError says why a daemon cannot be reached. It is an [engine.ErrUnavailable].
type ConnectError = dockerhost.Error

// FromEnv returns the engine that the docker command would use here: DOCKER_HOST, else the
// context named by DOCKER_CONTEXT or the user's Docker configuration, else the default
// socket. It does not talk to the engine yet. Every error is a [*ConnectError].
func FromEnv(options ...Option) (engine.Engine, error) { return Connect(Address{}, options...) }

// Connect returns the engine at an address. It does not talk to the engine yet. Closing
// the engine ends every connection, including those in use. Every error is a
// [*ConnectError].
func Connect(at Address, options ...Option) (engine.Engine, error) {
	endpoint, err := dockerhost.Find(at)
	if err != nil {
		return nil, err
	}
	api, err := endpoint.Client()
	if err != nil {
		return nil, err
	}
	e := newAdapter(api, options)
	if !endpoint.Loopback {
		e.exposed = endpoint.Warning
	}
	return e, nil
}

// New returns the engine behind a client. The engine owns the client.
func New(api client.APIClient, options ...Option) engine.Engine { return newAdapter(api, options) }

func newAdapter(api client.APIClient, options []Option) *adapter {
	e := &adapter{api: api, log: slog.New(slog.DiscardHandler), lines: map[*line]struct{}{}}
	for _, option := range options {
		option(e)
	}
	return e
}

const (
	// callTimeout bounds every call that does not wait for a program. A daemon can answer
	// some calls and hang on others.
	callTimeout = 30 * time.Second
	// closePatience bounds how long Close waits for removals.
	closePatience = 30 * time.Second
)

var errSilent = errors.New("it did not answer in time")

// errNonsense is an answer that an engine never gives, such as an empty object. Something between
// here and the engine must have made it, so the engine itself was not reached.
var errNonsense error = &connectionError{engine.ErrUnavailable, errors.New("its answer does not say what was asked")}

// callContext bounds one call.
func callContext(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errSilent)
}

// changeContext bounds one call that changes something. Such a call is not canceled with
// its caller: the engine would carry it out anyway, and a container could appear after
// its removal.
func changeContext(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return callContext(context.WithoutCancel(ctx), limit)
}

// pause waits for a duration or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Close implements [engine.Engine]. The client's own Close only closes idle connections,
// and does not track attached streams.
func (e *adapter) Close() error {
	certain := make(chan struct{})
	go func() {
		e.removals.Wait()
		close(certain)
	}()
	var err error
	select {
	case <-certain:
	case <-time.After(closePatience):
		err = errors.New("closing the engine: containers are still being removed")
	}
	e.mu.Lock()
	open := e.lines
	e.lines = nil
	e.mu.Unlock()
	for line := range open {
		line.cut()
	}
	return errors.Join(err, e.api.Close())
}

// Resolve implements [engine.Engine].
func (e *adapter) Resolve(ctx context.Context, ref string) (images.Resolved, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	resolved, err := images.Resolve(ctx, store.Docker{APIClient: e.api}, images.Catalog{}, ref)
	if err == nil && !strings.HasPrefix(resolved.ID, "sha256:") {
		err = errNonsense
	}
	return resolved, engineError(ctx, err)
}

// engineError classifies an error of the client once, so that nothing above parses its
// text. An error that only says that ctx has ended becomes the error of ctx: the client
// reports it as a failed connection.
func engineError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errSilent):
		return &connectionError{engine.ErrUnavailable, errSilent}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
	if problem := dockerhost.Explain(err); problem != nil {
		return problem
	}
	switch {
	case errors.Is(err, fs.ErrPermission), strings.HasPrefix(err.Error(), "permission denied while trying to connect"):
		return &connectionError{engine.ErrPermission, err}
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), isCut(err):
		return &connectionError{engine.ErrUnavailable, err}
	}
	return err
}

// questionError is [engineError] for calls that every engine answers.
func (e *adapter) questionError(ctx context.Context, err error) error {
	if problem := dockerhost.ExplainAnswer(e.api.DaemonHost(), err); problem != nil && ctx.Err() == nil {
		return problem
	}
	return engineError(ctx, err)
}

// isLoss reports whether an error means that the engine cannot be reached.
func isLoss(err error) bool { return errors.Is(err, engine.ErrUnavailable) }

// isCut reports whether a connection broke in the middle of a call. The client passes
// this error on unchanged for hijacked connections.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// connectionError adds a class to an error of the client, and omits the address of the
// call from its text: for a socket that is an escaped path of many lines.
type connectionError struct{ class, err error }

var callAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(Get|Head|Post|Put|Delete) "[^"]*": `) })

func (e *connectionError) Error() string {
	text := callAddress().ReplaceAllString(e.err.Error(), "")
	switch denied := deniedPattern().FindStringSubmatch(text); {
	case denied != nil:
		return "permission denied at " + denied[1]
	case silentPattern().MatchString(text):
		text = silentPattern().ReplaceAllString(text, "nothing answers at $1")
	}
	return engine.ErrUnavailable.Error() + ": " + text
}

// The sentences of the client about an engine that does not answer, and about one that this
// user may not use. The latter repeats itself at each layer.
var (
	silentPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`Cannot connect to the Docker daemon at (\S+)\. Is the docker daemon running\?`)
	})
	deniedPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^permission denied while trying to connect to the Docker daemon socket at ([^\s:]+:[^\s:]+)`)
	})
)

func (e *connectionError) Unwrap() []error { return []error{e.class, e.err} }

// Hint says what to try. Only the engine of the default socket is known to be a service of
// this machine.
func (e *connectionError) Hint() string {
	const address = "check the address, of --host, SANDBOX_HOST, DOCKER_HOST or the context"
	switch text := e.Error(); {
	case errors.Is(e.class, engine.ErrPermission):
		return "add your user to the docker group (which makes it root on this machine), use sudo, or name another engine with --host or --context"
	case text == engine.ErrUnavailable.Error()+": nothing answers at "+client.DefaultDockerHost:
		return "is the engine running? try: sudo systemctl start docker; or name another with --host, --context or DOCKER_HOST"
	case strings.Contains(text, "nothing answers at unix://"):
		return "start the engine of that socket, or " + address
	case strings.Contains(text, "nothing answers at "):
		return "check that the engine there runs and can be reached, or " + address
	}
	return "is the engine running? see what is wrong with: sandbox doctor; or name another with --host, --context or DOCKER_HOST"
}
