//go:build linux

package adapter_test

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// These tests run on the real engine with the debian image, and with an image made of it that
// has an MCP server and a Go toolchain. Without an engine they fail: `make test` makes it.

// toolbox is the harness of a test.
type toolbox struct {
	*contract.Harness
	t     *testing.T
	root  string
	image string
}

// newToolbox carries out contracts with the adapters of a directory and the shipped ones, and
// the tools of the registry document.
func newToolbox(t *testing.T, image, tools string, adapters map[string]string) *toolbox {
	t.Helper()
	dir := t.TempDir()
	root, own := filepath.Join(dir, "root"), filepath.Join(dir, "adapters")
	require.NoError(t, os.Mkdir(root, 0o755))
	require.NoError(t, os.Mkdir(own, 0o700))
	for name, text := range adapters {
		require.NoError(t, os.WriteFile(filepath.Join(own, name), []byte(text), 0o600))
	}
	found, err := adapter.Open(own, configs.Adapters(), adapter.OpenCache(filepath.Join(dir, "cache"), false))
	require.NoError(t, err)
	found.LookupEnv = func(name string) (string, bool) { return "secret-of-" + name, true }
	known, err := registry.Parse([]byte(tools), "tools.yaml")
	require.NoError(t, err)
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	permitted := policy.Policy{AllowEgress: policy.API, AllowPrivateEgress: true}
	runner := runnertest.New(t, sandbox.WithPolicy(permitted))
	h, err := contract.New(runner, contract.Options{
		Rules: contract.Rules{Registry: known, Profiles: profiles, Adapters: found}, Root: root, Policy: permitted,
		Request: sandbox.Request{Image: image}, Approvals: contract.Approvals{Dir: filepath.Join(dir, "approvals")},
		Jitter: func(time.Duration) time.Duration { return 0 },
	})
	require.NoError(t, err)
	return &toolbox{h, t, root, image}
}

// call calls an adapter, and checks the wire form of the outcome.
func (b *toolbox) call(c contract.Contract) contract.Outcome {
	b.t.Helper()
	o, err := b.Run(b.t.Context(), contract.Job{Contract: &c})
	require.NoError(b.t, err)
	text, err := o.Encode()
	require.NoError(b.t, err)
	schematest.Valid(b.t, schematest.Load(b.t, contract.OutcomeSchemaJSON), text)
	return o
}

func (b *toolbox) write(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.root, name), []byte(text), 0o644))
}

// The shipped adapter for ripgrep, with the image that is shipped.
func TestEngineRipgrep(t *testing.T) {
	b := newToolbox(t, "", string(configs.Tools()), nil)
	b.write("a.txt", "one\nneedle; rm -rf $HOME\n")
	b.write("b.txt", "nothing\n")
	call := func(parameters map[string]any) contract.Outcome {
		return b.call(contract.Contract{ToolID: "TL-003", AdapterID: "ADP-001", Inputs: contract.Inputs{Parameters: parameters}})
	}
	o := call(map[string]any{"pattern": "NEEDLE; rm", "path": ".", "ignore_case": true})
	require.True(t, o.Success, o.Error)
	require.Equal(t, []string{"rg", "--json", "--no-heading", "NEEDLE; rm", ".", "-i"}, o.Executed.Command)
	require.Equal(t, int64(60000), o.Executed.TimeoutMS)
	require.Equal(t, int64(256), o.Executed.MemoryMB)
	lines, ok := o.Call.Value.([]any)
	require.True(t, ok)
	require.Len(t, lines, 4, "begin, match, end, summary")
	require.Contains(t, fmt.Sprint(lines[1]), "needle; rm -rf $HOME")
	require.Equal(t, []contract.Attempt{{AdapterID: "ADP-001", Status: "exited", Code: new(0), RunID: o.Evidence.RunID, DurationMS: o.DurationMS}}, o.Call.Attempts)

	o = call(map[string]any{"pattern": "missing"})
	require.False(t, o.Success)
	require.Equal(t, 1, *o.Call.Code)
	require.Nil(t, o.Call.Value)

	// Without an ID and a command, it is the first active adapter of the tool.
	o = b.call(contract.Contract{ToolID: "TL-003", Inputs: contract.Inputs{Parameters: map[string]any{"pattern": "one"}}})
	require.Equal(t, "ADP-001", o.AdapterID)
	// A command runs as it stands.
	o = b.call(contract.Contract{ToolID: "TL-003", Inputs: contract.Inputs{Command: "rg", Arguments: []string{"one", "."}}})
	require.Nil(t, o.Call)
	require.Equal(t, "./a.txt:one\n", o.Stdout)
	o = b.call(contract.Contract{ToolID: "TL-003", AdapterID: "ADP-001", Inputs: contract.Inputs{Command: "grep"}})
	require.Equal(t, contract.StatusRefused, o.Status)
}

