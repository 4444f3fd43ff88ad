package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// A server is one session: its runs, its quotas, and the clients that are connected. Its methods
// may be called concurrently.
type server struct {
	*sdk.Server

	box      *guard
	store    *record.Store
	log      *trial.Log
	settings settings.Settings
	root     rootDir
	allRuns  bool
	// remote are the adapters whose calls this process may make.
	remote []string
	// listenAt and tokenFile are the flags --listen and --token-file.
	listenAt, tokenFile string
	calls               *calls
	places              places
	// staging is the directory of the scripts that run, and lock keeps it.
	staging string
	lock    io.Closer
	scripts atomic.Int64
}

const instructions = `evalbox runs untrusted programs in fresh containers without a network. ` +
	`A program finds its input read-only in ./input, and what it leaves in ./final is kept. ` +
	`A program that fails is a normal result. An error says "refused" if the call breaks a rule of this server, ` +
	`and "evalbox failed" if evalbox itself did. Paths are relative to the root of this server. ` +
	`Output is cut where a field says truncated: read the rest with read_output and read_file.`

// newServer makes a server. The settings have been bounded, and box is that of their runner. The
// caller closes it.
func newServer(ctx context.Context, box sandbox.Box, s settings.Settings, o options, log *slog.Logger, kill <-chan struct{}) (*server, error) {
	store := box.Store()
	if err := store.Prepare(); err != nil {
		return nil, err
	}
	root, err := openRoot(o.root, store.Dir())
	if err != nil {
		return nil, err
	}
	if err := root.holdsNone(s); err != nil {
		return nil, err
	}
	trials, err := trial.OpenLog(cli.TrialsDir(store.Dir()))
	if err != nil {
		return nil, err
	}
	session := "mcp-" + trial.NewID()
	v := &server{
		Server: sdk.NewServer(&sdk.Implementation{Name: "evalbox", Title: "evalbox", Version: "1"}, &sdk.ServerOptions{
			Instructions: instructions, Logger: log, Capabilities: &sdk.ServerCapabilities{},
		}),
		store: store, log: trials, settings: s, root: root, allRuns: o.allRuns, remote: o.remote, listenAt: o.listen, tokenFile: o.tokenFile, calls: newCalls(ctx, o.parallel),
	}
	if err := v.makeStaging(session); err != nil {
		return nil, err
	}
	v.box = &guard{Box: box, root: root, session: session, image: s.Image, own: []string{fsx.RealPath(v.staging)}, quota: &quota{limits: o.quota}, kill: kill}
	if err := v.addTools(o); err != nil {
		return nil, errors.Join(err, v.close())
	}
	v.addResources()
	return v, nil
}

// stagingDir has a directory for each server that runs.
const stagingDir = "mcp"

// makeStaging makes the directory of the scripts, and removes those of servers that are dead.
func (v *server) makeStaging(session string) error {
	dir := filepath.Join(v.store.Dir(), stagingDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return record.StateError(dir, "cannot be made", err)
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		return record.StateError(dir, "cannot be read", err)
	}
	for _, entry := range old {
		path := filepath.Join(dir, entry.Name())
		if lock, err := fsx.LockPath(path); err == nil {
			_ = errors.Join(fsx.Remove(path), lock.Close()) // the next server tries again
		}
	}
	v.staging = filepath.Join(dir, session)
	err = os.Mkdir(v.staging, 0o700)
	if err == nil {
		v.lock, err = fsx.LockPath(v.staging)
	}
	if err != nil {
		return record.StateError(v.staging, "cannot be made", err)
	}
	return nil
}

// stage writes the script of a run to a directory of its own. The name of the file is always the
// same: it is a part of the class of a container.
func (v *server) stage(code string) (script string, remove func(), err error) {
	dir := filepath.Join(v.staging, strconv.FormatInt(v.scripts.Add(1), 10))
	script = filepath.Join(dir, "script.py")
	if err = os.Mkdir(dir, 0o700); err == nil {
		err = os.WriteFile(script, []byte(code), 0o600)
	}
	if err != nil {
		return "", nil, record.StateError(script, "cannot be written", err)
	}
	return script, func() { _ = fsx.Remove(dir) }, nil // the whole staging directory goes at the end
}

// close waits for the calls, whose context must have ended, and removes the scripts.
func (v *server) close() error {
	v.calls.close()
	return errors.Join(fsx.Remove(v.staging), v.lock.Close())
}
