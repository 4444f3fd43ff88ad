package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// kernelOfEngine is the kernel that the engine of the tests tells of: this one.
func kernelOfEngine() (string, error) {
	engine, err := docker.FromEnv()
	if err != nil {
		return "", err
	}
	defer engine.Close()
	info, err := engine.Info(context.Background())
	return info.Kernel, err
}

// standIn answers on a socket as an engine of the API 1.50 that describes itself so,
// and knows nothing else.
func standIn(socket, info string) (*httptest.Server, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.50")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case strings.HasSuffix(r.URL.Path, "/info"):
			_, _ = w.Write([]byte(info))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	server.Listener = listener
	server.Start()
	return server, nil
}

// standInHere makes a stand-in the engine of a test.
func standInHere(t *testing.T, info string) {
	t.Helper()
	kernel, err := kernelOfEngine()
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "e.sock")
	server, err := standIn(socket, strings.ReplaceAll(info, "KERNEL", kernel))
	require.NoError(t, err)
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "unix://"+socket)
}

// standinCommand is "standin FILE": the engine of the rest of the script is one that
// describes itself as the file says, where KERNEL is the kernel of this machine.
func standinCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: standin FILE")
	}
	kernel, err := kernelOfEngine()
	ts.Check(err)
	socket := ts.MkAbs(args[0] + ".sock")
	server, err := standIn(socket, strings.ReplaceAll(ts.ReadFile(args[0]), "KERNEL", kernel))
	ts.Check(err)
	ts.Defer(server.Close)
	ts.Setenv("DOCKER_HOST", "unix://"+socket)
}
