//go:build linux

package docker

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// meddler is a proxy in front of the engine of these tests that changes single answers.
type meddler struct {
	// meddle handles a request instead of the engine, if it returns true.
	meddle func(w http.ResponseWriter, r *http.Request, pass http.Handler) bool
	// change changes the body of an answer in JSON.
	change func(r *http.Request, body []byte) []byte
}

// through returns the engine behind a meddler.
func (m meddler) through(t *testing.T) *adapter {
	t.Helper()
	direct := testEngine(t)
	address, err := url.Parse(direct.api.DaemonHost())
	require.NoError(t, err)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, address.Scheme, address.Host+address.Path)
	}
	pass := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		Transport: &http.Transport{DialContext: dial, DisableCompression: true},
		ModifyResponse: func(r *http.Response) error {
			if m.change == nil || r.Header.Get("Content-Type") != "application/json" || r.StatusCode == http.StatusSwitchingProtocols {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err == nil {
				body = m.change(r.Request, body)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
				r.Header.Del("Content-Length")
			}
			return err
		},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.meddle == nil || !m.meddle(w, r, pass) {
			pass.ServeHTTP(w, r)
		}
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithVersion(OldestAPI))
	require.NoError(t, err)
	e := newAdapter(api, nil)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// ownMeta is testMeta with a run, as every run has it.
func ownMeta(t *testing.T) engine.Meta {
	t.Helper()
	meta := testMeta(t)
	meta.Labels[spec.LabelRun] = strings.TrimPrefix(meta.Name, "evalbox-")
	return meta
}

// swallow answers nothing: the connection breaks.
func swallow() { panic(http.ErrAbortHandler) }

// unheard carries a request out and keeps the answer.
func unheard(r *http.Request, pass http.Handler) int {
	w := &discarded{header: http.Header{}}
	pass.ServeHTTP(w, r)
	return w.status
}

type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(status int)      { d.status = status }
func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }

// removeDirectly removes a container at the end of the test. A meddler that is closed drops a
// removal that a real engine carries out.
func removeDirectly(t *testing.T, c engine.Container) {
	t.Helper()
	direct := testEngine(t)
	t.Cleanup(func() { require.NoError(t, direct.Remove(context.WithoutCancel(t.Context()), c.Ref().ID)) })
}

// TestEngineOpenEndsAnInitWithoutAJob: stdin stays open, as an engine keeps it that was restarted with its
// containers, and nobody is there who would send a job.
func TestEngineOpenEndsAnInitWithoutAJob(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	c := prepare(t, e, engineClass(t, e))
	again, err := e.Open(t.Context(), c.Ref(), engine.Streams{})
	require.NoError(t, err)
	end, err := again.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, end.NoJob && !end.Reported, "%+v", end)
}

// TestEngineLostRequestsAndAnswers: a create or a start is looked up and repeated. Its own container is
// never taken for another's.
func TestEngineLostRequestsAndAnswers(t *testing.T) {
	t.Parallel()
	for call, path := range map[string]*regexp.Regexp{
		"create": regexp.MustCompile(`/containers/create$`),
		"start":  regexp.MustCompile(`/containers/[^/]*/start$`),
	} {
		for how, meddle := range map[string]func(w http.ResponseWriter, r *http.Request, pass http.Handler){
			"the request is lost": func(http.ResponseWriter, *http.Request, http.Handler) { swallow() },
			"the answer is lost": func(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
				_ = unheard(r, pass)
				swallow()
			},
			"it arrives twice": func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					swallow()
				}
				again := r.Clone(r.Context())
				r.Body, again.Body = io.NopCloser(strings.NewReader(string(body))), io.NopCloser(strings.NewReader(string(body)))
				_ = unheard(r, pass)
				pass.ServeHTTP(w, again)
			},
			"the answer is empty": func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				_ = unheard(r, pass)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, "{}")
			},
		} {
			t.Run(call+": "+how, func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int32
				e := meddler{meddle: func(w http.ResponseWriter, r *http.Request, pass http.Handler) bool {
					if r.Method != http.MethodPost || !path.MatchString(r.URL.Path) || calls.Add(1) > 1 {
						return false
					}
					meddle(w, r, pass)
					return true
				}}.through(t)
				c, err := e.Prepare(t.Context(), engineClass(t, e), ownMeta(t))
				require.NoError(t, err)
				removeDirectly(t, c)
				var out output
				require.NoError(t, c.Start(t.Context(), shell("echo on; exit 3"), engine.Streams{Stdout: &out, Stderr: &out}))
				end, err := c.Wait(t.Context())
				require.NoError(t, err)
				require.True(t, end.Reported && end.Complete, "%+v", end)
				require.Equal(t, 3, end.ExitCode)
				require.Equal(t, "on\n", out.String())
			})
		}
	}
}

