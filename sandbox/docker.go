package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
)

// dockerEngine carries Specs out through Docker's API, 1.41 (Docker 20.10) and
// newer. Docker's types do not leave the files named docker*.go.
type dockerEngine struct {
	api *client.Client
	// at is the way to the engine, if it was found by us; dialer is set when
	// that is ssh.
	at     Endpoint
	dialer *sshDialer
}

var _ Engine = (*dockerEngine)(nil)

// callTimeout bounds every call that does not wait for a program. A daemon can
// answer some calls and hang on others.
const callTimeout = 30 * time.Second

var errSilent = errors.New("it did not answer in time")

// callContext bounds one call.
func callContext(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errSilent)
}

// DockerEngine is the engine behind a client. It takes the client over.
func DockerEngine(api *client.Client) Engine { return &dockerEngine{api: api} }

// Close implements [Engine]. The client itself closes only what is not in use.
func (e *dockerEngine) Close() error {
	err := e.api.Close()
	if e.dialer != nil {
		err = errors.Join(err, e.dialer.Close())
	}
	return err
}

// ResolveImage implements [Engine].
func (e *dockerEngine) ResolveImage(ctx context.Context, catalog images.Catalog, ref string) (images.Resolved, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	resolved, err := images.Resolve(ctx, e.api, catalog, ref)
	return resolved, engineError(ctx, err)
}

// engineError classifies an error of the client once, so that nothing above
// looks at its text. An error that only says that ctx has ended becomes that
// of ctx: the client reports it as a failed connection.
func engineError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errSilent):
		return &connectionError{ErrEngineUnavailable, errSilent}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
	if problem := connectProblem(err); problem != nil {
		return problem
	}
	switch {
	case errors.Is(err, fs.ErrPermission), strings.HasPrefix(err.Error(), "permission denied while trying to connect"):
		return &connectionError{ErrEnginePermission, err}
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err):
		return &connectionError{ErrEngineUnavailable, err}
	}
	return err
}

// connectionError gives an error of the client a class, and its text without the
// address of the call, which for a socket is an escaped path of many lines.
type connectionError struct{ class, err error }

var callAddress = regexp.MustCompile(`(Get|Head|Post|Put|Delete) "[^"]*": `)

func (e *connectionError) Error() string {
	return ErrEngineUnavailable.Error() + ": " + callAddress.ReplaceAllString(e.err.Error(), "")
}

func (e *connectionError) Unwrap() []error { return []error{e.class, e.err} }
