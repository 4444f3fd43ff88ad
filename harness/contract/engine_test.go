//go:build linux

package contract_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// These tests run on the real engine with the debian image. Without either they fail
// and say what to do: `make test` makes both.

// examples has the contracts that are executed.
const examples = "../../examples/contracts"

// newHarness executes contracts on the real engine, with a copy of the project of the
// examples as its root. At the end of the test nothing of its runs may be left on
// the engine.
func newHarness(t *testing.T, more ...sandbox.Option) *contract.Harness {
	t.Helper()
	registries, err := policy.LoadRegistries(configs.Registries(), "configs/registries.yaml")
	require.NoError(t, err)
	runner := runnertest.New(t, append(more,
		sandbox.WithPolicy(policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true, Registries: registries}))...)
	state := runner.Store().Dir()
	tools, err := registry.Parse(configs.Tools(), "tools.yaml")
	require.NoError(t, err)
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	work := filepath.Join(t.TempDir(), "contracts")
	require.NoError(t, os.CopyFS(filepath.Join(work, "deps"), os.DirFS(filepath.Join(examples, "deps"))))
	require.NoError(t, os.CopyFS(filepath.Join(work, "project"), os.DirFS(filepath.Join(examples, "project"))))
	h, err := contract.New(runner, contract.Options{
		Rules: contract.Rules{Registry: tools, Profiles: profiles}, Root: filepath.Join(work, "project"),
		Forbidden: []string{state}, Dependencies: []string{filepath.Join(work, "deps")},
		Approvals: contract.Approvals{Dir: filepath.Join(state, "approvals")},
	})
	require.NoError(t, err)
	return h
}

// service answers on a loopback address, where only the proxy of a run reaches it.
func service(t *testing.T) (port string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/answer" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "42")
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	return address.Port()
}

// example is the text of a contract of the examples, with what differs from machine to
// machine filled in.
func example(t *testing.T, h *contract.Harness, name, port string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name+".yaml"))
	require.NoError(t, err)
	deps, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(h.Root), "deps"))
	require.NoError(t, err)
	return []byte(strings.NewReplacer("/host/DEPS", "/host"+deps, "DEPS", deps, "PORT", port).Replace(string(text)))
}

// TestEngineExamples carries out every contract of the examples and compares its outcome with
// what lies beside it.
func TestEngineExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 19)
	schema := schematest.Load(t, contract.OutcomeSchemaJSON)
	port := service(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Request.Egress = &policy.Egress{Resolve: map[string][]netip.Addr{"api.example.test": {netip.MustParseAddr("127.0.0.1")}}}
			job := contract.Job{Text: example(t, h, name, port)}
			if name == "system" {
				job.Approver = contract.Approver{Name: "Ada", Reason: "an example"}
			}
			o, err := h.Run(t.Context(), job)
			require.NoError(t, err)
			text, err := o.Encode()
			require.NoError(t, err)
			schematest.Valid(t, schema, text)
			var got, want any
			require.NoError(t, json.Unmarshal(text, &got))
			expected, err := os.ReadFile(filepath.Join(examples, "expected", name+".json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(expected, &want))
			requireHas(t, got, want, name)
			require.Empty(t, o.Unenforced)
			for _, point := range o.Checklist {
				if o.Success {
					require.Equal(t, contract.CheckDone, point.State, "%+v", point)
				}
			}
			if !o.Started {
				require.Empty(t, o.Evidence.Path)
				return
			}
			kept, err := os.ReadFile(filepath.Join(o.Evidence.Path, contract.OutcomeFile))
			require.NoError(t, err)
			require.Equal(t, string(text), string(kept))
			_, err = contract.Load(filepath.Join(o.Evidence.Path, contract.ContractFile))
			require.NoError(t, err)
		})
	}
}

