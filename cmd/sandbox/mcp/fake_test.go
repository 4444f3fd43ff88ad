package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// patience bounds a wait of a test for something that must happen.
const patience = time.Minute

// A world is a server on a fake engine, with its root and its state directory.
type world struct {
	*server

	fake        *enginetest.Fake
	runner      *sandbox.Runner
	root, state string
	stop        context.CancelCauseFunc
}

// begin makes a server whose programs are a function.
func begin(t *testing.T, program func(p *enginetest.Program) int, change ...func(*options, *settings.Settings)) *world {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // not the settings of the user who runs the tests
	dir := t.TempDir()
	w := &world{fake: enginetest.NewFake(program), root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state")}
	w.fake.Own = ""
	require.NoError(t, os.Mkdir(w.root, 0o755))
	s, err := settings.Load("", nil)
	require.NoError(t, err)
	o := options{root: w.root, parallel: 8, quota: quotaLimits{100_000, time.Hour, policy.GiB}}
	for _, c := range change {
		c(&o, &s)
	}
	s.StateDir, s.Image = w.state, "debian"
	s, err = bounded(s)
	require.NoError(t, err)
	w.runner, err = sandbox.New(sandbox.WithEngine(w.fake), sandbox.WithStateDir(w.state), sandbox.WithPolicy(s.Policy()))
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	w.stop = stop
	w.server, err = newServer(ctx, w.runner, s, o, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		stop(errClosing)
		require.NoError(t, w.close())
		require.NoError(t, w.runner.Close())
		require.NoDirExists(t, w.staging)
		w.fake.Do(func(f *enginetest.Fake) { require.Empty(t, f.Misuse) })
	})
	return w
}

// client connects a client in this process.
func (w *world) client(t *testing.T, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	_, err := w.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, o).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// reply is the answer of a tool.
type reply struct {
	data    map[string]any
	text    string
	isError bool
}

func ask(t *testing.T, session *sdk.ClientSession, tool string, args map[string]any) reply {
	t.Helper()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	return read(t, res)
}

func read(t *testing.T, res *sdk.CallToolResult) reply {
	t.Helper()
	text, err := json.Marshal(res.StructuredContent)
	require.NoError(t, err)
	r := reply{isError: res.IsError, text: res.Content[0].(*sdk.TextContent).Text}
	require.NoError(t, json.Unmarshal(text, &r.data))
	return r
}

// refused demands that a call breaks a rule, and returns its text.
func refused(t *testing.T, session *sdk.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	r := ask(t, session, tool, args)
	require.True(t, r.isError, "%s %v: %s", tool, args, r.text)
	require.Regexp(t, "^refused: ", r.text)
	return r.text
}

func prints(text string) func(*enginetest.Program) int {
	return func(p *enginetest.Program) int { p.Print(text); return 0 }
}

// onlyRun is the only record of a run.
func (w *world) onlyRun(t *testing.T) string {
	t.Helper()
	ids, err := w.store.IDs()
	require.NoError(t, err)
	require.Len(t, ids, 1)
	return ids[0]
}
