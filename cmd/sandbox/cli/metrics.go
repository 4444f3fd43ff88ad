package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/telemetry"
)

const (
	metricsFlag = "metrics-listen"
	metricsPath = "/metrics"
	// scrapePatience bounds the parts of a request for the metrics.
	scrapePatience = 10 * time.Second
	// maxScrapes bounds the requests at the same time.
	maxScrapes = 4
)

// MetricsFlag adds the flag --metrics-listen.
func MetricsFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, metricsFlag, "", "serve metrics for Prometheus at this loopback `address`, such as 127.0.0.1:9464; port 0 is any")
}

// A MetricsServer serves what the runs and jobs of a command do, while it goes on. Nil serves nothing:
// its methods do nothing then.
type MetricsServer struct {
	metrics *telemetry.Metrics
	jobs    *telemetry.Jobs
	web     *http.Server
	served  chan struct{}
}

// ServeMetrics serves metrics at a loopback address until Close is called, and says where. Without
// an address it returns nil.
func (a *App) ServeMetrics(ctx context.Context, address string) (*MetricsServer, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // nil is a server that serves nothing
	}
	listener, err := ListenLocal(ctx, metricsFlag, address)
	if err != nil {
		return nil, err
	}
	s := &MetricsServer{metrics: telemetry.NewMetrics(), served: make(chan struct{})}
	registry := prometheus.NewRegistry()
	if err := registry.Register(s.metrics); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s.web = &http.Server{
		Handler: showMetrics(registry), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: scrapePatience, ReadTimeout: scrapePatience, WriteTimeout: 2 * scrapePatience, IdleTimeout: time.Minute,
	}
	a.Say("metrics at http://%s%s", listener.Addr(), metricsPath)
	go func() {
		defer close(s.served)
		if err := s.web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.Warn("metrics are not served any more: %v", err)
		}
	}()
	return s, nil
}

// showMetrics answers requests of this machine for the metrics.
func showMetrics(registry prometheus.Gatherer) http.Handler {
	show := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapePatience})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !IsLocal(r):
			http.Error(w, "the Host or the Origin is not this machine", http.StatusForbidden)
		case r.URL.Path != metricsPath:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are possible", http.StatusMethodNotAllowed)
		default:
			show.ServeHTTP(w, r)
		}
	})
}

// Box returns a box whose runs are counted.
func (s *MetricsServer) Box(b sandbox.Box) sandbox.Box {
	if s == nil {
		return b
	}
	return s.metrics.Box(b)
}

// Expect says how many jobs are left to do, before the first of their events. A later call corrects
// an earlier one.
func (s *MetricsServer) Expect(jobs int) {
	if s == nil {
		return
	}
	if s.jobs != nil {
		s.jobs.Close()
	}
	s.jobs = s.metrics.Jobs(jobs)
}

// Event counts an event of the queue of the jobs.
func (s *MetricsServer) Event(e trial.Event) {
	if s != nil && s.jobs != nil {
		s.jobs.Event(e)
	}
}

// Close ends the server.
func (s *MetricsServer) Close() {
	if s != nil {
		_ = s.web.Close() // it ends with this process at the latest
		<-s.served
	}
}