// TestEngineNameOfAnotherRun: a container without our labels is another's, also if an answer was lost.
func TestEngineNameOfAnotherRun(t *testing.T) {
	e := testEngine(t)
	meta := ownMeta(t)
	c, err := e.Prepare(t.Context(), engineClass(t, e), meta)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Remove(context.WithoutCancel(t.Context()))) })
	other := ownMeta(t)
	other.Name = meta.Name
	_, err = e.Prepare(t.Context(), engineClass(t, e), other)
	require.ErrorIs(t, err, engine.ErrNameTaken)
	lossy := meddler{meddle: func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			swallow()
		}
		return false
	}}.through(t)
	_, err = lossy.Prepare(t.Context(), engineClass(t, e), other)
	require.ErrorIs(t, err, engine.ErrNameTaken)
	_, err = e.inspect(t.Context(), c.Ref().ID)
	require.NoError(t, err, "the other run's container is still there")
}

var wallTime = regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]*Z"`)

// TestEngineStepsOfTheEnginesClock: who ended a program does not depend on the times in the engine's
// answers.
func TestEngineStepsOfTheEnginesClock(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		shifted := func(_ *http.Request, body []byte) []byte {
			return wallTime.ReplaceAllFunc(body, func(text []byte) []byte {
				at, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(text))
				if err != nil || at.Year() <= 1 {
					return text
				}
				return []byte(`"` + at.Add(step).Format(time.RFC3339Nano) + `"`)
			})
		}
		for how, test := range map[string]struct {
			signal, script string
			check          func(t *testing.T, end engine.End)
		}{
			"itself": {"", "echo on; exit 0", func(t *testing.T, end engine.End) {
				t.Helper()
				require.True(t, end.Reported)
				require.Equal(t, engine.ByItself, end.Cause)
				require.Empty(t, end.Foreign)
			}},
			"stopped by others, and exits with 0": {"TERM", "trap 'exit 0' TERM; echo on; while :; do sleep 0.01; done", func(t *testing.T, end engine.End) {
				t.Helper()
				require.True(t, end.Reported)
				require.Equal(t, engine.BySignal, end.Cause)
				require.Equal(t, []string{"SIGTERM"}, end.Foreign)
			}},
			"killed by others": {"KILL", "echo on; sleep 50", func(t *testing.T, end engine.End) {
				t.Helper()
				require.False(t, end.Reported)
				require.Equal(t, []string{"SIGKILL"}, end.Foreign)
				require.GreaterOrEqual(t, end.Duration, time.Duration(0))
				require.Less(t, end.Duration, time.Minute)
			}},
			"killed by us": {"us", "echo on; sleep 50", func(t *testing.T, end engine.End) {
				t.Helper()
				require.True(t, end.Reported)
				require.Equal(t, engine.BySignal, end.Cause)
				require.Empty(t, end.Foreign)
			}},
		} {
			t.Run(name+": "+how, func(t *testing.T) {
				t.Parallel()
				e := meddler{change: shifted}.through(t)
				c, err := e.Prepare(t.Context(), engineClass(t, e), ownMeta(t))
				require.NoError(t, err)
				removeDirectly(t, c)
				out := newAwaited("on\n")
				require.NoError(t, c.Start(t.Context(), shell(test.script), engine.Streams{Stdout: out, Stderr: io.Discard}))
				<-out.seen
				switch test.signal {
				case "":
				case "us":
					require.NoError(t, c.Signal(t.Context(), engine.Kill))
				default:
					require.NoError(t, e.api.ContainerKill(t.Context(), c.Ref().ID, test.signal))
				}
				end, err := c.Wait(t.Context())
				require.NoError(t, err)
				test.check(t, end)
			})
		}
	}
}

