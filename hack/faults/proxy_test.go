//go:build linux

package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// behindProxy serves an engine that answers {"StartedAt": ...} to everything, and echoes
// what is attached. It returns a client that goes through a proxy with the gate, and the
// number of requests that the engine has seen.
func behindProxy(t *testing.T, g *gate) (*apiProxy, func(method, path string) (string, error), *int) {
	t.Helper()
	dir := t.TempDir()
	engine, err := net.Listen("unix", filepath.Join(dir, "e"))
	require.NoError(t, err)
	requests := 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"StartedAt":"2026-01-02T03:04:05.5Z","time":100,"asked":"`+r.URL.Query().Get("since")+`"}`)
	})}
	go func() { _ = server.Serve(engine) }()
	p, err := newProxy(filepath.Join(dir, "p"), filepath.Join(dir, "e"), g)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.close()
		require.NoError(t, server.Close())
	})
	call := func(method, path string) (string, error) {
		conn, err := net.Dial("unix", filepath.Join(dir, "p"))
		if err != nil {
			return "", err
		}
		defer conn.Close()
		r, err := http.NewRequest(method, "http://x"+path, nil)
		if err != nil {
			return "", err
		}
		if err := r.Write(conn); err != nil {
			return "", err
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return http.StatusText(answer.StatusCode) + " " + string(text), err
	}
	return p, call, &requests
}

// TestCuts: each cut does what its name says, once, and leaves every other request alone.
func TestCuts(t *testing.T) {
	const whole = `OK {"StartedAt":"2026-01-02T03:04:05.5Z","time":100,"asked":""}`
	for name, c := range map[string]struct {
		how   cut
		want  string
		seen  int
		fails bool
	}{
		"none":      {notCut, whole, 1, false},
		"refused":   {refused, "", 0, true},
		"swallowed": {swallowed, "", 1, true},
		"halved":    {halved, "", 1, true},
		"emptied":   {emptied, "OK {}", 1, false},
		"failed":    {failed, "Internal Server Error something went wrong", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(apiCall{"POST", container64 + "/start"}, beforeRequest)
			g.how = c.how
			g.armed.Store(true)
			_, call, seen := behindProxy(t, g)
			answer, err := call("POST", "/v1.41/containers/create")
			require.NoError(t, err)
			require.Equal(t, whole, answer)
			go func() {
				<-g.reached
				g.open()
			}()
			answer, err = call("POST", "/v1.41/containers/abc/start")
			require.Equal(t, c.fails, err != nil, "%v", err)
			if !c.fails {
				require.Equal(t, c.want, answer)
			}
			require.Equal(t, c.seen, *seen-1)
			answer, err = call("POST", "/v1.41/containers/abc/start")
			require.NoError(t, err)
			require.Equal(t, whole, answer)
		})
	}
}

// TestSteppedClock: answers show another time, and questions about the past are understood.
func TestSteppedClock(t *testing.T) {
	p, call, _ := behindProxy(t, nil)
	p.stepClock(time.Hour)
	answer, err := call("GET", "/events?since=7200.5")
	require.NoError(t, err)
	require.Equal(t, `OK {"StartedAt":"2026-01-02T04:04:05.5Z","time":3700,"asked":"3600.5"}`, answer)
}

// TestCutConnection: while the connection is cut no request comes through, and afterwards all do.
func TestCutConnection(t *testing.T) {
	p, call, seen := behindProxy(t, nil)
	p.cut(true)
	_, err := call("GET", "/_ping")
	require.Error(t, err)
	require.Zero(t, *seen)
	p.cut(false)
	_, err = call("GET", "/_ping")
	require.NoError(t, err)
	require.Equal(t, 1, *seen)
	require.True(t, p.jobSent().IsZero()) // only an attached connection has a job
}
