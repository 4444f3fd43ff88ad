package docker

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestForeignSignalsOfAnEngineThatGoes: a truncated answer must not count as "no
// signals", because the program would then be reported to have ended by itself.
func TestForeignSignalsOfAnEngineThatGoes(t *testing.T) {
	const event = `{"Type":"container","Action":"kill","Actor":{"ID":"c1","Attributes":{"signal":"15"}}}`
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		want   []string
		lost   bool
	}{
		"no event":  {handle: func(http.ResponseWriter, *http.Request) {}},
		"one event": {handle: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, event) }, want: []string{"SIGTERM"}},
		"no answer": {handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, lost: true},
		"half an answer": {handle: func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, lost: true},
		"half an event": {handle: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, event+event[:20])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, want: []string{"SIGTERM"}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstance(fakeDaemon(t, test.handle), "c1", wire.Nonce{})
			seen, err := c.witness(t.Context(), time.Now())
			require.Equal(t, test.want, seen.signals)
			require.Equal(t, test.lost, isLoss(err), "%v", err)
			require.Equal(t, test.lost, err != nil)
		})
	}
}

// TestForgottenSignals: the engine keeps its last few hundred events. Who finishes the run of a dead
// controller later cannot conclude from their absence that nobody sent a signal.
func TestForgottenSignals(t *testing.T) {
	const start, kill = `{"Type":"container","Action":"start","Actor":{"ID":"c1"}}`, `{"Type":"container","Action":"kill","Actor":{"ID":"c1","Attributes":{"signal":"15"}}}`
	for name, test := range map[string]struct {
		events string
		opened bool
		want   engine.Cause
		// perhaps says that it may have been the engine.
		perhaps bool
	}{
		"nobody sent one":               {start, true, engine.ByItself, false},
		"somebody did":                  {start + kill, true, engine.BySignal, false},
		"somebody did, start forgotten": {kill, true, engine.BySignal, true},
		"all forgotten":                 {"", true, engine.BySignal, true},
		"the same controller":           {"", false, engine.ByItself, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstance(fakeDaemon(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, test.events) }), "c1", wire.Nonce{})
			c.opened = test.opened
			c.stdout, c.stderr = newSink(nil), newSink(nil)
			c.line = &line{receiver: wire.Resume(wire.Nonce{}, c.stdout, c.stderr)}
			end := c.reported(t.Context(), wire.Report{Kind: wire.Exited, Stop: wire.StopTerm, Started: time.Now(), Finished: time.Now()}, false)
			require.Equal(t, test.want, end.Cause)
			require.Equal(t, test.perhaps, end.Interrupted)
		})
	}
}

// TestMeddling: the engine's events tell the signals of others from ours, and how long a container was
// frozen.
func TestMeddling(t *testing.T) {
	event := func(action string, second int, signal string) string {
		return fmt.Sprintf(`{"Type":"container","Action":%q,"Actor":{"ID":"c1","Attributes":{"signal":%q}},"timeNano":%d}`, action, signal, int64(second)*1e9)
	}
	start, kill := event("start", 1, ""), event("kill", 9, "9")
	for name, test := range map[string]struct {
		events string
		sent   map[string]int
		during map[string]int
		away   bool
		want   []string
		frozen time.Duration
		oom    bool
		unsure bool
	}{
		"somebody else, as the engine was away": {events: start + kill, away: true, want: []string{"SIGKILL"}},
		"nobody, as it was away":                {events: start, away: true},
		"an engine that was restarted":          {events: kill, away: true, unsure: true},
		"we":                                    {events: start + kill, sent: map[string]int{"SIGKILL": 1}},
		"we, as the engine is asked":            {events: start + kill, during: map[string]int{"SIGKILL": 1}},
		"we, after somebody else":               {events: start + kill + kill, sent: map[string]int{"SIGKILL": 1}, want: []string{"SIGKILL"}},
		"frozen twice":                          {events: start + event("pause", 2, "") + event("unpause", 4, "") + event("pause", 5, "") + event("unpause", 6, ""), frozen: 3 * time.Second},
		"frozen to the end":                     {events: start + event("pause", 2, ""), frozen: 8 * time.Second},
		"out of memory":                         {events: start + event("oom", 9, ""), oom: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstance(nil, "c1", wire.Nonce{})
			c.engine = fakeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/info") {
					_, _ = io.WriteString(w, `{}`)
					return
				}
				c.mu.Lock()
				maps.Copy(c.sent, test.during)
				c.mu.Unlock()
				_, _ = io.WriteString(w, test.events)
			})
			c.sent, c.interrupted = maps.Clone(test.sent), test.away
			if c.sent == nil {
				c.sent = map[string]int{}
			}
			seen, err := c.witness(t.Context(), time.Unix(10, 0))
			require.Equal(t, test.want, seen.signals)
			require.Equal(t, test.oom, seen.oom)
			require.Equal(t, test.unsure, err != nil, "%v", err)
			if test.frozen == 8*time.Second { // of an engine of this machine, the present counts
				require.GreaterOrEqual(t, seen.frozen, test.frozen)
			} else {
				require.Equal(t, test.frozen, seen.frozen)
			}
		})
	}
}