// TestEngineRestartedContainer: the program of a container that somebody restarts does not run again,
// and nobody waits for it.
func TestEngineRestartedContainer(t *testing.T) {
	t.Parallel()
	for name, seconds := range map[string]int{"stopped first": 20, "killed": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := testEngine(t)
			c := prepare(t, e, engineClass(t, e)).(*instance)
			out := newAwaited("on\n")
			require.NoError(t, c.Start(t.Context(), shell("echo on; sleep 50"), engine.Streams{Stdout: out, Stderr: io.Discard}))
			<-out.seen
			require.Eventually(t, func() bool { // it is known which process is restarted
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.pid != 0
			}, time.Minute, 10*time.Millisecond)
			restarted := make(chan error, 1)
			go func() {
				restarted <- e.api.ContainerRestart(t.Context(), c.Ref().ID, container.StopOptions{Timeout: &seconds})
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			end, err := c.Wait(ctx)
			for errorsIsLoss(err) && ctx.Err() == nil {
				end, err = c.Wait(ctx)
			}
			require.NoError(t, err)
			c.Release() // as a run does; the engine waits for the container
			require.NoError(t, <-restarted)
			require.True(t, c.Restarted(t.Context()))
			if end.Reported {
				require.Equal(t, engine.BySignal, end.Cause)
				require.Contains(t, end.Foreign, "SIGTERM")
			} else { // the engine kills it right behind its SIGTERM
				require.Zero(t, seconds)
				require.Contains(t, end.Foreign, "SIGKILL")
			}
			require.Equal(t, "on\n", out.String(), "it ran once")
		})
	}
}

func errorsIsLoss(err error) bool { return err != nil && isLoss(err) }

// TestEngineRestartedBeforeItsJob: nobody waits for a container that somebody restarted before it had its
// job, and before anybody knew its main process.
func TestEngineRestartedBeforeItsJob(t *testing.T) {
	t.Parallel()
	direct := testEngine(t)
	name := regexp.MustCompile(`/containers/([^/]+)/start$`)
	e := meddler{meddle: func(w http.ResponseWriter, r *http.Request, pass http.Handler) bool {
		id := name.FindStringSubmatch(r.URL.Path)
		if id == nil {
			return false
		}
		status, none := unheard(r, pass), 0
		if err := direct.api.ContainerRestart(r.Context(), id[1], container.StopOptions{Timeout: &none}); err != nil {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		return true
	}}.through(t)
	c, err := e.Prepare(t.Context(), engineClass(t, e), ownMeta(t))
	require.NoError(t, err)
	removeDirectly(t, c)
	require.Error(t, c.Start(t.Context(), shell("echo on"), engine.Streams{Stdout: io.Discard, Stderr: io.Discard}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end, err := c.Wait(ctx)
	for errorsIsLoss(err) && ctx.Err() == nil {
		end, err = c.Wait(ctx)
	}
	require.NoError(t, err)
	require.True(t, end.NoJob, "%+v", end)
}

// TestEngineKilledBeforeItsJob: nothing has run in a container that somebody kills before its job arrives.
func TestEngineKilledBeforeItsJob(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	c := prepare(t, e, engineClass(t, e))
	require.NoError(t, e.api.ContainerKill(t.Context(), c.Ref().ID, "KILL"))
	<-c.(*instance).line.over // else the job may meet a connection that the engine is closing
	err := c.Start(t.Context(), shell("echo on"), engine.Streams{Stdout: io.Discard, Stderr: io.Discard})
	require.ErrorIs(t, err, engine.ErrUnavailable)
	end, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, end.NoJob, "%+v", end)
	require.Equal(t, []string{"SIGKILL"}, end.Foreign)
}

// TestEngineStoppedAtOnce: a signal that others send in the first moment is noticed.
func TestEngineStoppedAtOnce(t *testing.T) {
	e := testEngine(t)
	for range 3 {
		c := prepare(t, e, engineClass(t, e))
		require.NoError(t, c.Start(t.Context(), shell("trap 'exit 0' TERM; sleep 50 & wait"), engine.Streams{Stdout: io.Discard, Stderr: io.Discard}))
		require.NoError(t, e.api.ContainerKill(t.Context(), c.Ref().ID, "TERM"))
		end, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, engine.BySignal, end.Cause, "%+v", end)
		require.Equal(t, []string{"SIGTERM"}, end.Foreign)
	}
}

// TestNonsenseIsNoAnswer: an engine that answers {} to everything has no container that ended
// well, and nothing panics.
func TestNonsenseIsNoAnswer(t *testing.T) {
	run := copiedRun(fullClass())
	for _, answer := range []string{"{}", "[]", "null", `{"State":{}}`, `{"Id":"c1","State":{}}`, `[{}]`, `{"Volumes":[{}]}`, `"x"`, ""} {
		synctest.Test(t, func(t *testing.T) {
			e := answering(t, answer)
			c := newInstance(e, "c1", wire.Nonce{})
			c.stdout, c.stderr, c.begun, c.lost = newSink(nil), newSink(nil), true, true
			for name, call := range map[string]func() error{
				"prepare": func() error {
					_, err := e.Prepare(t.Context(), run.Class, engine.Meta{Name: "x", Sources: sources(run.Class)})
					return err
				},
				"wait":          func() error { _, err := c.Wait(t.Context()); return err },
				"process":       func() error { _, err := c.PID(t.Context()); return err },
				"create volume": func() error { _, err := e.CreateVolume(t.Context(), run, map[string]string{}); return err },
				"resolve":       func() error { _, err := e.Resolve(t.Context(), "x"); return err },
			} {
				require.Error(t, call(), "%s: %s", answer, name)
			}
			// What has an empty answer, or none, must not panic.
			_, _ = e.Info(t.Context())
			_, _ = e.List(t.Context())
			_, _ = e.Volumes(t.Context())
			_, _ = c.Sample(t.Context())
			_ = c.Restarted(t.Context())
			_, err := c.witness(t.Context(), time.Now())
			if answer == "{}" {
				require.Error(t, err, "an event of nobody")
			}
		})
	}
}

// beingRemoved is an engine that is removing its container.
type beingRemoved struct{}

func (beingRemoved) RoundTrip(*http.Request) (*http.Response, error) {
	body := `{"message":"can not get logs from container which is dead or marked for removal"}`
	return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

// TestLogOfAContainerThatIsRemoved: the end of the streams can be seen before the removal by
// somebody else is over. Then the log cannot be read any more, and the engine is not lost.
func TestLogOfAContainerThatIsRemoved(t *testing.T) {
	api, err := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: beingRemoved{}}), client.WithVersion(OldestAPI))
	require.NoError(t, err)
	c := newInstance(newAdapter(api, nil), "c1", wire.Nonce{})
	c.stdout, c.stderr, c.begun, c.lost = newSink(nil), newSink(nil), true, true
	end, err := c.Wait(t.Context())
	require.ErrorIs(t, err, engine.ErrNoContainer)
	require.Equal(t, []string{"SIGKILL"}, end.Foreign)
}

