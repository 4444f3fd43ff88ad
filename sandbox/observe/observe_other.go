//go:build !linux

package observe

import (
	"errors"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// errNotLinux says why nothing is observed on other systems.
var errNotLinux = errors.New("programs can be observed from Linux only")

// Unobservable says why programs of an engine cannot be observed from here.
func Unobservable(engine.Info) string { return errNotLinux.Error() }

// pathWatch is for Linux.
type pathWatch struct{ begun chan struct{} }

func newPathWatch(string) (*pathWatch, error)           { return nil, errNotLinux }
func (w *pathWatch) add(string, spec.WatchedPath) error { return errNotLinux }
func (w *pathWatch) watched() []string                  { return nil }
func (w *pathWatch) stop() ([]string, error)            { return nil, errNotLinux }
func (w *pathWatch) close() error                       { return nil }

// routeCounters is for Linux.
type routeCounters struct{}

func openRouteCounters(int) (*routeCounters, error) { return nil, errNotLinux }
func (c *routeCounters) attempts() (int64, error)   { return 0, errNotLinux }
func (c *routeCounters) close() error               { return nil }
