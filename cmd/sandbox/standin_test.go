package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// kernelHere is the kernel of this machine: the engine of a test is one of this machine if it tells of the same.
func kernelHere() (string, error) {
	var name unix.Utsname
	err := unix.Uname(&name)
	return unix.ByteSliceToString(name.Release[:]), err
}

// standIn answers on a socket as an engine of the API 1.50 that describes itself so,
// and knows nothing else. name is its header Server; empty for none.
func standIn(socket, info, name string) (*httptest.Server, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.50")
		if name != "" {
			w.Header().Set("Server", name)
		}
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
	kernel, err := kernelHere()
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "e.sock")
	server, err := standIn(socket, strings.ReplaceAll(info, "KERNEL", kernel), "")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "unix://"+socket)
}

// standinCommand is "standin FILE [NAME]": the engine of the rest of the script is one that
// describes itself as the file says, where KERNEL is the kernel of this machine.
func standinCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: standin FILE [NAME]")
	}
	kernel, err := kernelHere()
	ts.Check(err)
	socket := ts.MkAbs(args[0] + ".sock")
	server, err := standIn(socket, strings.ReplaceAll(ts.ReadFile(args[0]), "KERNEL", kernel), strings.Join(args[1:], ""))
	ts.Check(err)
	ts.Defer(server.Close)
	ts.Setenv("DOCKER_HOST", "unix://"+socket)
}