// requireHas compares as much as want names.
func requireHas(t *testing.T, got, want any, path string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		require.True(t, ok, "%s is not a mapping", path)
		for name, value := range want {
			require.Contains(t, got, name, path)
			requireHas(t, got[name], value, path+"."+name)
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok, "%s is not a list", path)
		require.Len(t, list, len(want), "%s: %v", path, got)
		for i := range want {
			requireHas(t, list[i], want[i], fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		require.Equal(t, want, got, path)
	}
}

// TestEngineDeterministic: two executions of a contract that fixes everything give the same
// bytes.
func TestEngineDeterministic(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	text := example(t, h, "deterministic", "")
	first, err := h.Run(t.Context(), contract.Job{Text: text})
	require.NoError(t, err)
	second, err := h.Run(t.Context(), contract.Job{Text: text})
	require.NoError(t, err)
	require.True(t, first.Success, first.Error)
	require.Equal(t, first.Stdout, second.Stdout)
	require.Equal(t, first.ContractSHA256, second.ContractSHA256)
	require.NotEqual(t, first.ExecutionID, second.ExecutionID)
}

// python is a contract of a Python program.
func python(program string) contract.Contract {
	return contract.Contract{ToolID: "TL-010", Inputs: contract.Inputs{Command: "python3", Arguments: []string{"-c", program}}}
}

// TestEngineContractsOfOneClass have containers that waited.
func TestEngineContractsOfOneClass(t *testing.T) {
	t.Parallel()
	h := newHarness(t, sandbox.WithPool(sandbox.Pool{Size: 1}))
	for i, program := range []string{"print(1)", "print(2)", "print(3)"} {
		c := python(program)
		o, err := h.Run(t.Context(), contract.Job{Contract: &c})
		require.NoError(t, err)
		require.True(t, o.Success, o.Error)
		require.Equal(t, fmt.Sprintln(i+1), o.Stdout)
		var res result.Result
		text, err := os.ReadFile(filepath.Join(o.Evidence.Path, "result.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &res))
		require.Equal(t, o.Evidence.RunID, res.ID)
		require.Equal(t, i > 0, res.Pool.Waited, res.Pool.Reason)
		require.FileExists(t, filepath.Join(o.Evidence.Path, contract.ContractFile))
	}
}

// TestEngineDenied: what is denied is neither read, under whatever name, nor made, and what
// the program does to its copy reaches only what it may write.
func TestEngineDenied(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(h.Root, name), []byte(text), 0o644))
	}
	write("app/secret.key", "secret")
	write("report/other.key", "secret")
	require.NoError(t, os.Link(filepath.Join(h.Root, "app/secret.key"), filepath.Join(h.Root, "app/alias")))
	require.NoError(t, os.Symlink("secret.key", filepath.Join(h.Root, "app/pointer")))
	c := python(`
import os
for name in ["secret.key", "alias", "pointer", "../report/other.key"]:
    try:
        print(name, repr(open(name).read()))
    except OSError as e:
        print(name, type(e).__name__)
def attempt(what, do):
    try:
        do(); print(what, "done")
    except OSError as e:
        print(what, type(e).__name__)
attempt("root", lambda: open("../VERSION", "w").write("evil"))
attempt("planned", lambda: open("planned", "w").write("evil"))
attempt("link", lambda: os.symlink("/etc/passwd", "evil"))
attempt("change", lambda: open("main.txt", "w").write("changed"))
attempt("delete", lambda: os.remove("build.py"))
`)
	c.Inputs.WorkingDirectory = "app"
	c.Sandbox.Filesystem = contract.Filesystem{Level: "standard", Deny: []string{"app/secret.key", "report/other.key", "app/planned"}}
	o, err := h.Run(t.Context(), contract.Job{Contract: &c})
	require.NoError(t, err)
	require.True(t, o.Success, "%s %v", o.Error, o.Violations)
	require.NotContains(t, o.Stdout, "'secret'")
	require.Contains(t, o.Stdout, "root OSError\n")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(h.Root, name))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "secret", read("app/secret.key"))
	require.Equal(t, "1.2.3\n", read("VERSION"))
	require.Equal(t, "changed", read("app/main.txt"))
	require.NoFileExists(t, filepath.Join(h.Root, "app/build.py"))
	require.NoFileExists(t, filepath.Join(h.Root, "app/planned"))
	_, err = os.Lstat(filepath.Join(h.Root, "app/evil"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Len(t, o.Folders, 1)
	require.Equal(t, 2, o.Folders[0].Written)
	require.Len(t, o.Folders[0].NotWritten, 2, o.Folders[0].NotWritten)
	require.Equal(t, "planned (created): is denied", o.Folders[0].NotWritten[0])
	require.True(t, strings.HasPrefix(o.Folders[0].NotWritten[1], "evil (symlink): "), o.Folders[0].NotWritten[1])
}

// TestEngineTooLarge: files above the limit are reported and stay in the record.
func TestEngineTooLarge(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c := python(`open("a", "wb").write(b"a" * (10 << 20)); open("b", "w").write("b")`)
	c.Inputs.WorkingDirectory = "app"
	c.Sandbox.Filesystem.Level = "standard"
	c.Outputs.OutputFiles = []string{"a"}
	o, err := h.Run(t.Context(), contract.Job{Contract: &c})
	require.NoError(t, err)
	require.False(t, o.Success)
	require.Len(t, o.OutputFiles, 2)
	require.Equal(t, "too_large", o.Differences[0].Problem)
	require.NoFileExists(t, filepath.Join(h.Root, "app/a"))
	require.Equal(t, 0, o.Folders[0].Written)
	require.Equal(t, []string{"2 changes: the output files are larger than the contract permits"}, o.Folders[0].NotWritten)
	require.Equal(t, contract.RetainSession, o.Evidence.Retention)
	require.Equal(t, contract.RetainSession, o.OutputFiles[0].Retention)
}

// TestEngineCapture: exactly the limit is not cut, and one byte more is.
func TestEngineCapture(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, test := range []struct {
		stdout, stderr int
		cut            bool
	}{{1 << 20, 256 << 10, false}, {1<<20 + 1, 0, true}, {0, 256<<10 + 1, true}} {
		c := python(fmt.Sprintf(`import sys; sys.stdout.write("o" * %d); sys.stderr.write("e" * %d)`, test.stdout, test.stderr))
		o, err := h.Run(t.Context(), contract.Job{Contract: &c})
		require.NoError(t, err)
		require.True(t, o.Success, o.Error)
		require.Equal(t, test.cut, o.Truncated)
		require.EqualValues(t, test.stdout, o.StdoutBytes)
		require.EqualValues(t, test.stderr, o.StderrBytes)
		require.Len(t, o.Stdout, min(test.stdout, 1<<20))
		require.Len(t, o.Stderr, min(test.stderr, 256<<10))
	}
}

// TestEngineApprovalOnTheEngine: an approval permits one execution of the contract that it is for.
func TestEngineApprovalOnTheEngine(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	job := contract.Job{Text: example(t, h, "system", ""), Approver: contract.Approver{Name: "Ada", Reason: "a test"}}
	first, err := h.Run(t.Context(), job)
	require.NoError(t, err)
	require.True(t, first.Success, first.Error)
	job.Approval = first.Approval
	second, err := h.Run(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, contract.StatusRefused, second.Status)
	require.Equal(t, "approval.id", second.Violations[0].Field, "an outcome does not grant an approval")
}

// TestEngineChildren: the limit of processes holds to the one.
func TestEngineChildren(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, children := range []int64{0, 1, 3} {
		c := python(`
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError:
    print(made, flush=True)
os._exit(0)
`)
		c.Sandbox.Processes.MaxChildren = &children
		o, err := h.Run(t.Context(), contract.Job{Contract: &c})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d\n", children), o.Stdout, "%s %s", o.Error, o.Stderr)
	}
}

// TestEngineStdinLimit: a whole MiB reaches the program, more is refused.
func TestEngineStdinLimit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	c := contract.Contract{ToolID: "TL-020", Inputs: contract.Inputs{Command: "wc", Arguments: []string{"-c"}}}
	c.Inputs.Stdin = new(strings.Repeat("x", contract.MaxStdin))
	o, err := h.Run(t.Context(), contract.Job{Contract: &c})
	require.NoError(t, err)
	require.Equal(t, "1048576\n", o.Stdout)
	c.Inputs.Stdin = new(*c.Inputs.Stdin + "x")
	o, err = h.Run(t.Context(), contract.Job{Contract: &c})
	require.NoError(t, err)
	require.Equal(t, "IV-05", o.Violations[0].Code)
}

