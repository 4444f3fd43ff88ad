// Package browse is a web page of this machine's runs and trials: an [http.Handler] over the
// records of runs and the log of trials. It keeps no data of its own on the disk.
//
// Everything that programs wrote is untrusted here: html/template escapes it, characters that
// control or reorder text are made visible, every amount is bounded, and the content security
// policy permits no script but ours.
package browse

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Options of a [Server].
type Options struct {
	// Store has the runs.
	Store *record.Store
	// Trials has the jobs; nil for none.
	Trials *trial.Log
	// GPUs lists the leases and the queue; nil if they cannot be read.
	GPUs func(context.Context) (gpu.Listing, error)
	// Host is the address that requests must name, such as "127.0.0.1:8765".
	Host string
	// Token is the secret of the URL: anyone who has it may read everything here.
	Token string
	// Since reads the time of a filter, such as "1h" or "2026-01-02".
	Since func(text string) (time.Time, error)
	// Control, if set, permits changes. Without it, their routes do not exist.
	Control *Control
}

// Control is what a page with control may do besides asking runs to end.
type Control struct {
	// Rerun starts `sandbox run` with these arguments in the background, and returns the ID of
	// the run.
	Rerun func(ctx context.Context, args []string) (id string, err error)
}

// Server answers requests of one user's browser. It is for one listener.
type Server struct {
	Options
	guard    guard
	index    *index
	trials   *trials
	streams  chan struct{}
	previews chan struct{}
	ctx      context.Context //nolint:containedctx // the life of the server
	handler  http.Handler
}

// Bounds of a server.
const (
	// maxStreams bounds the live connections: one for each visible tab.
	maxStreams = 32
	// maxPreviews bounds the output files that are in memory at the same time.
	maxPreviews = 2
)

// New returns a server that reads until ctx ends. It begins to read the records at once.
func New(ctx context.Context, o Options) *Server {
	s := &Server{
		Options: o, guard: newGuard(o.Host, o.Token), index: newIndex(o.Store), trials: &trials{log: o.Trials},
		streams: make(chan struct{}, maxStreams), previews: make(chan struct{}, maxPreviews), ctx: ctx,
	}
	go s.index.refresh(0)
	s.handler = s.guard.protect(s.routes())
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, handle := range map[string]http.HandlerFunc{
		"/{$}":                         s.runsPage,
		"/live":                        s.runsLive,
		"/runs/{id}":                   s.runPage,
		"/runs/{id}/live":              s.runLive,
		"/runs/{id}/log":               s.logPage,
		"/runs/{id}/raw/{stream}":      s.rawLog,
		"/runs/{id}/files/{n}":         s.preview(s.filePage),
		"/runs/{id}/files/{n}/picture": s.preview(s.picture),
		"/compare":                     s.comparePage,
		"/trials":                      s.trialsPage,
		"/trials/live":                 s.trialsLive,
		"/trials/{id}":                 s.jobPage,
		"/batches/{id}":                s.batchPage,
		"/batches/{id}/live":           s.batchLive,
		"/queue":                       s.queuePage,
		"/queue/live":                  s.queueLive,
		"/static/{name}":               static,
	} {
		mux.HandleFunc("GET "+path, handle)
	}
	if s.Control != nil {
		mux.HandleFunc("POST /runs/{id}/stop", s.stop)
		mux.HandleFunc("POST /runs/{id}/rerun", s.rerun)
	}
	return mux
}

// cached is a value that is made again once it is old.
type cached[T any] struct {
	mu   sync.Mutex
	at   time.Time
	made T
	err  error
}

// get returns the value; make makes it if it is older than age.
func (c *cached[T]) get(age time.Duration, make func() (T, error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) > age {
		c.made, c.err = make()
		c.at = time.Now()
	}
	return c.made, c.err
}
