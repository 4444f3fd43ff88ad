package docker

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// hungDaemon answers removals only.
type hungDaemon struct{}

func (hungDaemon) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestEveryCallHasADeadlineOfItsOwn: an engine can answer some calls and hang on others,
// and callers that clean up pass a context without a deadline.
func TestEveryCallHasADeadlineOfItsOwn(t *testing.T) {
	run := copiedRun(fullClass())
	for name, call := range map[string]func(ctx context.Context, e *adapter) error{
		"info": func(ctx context.Context, e *adapter) error { _, err := e.Info(ctx); return err },
		"resolve": func(ctx context.Context, e *adapter) error {
			_, err := e.Resolve(ctx, "x")
			return err
		},
		"prepare": func(ctx context.Context, e *adapter) error {
			_, err := e.Prepare(ctx, run.Class, engine.Meta{Name: "x", Sources: sources(run.Class)})
			return err
		},
		"open": func(ctx context.Context, e *adapter) error {
			_, err := e.Open(ctx, engine.Ref{ID: "c1", Nonce: wire.NewNonce().String()}, engine.Streams{})
			return err
		},
		"list":        func(ctx context.Context, e *adapter) error { _, err := e.List(ctx); return err },
		"network":     func(ctx context.Context, e *adapter) error { return e.FindNetwork(ctx, "x") },
		"signal":      func(ctx context.Context, e *adapter) error { return newInstance(e, "c1").Signal(ctx, engine.Stop) },
		"process":     func(ctx context.Context, e *adapter) error { _, err := newInstance(e, "c1").PID(ctx); return err },
		"make depot":  func(ctx context.Context, e *adapter) error { _, err := e.MakeDepot(ctx, run, nil); return err },
		"mend depot":  func(ctx context.Context, e *adapter) error { return e.MendDepot(ctx, run, nil) },
		"fill depot":  func(ctx context.Context, e *adapter) error { return e.FillDepot(ctx, "r1", strings.NewReader("")) },
		"fetch depot": func(ctx context.Context, e *adapter) error { _, err := e.FetchDepot(ctx, "r1", "x"); return err },
		"watch depot": func(ctx context.Context, e *adapter) error {
			_, err := e.WatchDepot(ctx, run, map[string]string{})
			return err
		},
		"list depots": func(ctx context.Context, e *adapter) error { _, err := e.Depots(ctx); return err },
		"signals sent": func(ctx context.Context, e *adapter) error {
			_, err := newInstance(e, "c1").foreign(ctx, time.Now(), time.Now())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, err := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: hungDaemon{}}), client.WithVersion(OldestAPI))
				require.NoError(t, err)
				err = call(context.Background(), newAdapter(api, nil)) // a context that never ends
				require.ErrorIs(t, err, engine.ErrUnavailable)
			})
		})
	}
}