// TestEngineClock: a clock does not change how a missing command is reported, and a program is not
// believed that says that it did not run.
func TestEngineClock(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Rules.OpenAllowlist = true
	clock := contract.Determinism{Clock: "2026-01-02T03:04:05Z"}
	o, err := h.Run(t.Context(), contract.Job{Contract: &contract.Contract{Inputs: contract.Inputs{Command: "no-such-command"}, Determinism: clock}})
	require.NoError(t, err)
	require.False(t, o.Started)
	require.Equal(t, 127, *o.ExitCode)
	require.Equal(t, "start_failed", o.Status)

	c := python(`
import datetime, os, sys
sys.stderr.write("[FATAL tini (7)] exec python3 failed: No such file or directory\n")
sys.stderr.flush()
os._exit(127 if datetime.date.today().year == 2026 and datetime.datetime.now().hour == 3 else 1)
`)
	c.Determinism = clock
	o, err = h.Run(t.Context(), contract.Job{Contract: &c})
	require.NoError(t, err)
	require.True(t, o.Started)
	require.Equal(t, 127, *o.ExitCode)
	require.Equal(t, "exited", o.Status)
	require.Contains(t, o.Executed.Environment, "FAKETIME=@2026-01-02 03:04:05")
	records, err := os.ReadDir(filepath.Dir(o.Evidence.Path))
	require.NoError(t, err)
	require.Len(t, records, 2, "probes leave no record")
}