// The shipped adapter for web APIs, with the address of a server of the test in place of its own.
func TestEngineREST(t *testing.T) {
	var calls []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+r.URL.RequestURI())
		switch {
		case r.Header.Get("Authorization") != "Bearer secret-of-ADP_002_TOKEN":
			http.Error(w, "who are you", http.StatusUnauthorized)
		case len(calls) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"data": {"created": %s, "echo": %q}}`, body, r.Header.Get("Authorization"))
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"data": {"path": %q}}`, r.URL.EscapedPath())
		}
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	shipped, err := fs.ReadFile(configs.Adapters(), "adp-002-rest.yaml")
	require.NoError(t, err)
	document := strings.NewReplacer("https://api.example.com", server.URL, `"api.example.com"`, quote(address.Host)).Replace(string(shipped))
	tools := strings.Replace(string(configs.Tools()), "endpoints: [api.example.com]", "endpoints: ["+quote(address.Host)+"]", 1)
	b := newToolbox(t, "", tools, map[string]string{"rest.yaml": document})
	call := func(operation string, parameters map[string]any) contract.Outcome {
		return b.call(contract.Contract{ToolID: "TL-100", AdapterID: "ADP-002", Inputs: contract.Inputs{Operation: operation, Parameters: parameters}})
	}
	o := call("get_resource", map[string]any{"id": "a/b c"})
	require.True(t, o.Success, o.Error)
	require.Equal(t, map[string]any{"path": "/v1/resources/a%2Fb%20c"}, o.Call.Value)
	require.Equal(t, contract.StatusAnswered, o.Status)
	require.Len(t, o.Call.Attempts, 2, "status 503 is tried again")
	require.Equal(t, http.StatusServiceUnavailable, *o.Call.Attempts[0].Code)
	require.Equal(t, http.StatusOK, *o.Call.Code)
	require.Nil(t, o.Executed)
	require.Equal(t, []string{"GET /v1/resources/a%2Fb%20c", "GET /v1/resources/a%2Fb%20c"}, calls)

	o = call("create_resource", map[string]any{"name": "x"})
	require.True(t, o.Success, o.Error)
	text, err := o.Encode()
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret-of-")
	require.Contains(t, string(text), "Bearer [secret]")

	o = call("get_resource", nil)
	require.Equal(t, contract.StatusRefused, o.Status)
	// The contract narrows the network further: nothing is sent.
	before := len(calls)
	o = b.call(contract.Contract{ToolID: "TL-100", AdapterID: "ADP-002", Inputs: contract.Inputs{Operation: "list_resources"},
		Sandbox: contract.Sandbox{Network: contract.Network{Enabled: new(false)}}})
	require.Equal(t, contract.StatusRefused, o.Status)
	require.Len(t, calls, before)
}

func quote(text string) string { return strconv.Quote(text) }

// Tools that the shipped image does not have.
func TestEngineOtherTools(t *testing.T) {
	image := toolImage(t)
	t.Run("an MCP server", func(t *testing.T) { testMCPServer(t, image) })
	t.Run("libraries", func(t *testing.T) {
		if testing.Short() {
			t.Skip("half a minute: make test-all")
		}
		testLibraries(t, image)
	})
}

