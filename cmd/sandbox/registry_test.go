package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/rogpeppe/go-internal/testscript"
)

// registryCommand is "registry NAME [USER:PASSWORD]": an empty registry on the loopback, which
// $NAME names, for the rest of the script.
func registryCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: registry NAME [USER:PASSWORD]")
	}
	handler := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	if open := handler; len(args) == 2 {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user+":"+password != args[1] {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			open.ServeHTTP(w, r)
		})
	}
	server := httptest.NewServer(handler)
	ts.Defer(server.Close)
	ts.Setenv(args[0], strings.TrimPrefix(server.URL, "http://"))
}