// TestDoubtedConnection: a connection on which nobody accepts the job is given up if the container
// runs. Its init then ends without a job, or its program's output is in the log.
func TestDoubtedConnection(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		lost   bool
	}{
		"it runs":           {`{"Id":"c1","State":{"Status":"running","Running":true}}`, true},
		"it is paused":      {`{"Id":"c1","State":{"Status":"paused","Running":true,"Paused":true}}`, false},
		"nobody knows":      {`{}`, false},
		"it has ended":      {`{"Id":"c1","State":{"Status":"exited"}}`, false},
		"it was not begun":  {`{"Id":"c1","State":{"Status":"created"}}`, false},
		"it is another one": {`{"State":{"Status":"running","Running":true}}`, false},
	} {
		c := newInstance(answering(t, test.answer), "c1", wire.Nonce{})
		c.doubt(t.Context())
		require.Equal(t, test.lost, c.lost, name)
	}
}

// TestEngineLostAnswerOfInit: a connection can end before init's answer arrives although the program runs,
// and even after it has ended. The engine's log then has the answer, the output and the end.
func TestEngineLostAnswerOfInit(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	c := prepare(t, e, engineClass(t, e)).(*instance)
	heard := c.line
	heard.receiver.Begin(c.nonce, io.Discard, io.Discard)
	deaf := &line{receiver: wire.NewReceiver(), close: heard.close, stdin: heard.stdin, over: make(chan struct{})}
	c.line = deaf
	go func() {
		<-heard.receiver.Over()
		heard.cut()
		deaf.receiver.Close(nil)
		close(deaf.over)
	}()
	out := newAwaited("on\n")
	err := c.Start(t.Context(), shell("echo on; exit 3"), engine.Streams{Stdout: out, Stderr: io.Discard})
	require.ErrorIs(t, err, engine.ErrUnavailable, "a program may have run")
	end, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, end.Reported && end.Interrupted, "%+v", end)
	require.Equal(t, 3, end.ExitCode)
	require.Equal(t, "on\n", out.String())
}

// awaited collects output, and closes seen when it has a text.
type awaited struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	seen chan struct{}
}

func newAwaited(want string) *awaited { return &awaited{want: want, seen: make(chan struct{})} }

func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	had := strings.Contains(a.text.String(), a.want)
	a.text.Write(p)
	if !had && strings.Contains(a.text.String(), a.want) {
		close(a.seen)
	}
	return len(p), nil
}

func (a *awaited) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}
