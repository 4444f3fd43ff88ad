package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/record"
)

// An agent is a client of `sandbox mcp` on the real engine.
type agent struct {
	*sdk.ClientSession

	root  string
	store *record.Store
	ctx   context.Context // bounds the whole test
}

// mcpCommand is the server with a state directory and a root of its own.
func mcpCommand(t *testing.T, args ...string) (*exec.Cmd, *agent) {
	t.Helper()
	program, err := exec.LookPath("sandbox") // see TestMain
	require.NoError(t, err)
	dir := t.TempDir()
	a := &agent{root: filepath.Join(dir, "root")}
	a.store, err = record.Open(filepath.Join(dir, "state"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(a.root, "task", "input"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(a.root, "task", "input", "train.csv"), []byte("1\n2\n3\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(a.root, "task", "task.yaml"), []byte("competition_id: sums\ntask_type: tabular\ndata_modality: tabular\n"+
		"evaluation_metric: sum\nmetric_direction: maximize\ndescription: Print the sum.\n"), 0o600))
	var stop context.CancelFunc
	a.ctx, stop = context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(stop)
	cmd := exec.CommandContext(a.ctx, program, append([]string{"mcp", "--root", a.root}, args...)...)
	cmd.Env = append(os.Environ(), "SANDBOX_STATE_DIR="+a.store.Dir(), "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"))
	return cmd, a
}

func (a *agent) call(t *testing.T, tool string, args map[string]any) map[string]any {
	t.Helper()
	res, err := a.CallTool(a.ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content[0].(*sdk.TextContent).Text)
	text, err := json.Marshal(res.StructuredContent)
	require.NoError(t, err)
	var data map[string]any
	require.NoError(t, json.Unmarshal(text, &data))
	return data
}

// work does what an agent does: a run, an evaluation, their files.
func (a *agent) work(t *testing.T) {
	t.Helper()
	r := a.call(t, "run_python", map[string]any{
		"code":  "import sys\nprint(sum(int(line) for line in open('input/train.csv')), sys.argv[1:])\nopen('final/a.txt', 'w').write('é')",
		"input": "task/input", "args": []string{"x"}, "memory": "256m",
	})
	require.Equal(t, []any{"exited", "6 ['x']\n"}, []any{r["status"], r["stdout"]})
	require.Equal(t, "é", a.call(t, "read_file", map[string]any{"id": r["id"], "path": "a.txt"})["content"])
	r = a.call(t, "run_python", map[string]any{"code": "raise SystemExit(7)"})
	require.Equal(t, 7.0, r["exit_code"])

	e := a.call(t, "evaluate_solution", map[string]any{
		"script":    "total = sum(int(line) for line in open('input/train.csv'))\nopen('final/out.txt', 'w').write('done')\nprint('Final Validation Performance:', total)",
		"task_file": "task/task.yaml", "timeout_seconds": 60,
	})
	require.Equal(t, []any{"passed", 6.0}, []any{e["verdict"], e["score"]})
	run := e["runs"].([]any)[0].(map[string]any)["id"]
	require.Equal(t, "done", a.call(t, "read_file", map[string]any{"id": run, "path": "out.txt"})["content"])
	require.Len(t, a.call(t, "list_runs", nil)["runs"], 3)
}

// begins starts a call whose program goes on until it is asked to end, and returns the ID of its run.
func (a *agent) begins(ctx context.Context, t *testing.T) string {
	t.Helper()
	go func() {
		_, _ = a.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": []string{"sleep", "120"}, "name": "sleeper"}})
	}()
	var runs []any
	require.Eventually(t, func() bool {
		runs = a.call(t, "list_runs", map[string]any{"name": "sleeper", "status": "running"})["runs"].([]any)
		return len(runs) == 1
	}, time.Minute, 10*time.Millisecond)
	return runs[0].(map[string]any)["id"].(string)
}

// isCanceled demands that a run is recorded as canceled.
func (a *agent) isCanceled(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := a.store.Load(id)
		return err == nil && r.Result != nil && r.Result.Status.String() == "canceled"
	}, time.Minute, 10*time.Millisecond)
}

func TestEngineMCPOverStdio(t *testing.T) {
	cmd, a := mcpCommand(t)
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	a.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(a.ctx, &sdk.IOTransport{Reader: out, Writer: in}, nil)
	require.NoError(t, err)
	a.work(t)
	ctx, cancel := context.WithCancel(a.ctx)
	id := a.begins(ctx, t)
	cancel()
	a.isCanceled(t, id)
	id = a.begins(a.ctx, t)
	require.NoError(t, in.Close()) // the client goes, whatever it waits for
	require.NoError(t, cmd.Wait(), errs.String())
	a.isCanceled(t, id)
	require.Empty(t, errs.String())
	left, err := os.ReadDir(filepath.Join(a.store.Dir(), "mcp"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestEngineMCPOverHTTP(t *testing.T) {
	cmd, a := mcpCommand(t, "--listen", "127.0.0.1:0")
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := bufio.NewReader(errs)
	line := func(pattern string) string {
		text, err := said.ReadString('\n')
		require.NoError(t, err)
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		require.NotNil(t, found, text)
		return found[1]
	}
	url := line(`^sandbox: listening on (http://127\.0\.0\.1:\d+/mcp)\n$`)
	token := line(`^sandbox: bearer token: (\w+)\n$`)
	a.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(a.ctx, &sdk.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearerToken(token)},
	}, nil)
	require.NoError(t, err)
	a.work(t)
	id := a.begins(a.ctx, t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(said)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), string(rest))
	require.Empty(t, string(rest))
	a.isCanceled(t, id)
}

// bearerToken adds itself to requests.
type bearerToken string

func (b bearerToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
