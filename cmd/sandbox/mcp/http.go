package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// endpoint is the path of the server.
	endpoint = "/mcp"
	// maxMessage bounds a message of a client, in bytes.
	maxMessage = 16 << 20
	// minToken is the least length of a token, in bytes.
	minToken = 16
	// idleSession is how long a session lasts without a request.
	idleSession = time.Hour
	// farewell is how long clients may take for their last answers.
	farewell = 5 * time.Second
)

// serveHTTP serves clients on this machine until ctx ends. Then the programs of all calls have
// ended.
func (v *server) serveHTTP(ctx context.Context, a *cli.App) error {
	token, random, err := v.token()
	if err != nil {
		return err
	}
	listener, err := cli.ListenLocal(ctx, "listen", v.listenAt)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: v.handler(token), ReadHeaderTimeout: 10 * time.Second}
	a.Say("listening on http://%s%s", listener.Addr(), endpoint)
	if random {
		a.Say("bearer token: %s", token)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving at %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	v.calls.close() // their context has ended
	for session := range v.Sessions() {
		_ = session.Close() // it is closed with its connections otherwise
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := web.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
		return web.Close()
	}
	return nil
}

// token is the bearer token of the file, or a random one.
func (v *server) token() (token string, random bool, err error) {
	if v.tokenFile == "" {
		return rand.Text(), true, nil
	}
	text, err := fsx.Read(v.tokenFile, 4<<10)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(v.tokenFile); err == nil && info.Mode().Perm()&0o077 != 0 {
			err = fmt.Errorf("others may use it (mode %04o)", info.Mode().Perm())
		}
	}
	token = strings.TrimSpace(string(text))
	abs, absErr := filepath.Abs(v.tokenFile)
	switch {
	case err != nil:
	case len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		err = fmt.Errorf("must have one word of at least %d characters", minToken)
	case absErr == nil && fsx.Within(fsx.RealPath(abs), v.root.path):
		err = errors.New("lies in the root, where agents can read it")
	}
	if err != nil {
		return "", false, tokenFile.Error(v.tokenFile, err)
	}
	return token, false, nil
}

var tokenFile = cli.FileKind{Noun: "token", Hint: "make one with: umask 077; openssl rand -hex 32 > token"}

// handler answers requests that have the token and come from this machine.
func (v *server) handler(token string) http.Handler {
	serve := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return v.Server },
		&sdk.StreamableHTTPOptions{SessionTimeout: idleSession, MaxRequestBodyBytes: maxMessage})
	want := sha256.Sum256([]byte("Bearer " + token))
	mux := http.NewServeMux()
	mux.HandleFunc(endpoint, func(w http.ResponseWriter, r *http.Request) {
		have := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		switch {
		case !cli.IsLocal(r):
			http.Error(w, "the Host or the Origin is not this machine", http.StatusForbidden)
			return
		case subtle.ConstantTimeCompare(have[:], want[:]) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the bearer token is missing or wrong", http.StatusUnauthorized)
			return
		}
		number, done := v.calls.post(r.Context())
		defer done()
		r.Header.Set(postHeader, number)
		if r.Method == http.MethodDelete {
			v.calls.endSession(r.Header.Get("Mcp-Session-Id"), func() { serve.ServeHTTP(w, r) })
			return
		}
		serve.ServeHTTP(w, r)
	})
	return mux
}