// The shipped adapter for an MCP server, which runs in the sandbox.
func testMCPServer(t *testing.T, image string) {
	t.Helper()
	b := newToolbox(t, image, string(configs.Tools()), nil)
	b.write("note.txt", "hello")
	b.write("dot.png", "iVBORw0KGgo=")
	call := func(operation string, parameters map[string]any, level string) contract.Outcome {
		return b.call(contract.Contract{ToolID: "TL-200", AdapterID: "ADP-003", Inputs: contract.Inputs{Operation: operation, Parameters: parameters},
			Sandbox: contract.Sandbox{Filesystem: contract.Filesystem{Level: level}}})
	}
	o := call("read_file", map[string]any{"path": "/repo/note.txt"}, "")
	require.True(t, o.Success, o.Error)
	require.Equal(t, []any{map[string]any{"type": "text", "text": "hello"}}, o.Call.Value)
	require.Equal(t, "filesystem-server", o.Executed.Command[0])

	o = call("write_file", map[string]any{"path": "/repo/new.txt", "content": "from the server"}, "standard")
	require.True(t, o.Success, o.Error)
	written, err := os.ReadFile(filepath.Join(b.root, "new.txt"))
	require.NoError(t, err)
	require.Equal(t, "from the server", string(written))

	o = call("read_file", map[string]any{"path": "/repo/dot.png"}, "")
	require.True(t, o.Success, o.Error)
	require.Len(t, o.Artifacts, 1)
	require.Equal(t, "image/png", o.Artifacts[0].MIMEType)
	require.Equal(t, "iVBORw0KGgo=", o.Artifacts[0].Data)

	// Its files are those that the contract opens.
	o = call("write_file", map[string]any{"path": "/repo/other.txt", "content": "x"}, "minimal")
	require.False(t, o.Success)
	require.Contains(t, o.Error, "the tool reported an error: ")
	require.NoFileExists(t, filepath.Join(b.root, "other.txt"))

	o = call("write_file", map[string]any{"path": "/die", "content": ""}, "")
	require.False(t, o.Success)
	require.Equal(t, 3, *o.Call.Code)
	require.Len(t, o.Call.Attempts, 1, "the server may have carried it out")

	o = b.call(contract.Contract{ToolID: "TL-200", AdapterID: "ADP-003", Inputs: contract.Inputs{Operation: "write_file", Parameters: map[string]any{"path": "/hang", "content": ""}},
		Sandbox: contract.Sandbox{TimeoutMS: new(int64(2000))}})
	require.True(t, o.TimedOut)
	require.False(t, o.Success)

	o = call("tools/list", nil, "")
	require.True(t, o.Success, o.Error)
	require.Len(t, o.Call.Value, 3)
}

// Libraries of Python and Go.
func testLibraries(t *testing.T, image string) {
	t.Helper()
	tools := `schema: evalbox/tools/v1
tools:
  - {tool_id: T-PY, name: py, version: "1", owner: o, status: active, approval: {approver: a, date: "2026-11-01"},
     scope: {commands: [python3], data_access: none, network: offline, filesystem: minimal}}
  - {tool_id: T-GO, name: go, version: "1", owner: o, status: active, approval: {approver: a, date: "2026-11-01"},
     scope: {commands: [go], data_access: none, network: offline, filesystem: minimal}}
  - {tool_id: T-JS, name: js, version: "1", owner: o, status: active, approval: {approver: a, date: "2026-11-01"},
     scope: {commands: [node], data_access: none, network: offline, filesystem: minimal}}
`
	document := func(id, tool, language, pkg, functions string) string {
		return fmt.Sprintf(`{"adapter_id": %q, "name": "x", "version": "1.0.0", "tool_id": %q, "type": "sdk",
"interface": {"sdk": {"language": %q, "package": %q, "function_mapping": %s}},
"sandbox_override": {"timeout_ms": 300000, "memory_mb": 2048}}`, id, tool, language, pkg, functions)
	}
	b := newToolbox(t, image, tools, map[string]string{
		"py.json": document("PY", "T-PY", "python", "numpy", `{"mean": "mean(a)", "linspace": "linspace", "fail": "linalg.inv(a)"}`),
		"go.json": document("GO", "T-GO", "go", "strings", `{"repeat": "Repeat(s, count)", "fields": "Fields(s)"}`),
		"js.json": document("JS", "T-JS", "node", "path", `{"join": "join(a, b)"}`),
	})
	call := func(id, tool, operation string, parameters map[string]any) contract.Outcome {
		return b.call(contract.Contract{ToolID: tool, AdapterID: id, Inputs: contract.Inputs{Operation: operation, Parameters: parameters},
			Sandbox: contract.Sandbox{CPUCores: new(int64(2))}})
	}
	o := call("PY", "T-PY", "mean", map[string]any{"a": []any{int64(1), int64(2), int64(6)}})
	require.True(t, o.Success, o.Error)
	require.Equal(t, "3", fmt.Sprint(o.Call.Value))
	o = call("PY", "T-PY", "linspace", map[string]any{"start": int64(0), "stop": int64(1), "num": int64(3)})
	require.True(t, o.Success, o.Error)
	require.Equal(t, "[0 0.5 1]", fmt.Sprint(o.Call.Value))
	o = call("PY", "T-PY", "fail", map[string]any{"a": []any{[]any{int64(0)}}})
	require.False(t, o.Success)
	require.Contains(t, o.Error, "LinAlgError: Singular matrix")

	o = call("GO", "T-GO", "repeat", map[string]any{"s": "ab", "count": int64(3)})
	require.True(t, o.Success, o.Error)
	require.Equal(t, "ababab", o.Call.Value)

	o = call("JS", "T-JS", "join", map[string]any{"a": "x", "b": "y"})
	require.False(t, o.Success)
	require.Contains(t, o.Error, "the image has no node")
}