// TestEndedWithEngine: an engine that was restarted stops the containers of its predecessor, unless it
// keeps them. That is nobody else's signal.
func TestEndedWithEngine(t *testing.T) {
	const start, kill = `{"Type":"container","Action":"start","Actor":{"ID":"c1"}}`, `{"Type":"container","Action":"kill","Actor":{"ID":"c1","Attributes":{"signal":"15"}}}`
	for name, test := range map[string]struct {
		events string
		keeps  bool
		want   bool
	}{
		"the same engine":                    {start + kill, false, false},
		"its successor stops it":             {kill, false, true},
		"its successor says nothing":         {"", false, true},
		"its successor keeps it":             {kill, true, false},
		"... and does not know who did that": {"", true, true},
		"the start may be forgotten":         {strings.Repeat(kill, eventsKept), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstance(fakeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/info") {
					_, _ = fmt.Fprintf(w, `{"LiveRestoreEnabled": %t}`, test.keeps)
					return
				}
				_, _ = io.WriteString(w, test.events)
			}), "c1", wire.Nonce{})
			c.opened = true
			c.stdout, c.stderr = newSink(nil), newSink(nil)
			c.line = &line{receiver: wire.Resume(wire.Nonce{}, c.stdout, c.stderr)}
			end := c.reported(t.Context(), wire.Report{Kind: wire.Exited, Stop: wire.StopTerm, Started: time.Now(), Finished: time.Now()}, false)
			require.Equal(t, engine.BySignal, end.Cause)
			require.Equal(t, test.want, len(end.Foreign) == 0, "%q", end.Foreign)
			require.Equal(t, test.want, end.ForeignErr != nil, "%v", end.ForeignErr)
		})
	}
}

// TestSilenceIsNoRefusal: an init that did not answer in time, because its container was
// paused or its engine is stuck, may still run the program later. Only the end of the job
// decides.
func TestSilenceIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newInstance(answering(t, `{"Id":"c1","State":{"Status":"paused","Running":true,"Paused":true}}`), "c1", wire.Nonce{})
		c.workDir = "/"
		sent, stdin := io.Pipe()
		closed := make(chan struct{})
		c.line = c.engine.listen(&line{receiver: wire.NewReceiver(), stdin: stdin, close: sync.OnceValue(func() error {
			close(closed)
			return stdin.Close()
		})}, func(io.Writer, io.Writer) error {
			<-closed
			return net.ErrClosed
		})
		received := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(sent) // until the line is cut
			received <- all
		}()
		job := spec.Job{Command: []string{"true"}, TimeoutSeconds: 1, Stdin: true}
		began := time.Now()
		err := c.Start(t.Context(), job, engine.Streams{Stdin: strings.NewReader("input")})
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Equal(t, acceptPatience, time.Since(began))
		synctest.Wait()
		c.Disconnect()
		require.Contains(t, string(<-received), "input", "a program that starts later has its stdin")
		now, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Wait(now)
		require.ErrorIs(t, err, context.Canceled, "its end can be waited for")
	})
}

// answering is an engine that gives one answer to everything, without a network: for tests in a
// bubble.
func answering(t *testing.T, answer string) *adapter {
	t.Helper()
	api, err := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: oneAnswer(answer)}), client.WithVersion(OldestAPI))
	require.NoError(t, err)
	return newAdapter(api, nil)
}

type oneAnswer string

func (a oneAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a))), Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

// TestDisconnectedStreams: after Disconnect the caller may close the streams'
// destinations.
func TestDisconnectedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newInstance(newAdapter(nil, nil), "c1", wire.Nonce{})
		receiver := wire.NewReceiver()
		sink, to := io.Pipe() // a slow reader
		read, write := io.Pipe()
		c.line = c.engine.listen(&line{receiver: receiver, close: read.Close}, func(_, stderr io.Writer) error {
			_, err := io.Copy(stderr, read)
			return err
		})
		receiver.Begin(wire.NewNonce(), io.Discard, to)
		go func() { _, _ = write.Write([]byte("a last word")) }() // fails when the line is cut
		synctest.Wait()
		disconnected := make(chan struct{})
		go func() {
			c.Disconnect()
			close(disconnected)
		}()
		synctest.Wait()
		select {
		case <-disconnected:
			t.Error("the stream is still being written to")
		default:
		}
		require.NoError(t, sink.Close())
		<-disconnected
	})
}

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
		"list":    func(ctx context.Context, e *adapter) error { _, err := e.List(ctx); return err },
		"network": func(ctx context.Context, e *adapter) error { return e.FindNetwork(ctx, "x") },
		"signal": func(ctx context.Context, e *adapter) error {
			return newInstance(e, "c1", wire.Nonce{}).Signal(ctx, engine.Stop)
		},
		"process": func(ctx context.Context, e *adapter) error {
			_, err := newInstance(e, "c1", wire.Nonce{}).PID(ctx)
			return err
		},
		"create volume":   func(ctx context.Context, e *adapter) error { _, err := e.CreateVolume(ctx, run, nil); return err },
		"recreate helper": func(ctx context.Context, e *adapter) error { return e.RecreateHelper(ctx, run, nil) },
		"fill volume":     func(ctx context.Context, e *adapter) error { return e.FillVolume(ctx, "r1", strings.NewReader("")) },
		"fetch volume":    func(ctx context.Context, e *adapter) error { _, err := e.FetchVolume(ctx, "r1", "x"); return err },
		"monitor volume": func(ctx context.Context, e *adapter) error {
			_, err := e.MonitorVolume(ctx, run, map[string]string{})
			return err
		},
		"list volumes": func(ctx context.Context, e *adapter) error { _, err := e.Volumes(ctx); return err },
		"signals sent": func(ctx context.Context, e *adapter) error {
			_, err := newInstance(e, "c1", wire.Nonce{}).witness(ctx, time.Now())
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