// toolImage is the image debian with filesystem-server and the Go toolchain of this machine. The end
// of the test removes it.
func toolImage(t *testing.T) string {
	t.Helper()
	server := filepath.Join(t.TempDir(), "filesystem-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", server, "./testdata/filesystem-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { _ = api.Close() })
	plan, err := runnertest.New(t).Plan(t.Context(), sandbox.Request{Image: "debian", Command: []string{"true"}})
	require.NoError(t, err)
	created, err := api.ContainerCreate(t.Context(), &container.Config{Image: plan.Class.Image.ID, Cmd: []string{"true"}}, nil, nil, nil, "")
	require.NoError(t, err)
	defer func() {
		require.NoError(t, api.ContainerRemove(context.Background(), created.ID, container.RemoveOptions{Force: true}))
	}()
	reader, writer := io.Pipe()
	go func() { _ = writer.CloseWithError(writeTools(writer, server)) }() // the reader has the error
	require.NoError(t, api.CopyToContainer(t.Context(), created.ID, "/", reader, container.CopyToContainerOptions{}))
	tag := fmt.Sprintf("evalbox-test/tools:%d", os.Getpid())
	_, err = api.ContainerCommit(t.Context(), created.ID, container.CommitOptions{Reference: tag})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := api.ImageRemove(context.Background(), tag, image.RemoveOptions{Force: true})
		require.NoError(t, err)
	})
	return tag
}

// writeTools writes the files of the image.
func writeTools(to io.Writer, server string) error {
	out := tar.NewWriter(to)
	text, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	goroot := strings.TrimSpace(string(text))
	if err := addFile(out, server, "usr/local/bin/filesystem-server"); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: "usr/local/bin/go", Typeflag: tar.TypeSymlink, Linkname: "/usr/local/go/bin/go", Mode: 0o777}); err != nil {
		return err
	}
	tools := filepath.Join("pkg", "tool", runtime.GOOS+"_"+runtime.GOARCH)
	for _, name := range []string{"bin/go", "VERSION", "go.env", "pkg/include", "src", filepath.Join(tools, "compile"), filepath.Join(tools, "link"), filepath.Join(tools, "asm")} {
		err := filepath.WalkDir(filepath.Join(goroot, name), func(path string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(goroot, path)
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || rel == filepath.Join("src", "cmd")):
				return filepath.SkipDir
			case !d.Type().IsRegular() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return addFile(out, path, filepath.Join("usr/local/go", rel))
		})
		if err != nil {
			return err
		}
	}
	return out.Close()
}

func addFile(out *tar.Writer, path, name string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: int64(info.Mode().Perm() | 0o444), Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}
