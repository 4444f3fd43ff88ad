package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// The schemas are such that providers of models take them.
func TestTools(t *testing.T) {
	w := begin(t, nil, func(o *options, _ *settings.Settings) { o.exec = "tool --fast" })
	list, err := w.client(t, nil).ListTools(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		schema := tool.InputSchema.(map[string]any)
		require.Equal(t, "object", schema["type"])
		for _, key := range []string{"oneOf", "anyOf", "allOf", "not", "$id"} {
			require.NotContains(t, schema, key, tool.Name)
		}
		if required, ok := schema["required"]; ok {
			require.NotContains(t, required, "schema", tool.Name)
		}
	}
	require.Equal(t, []string{
		"evaluate_solution", "execute_contract", "get_result", "invoke_tool", "list_runs",
		"read_file", "read_output", "run_command", "run_gate", "run_python",
	}, names)
}

func TestRunPython(t *testing.T) {
	var seen string
	w := begin(t, func(p *enginetest.Program) int {
		stdin, _ := io.ReadAll(p.Stdin())
		seen = strings.Join([]string{strings.Join(p.Job.Command[1:], " "), string(stdin), p.Env()["A"]}, ", ")
		p.Print("Final Validation Performance: 0.5\n")
		p.PrintErr("oh\n")
		_ = os.WriteFile(p.Final("a.txt"), []byte("hi"), 0o600)
		return 3
	})
	require.NoError(t, os.Mkdir(filepath.Join(w.root, "data"), 0o755))
	var mu sync.Mutex
	var progress []string
	session := w.client(t, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
		mu.Lock()
		defer mu.Unlock()
		progress = append(progress, req.Params.Message)
	}})
	params := &sdk.CallToolParams{Name: "run_python", Arguments: map[string]any{
		"code": "print(1)", "args": []string{"x", "--y"}, "stdin": "in", "env": map[string]string{"A": "B"}, "input": "data", "name": "mine",
	}}
	params.SetProgressToken("p")
	res, err := session.CallTool(t.Context(), params)
	require.NoError(t, err)
	r := read(t, res)
	require.False(t, r.isError, r.text)
	require.Equal(t, "/work/script.py x --y, in, B", seen)
	require.Equal(t, []any{"exited", 3.0, 0.5, "oh\n"}, []any{r.data["status"], r.data["exit_code"], r.data["score"], r.data["stderr"]})
	require.Equal(t, "a.txt", r.data["outputs"].([]any)[0].(map[string]any)["path"])
	require.Contains(t, r.text, "exited with exit code 3")
	require.Contains(t, r.text, "stdout (34 bytes):\nFinal Validation Performance: 0.5\n")

	id := r.data["id"].(string)
	again := ask(t, session, "get_result", map[string]any{"id": id})
	require.Equal(t, r.data, again.data)
	list := ask(t, session, "list_runs", map[string]any{"status": "exited", "name": "mine"})
	require.Equal(t, id, list.data["runs"].([]any)[0].(map[string]any)["id"])
	require.Equal(t, 1.0, list.data["quota"].(map[string]any)["runs"])
	found, err := w.store.Load(id)
	require.NoError(t, err)
	require.Equal(t, w.box.session, found.Result.Labels[labelSession])
	require.FileExists(t, found.ProgramPath())
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(progress) == 2
	}, patience, time.Millisecond)
	require.Equal(t, []string{"started", "ended: exited"}, progress)
}

func TestRunCommand(t *testing.T) {
	w := begin(t, func(p *enginetest.Program) int { p.Print(strings.Join(p.Job.Command, "|")); return 0 })
	session := w.client(t, nil)
	require.Equal(t, "echo|a b|$HOME", ask(t, session, "run_command", map[string]any{"command": []string{"echo", "a b"}, "args": []string{"$HOME"}}).data["stdout"])
	require.Contains(t, refused(t, session, "run_command", map[string]any{"command": []string{}}), "command: is missing or empty")
	require.Contains(t, refused(t, session, "run_python", map[string]any{"code": " "}), "code: is missing or empty")
	require.Contains(t, refused(t, session, "run_python", map[string]any{"kode": "1"}), "kode")
	require.Contains(t, refused(t, session, "run_python", map[string]any{"code": "1", "image": "other"}), "image")
	require.Contains(t, refused(t, session, "run_python", map[string]any{"code": "1", "env": map[string]string{"NVIDIA_VISIBLE_DEVICES": "x"}}), "NVIDIA_VISIBLE_DEVICES")
}

// The text of a result has the exception, however much else was printed, within one bound.
func TestTextOfAFailure(t *testing.T) {
	const exception = "Traceback (most recent call last):\n  File \"/work/script.py\", line 3, in <module>\nValueError: the cause\n"
	for name, program := range map[string]func(*enginetest.Program){
		"many warnings":  func(p *enginetest.Program) { p.PrintErr(strings.Repeat("warning: ünimportant\n", 3000) + exception) },
		"warnings after": func(p *enginetest.Program) { p.PrintErr(exception + strings.Repeat("warning: ünimportant\n", 3000)) },
		"both are long": func(p *enginetest.Program) {
			p.Print(strings.Repeat("€", 50_000) + "last\n")
			p.PrintErr(strings.Repeat("w\n", 9000) + exception)
		},
		"a long exception": func(p *enginetest.Program) {
			p.PrintErr("Traceback (most recent call last):\n  File \"/work/script.py\", line 3, in <module>\nValueError: " + strings.Repeat("x", 100_000) + "the cause\n")
		},
	} {
		w := begin(t, func(p *enginetest.Program) int { program(p); return 1 })
		r := ask(t, w.client(t, nil), "run_python", map[string]any{"code": "1"})
		before, _, found := strings.Cut(r.text, "stderr (")
		require.True(t, found, name)
		require.Contains(t, before, "the cause\n", "%s: %s", name, r.text)
		require.Regexp(t, `\[… \d+ bytes left out …\]`, r.text, name)
		require.Contains(t, r.text, "[truncated: read the rest with read_output", name)
		require.Less(t, len(r.text), maxText+1000, name)
		require.True(t, utf8.ValidString(r.text), name)
		if name == "both are long" {
			require.Contains(t, before, "last\n")
		}
	}
	// What fits is whole.
	w := begin(t, func(p *enginetest.Program) int {
		p.Print(strings.Repeat("a", maxText-10))
		p.PrintErr("0123456789")
		return 0
	})
	r := ask(t, w.client(t, nil), "run_python", map[string]any{"code": "1"})
	require.NotContains(t, r.text, "left out")
	require.NotContains(t, r.text, "truncated")
}

// A message about a wrong argument names the keys of its own tool.
func TestUnknownKeys(t *testing.T) {
	w := begin(t, nil, func(o *options, _ *settings.Settings) { o.exec = "tool" })
	session := w.client(t, nil)
	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	for _, tool := range list.Tools {
		properties := tool.InputSchema.(map[string]any)["properties"].(map[string]any)
		require.Contains(t, refused(t, session, tool.Name, map[string]any{"no such": 1, "Name": 2}),
			`refused: arguments: unknown key "Name"; unknown key "no such"; there are `+strings.Join(slices.Sorted(maps.Keys(properties)), ", ")+"\n", tool.Name)
	}
	for tool, key := range map[string]string{"get_result": "offset", "run_command": "code", "run_python": "command", "list_runs": "stream"} {
		require.Contains(t, refused(t, session, tool, map[string]any{key: nil}), "unknown key", tool)
	}
}

// A client lowers limits, and never raises them.
func TestLimits(t *testing.T) {
	var class spec.Class
	var job spec.Job
	w := begin(t, func(p *enginetest.Program) int { class, job = p.Class, p.Job; return 0 }, func(_ *options, s *settings.Settings) {
		s.Limits.Memory, s.Limits.Timeout, s.Limits.CPUs = policy.GiB, time.Minute, 1
	})
	session := w.client(t, nil)
	run := func(args map[string]any) reply {
		args["code"] = "1"
		return ask(t, session, "run_python", args)
	}
	require.False(t, run(map[string]any{}).isError)
	require.Equal(t, []any{int64(1 << 30), 60.0, int64(1e9)}, []any{class.Cgroup.MemoryBytes, job.TimeoutSeconds, class.Cgroup.NanoCPUs})
	require.False(t, run(map[string]any{"memory": "64m", "timeout_seconds": 1.5, "cpus": 0.5}).isError)
	require.Equal(t, []any{int64(64 << 20), 1.5, int64(5e8)}, []any{class.Cgroup.MemoryBytes, job.TimeoutSeconds, class.Cgroup.NanoCPUs})
	for _, test := range []struct {
		args map[string]any
		want string
	}{
		{map[string]any{"memory": "2g"}, "refused: memory 2GiB: above the policy's maximum of 1GiB"},
		{map[string]any{"timeout_seconds": 61}, "refused: timeout 1m1s: above the policy's maximum of 1m0s"},
		{map[string]any{"cpus": 2}, "refused: cpus 2: above the policy's maximum of 1"},
		{map[string]any{"cpus": 0}, "refused: cpus 0: must be more than 0"},
		{map[string]any{"timeout_seconds": -1}, "refused: timeout_seconds -1: must be more than 0"},
		{map[string]any{"timeout_seconds": 1e300}, "refused: timeout_seconds 1e+300: must be more than 0"},
		{map[string]any{"memory": "x"}, "refused: "},
	} {
		r := run(test.args)
		require.True(t, r.isError)
		require.Contains(t, r.text, test.want)
		require.Contains(t, r.text, "\nhint: ")
	}
	// A contract and an evaluation have the same ceilings.
	require.Contains(t, refused(t, session, "evaluate_solution", map[string]any{
		"script": "print(1)", "task": taskIn(t, w.root), "timeout_seconds": 3600,
	}), "timeout 1h0m0s: above the policy's maximum of 1m0s")
}

// taskIn is a task with data below the root.
func taskIn(t *testing.T, root string) map[string]any {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "task", "input"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "task", "input", "a.csv"), []byte("1\n"), 0o600))
	return map[string]any{
		"competition_id": "c", "task_type": "tabular", "data_modality": "tabular", "evaluation_metric": "m",
		"metric_direction": "maximize", "description": "d", "data_dir": "task",
	}
}

func TestQuotas(t *testing.T) {
	for name, test := range map[string]struct {
		limits quotaLimits
		want   string
	}{
		"runs": {quotaLimits{2, time.Hour, policy.GiB}, "the quota --max-runs of this session is used up: 2"},
		"time": {quotaLimits{10, time.Nanosecond, policy.GiB}, "the quota --max-time of this session is used up: 1ns"},
		"disk": {quotaLimits{10, time.Hour, 100}, "the quota --max-disk of this session is used up: 100B"},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(p *enginetest.Program) int {
				p.Sleep(2 * time.Millisecond)
				_ = os.WriteFile(p.Final("big"), make([]byte, 1000), 0o600)
				return 0
			}, func(o *options, _ *settings.Settings) { o.quota = test.limits })
			session := w.client(t, nil)
			run := map[string]any{"code": "1"}
			require.False(t, ask(t, session, "run_python", run).isError)
			if name == "runs" {
				require.False(t, ask(t, session, "run_python", run).isError)
			}
			text := refused(t, session, "run_python", run)
			require.Contains(t, text, test.want)
			require.Contains(t, refused(t, session, "evaluate_solution", map[string]any{"script": "print(1)", "task": taskIn(t, w.root)}), test.want)
			// Results can still be read, and another client of this server has the same quota.
			require.False(t, ask(t, session, "list_runs", nil).isError)
			require.Contains(t, refused(t, w.client(t, nil), "run_python", run), test.want)
		})
	}
}

// No document leads out of the root.
func TestPaths(t *testing.T) {
	w := begin(t, prints("Final Validation Performance: 1\n"), func(o *options, _ *settings.Settings) { o.exec = "tool" })
	session := w.client(t, nil)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.yaml")
	require.NoError(t, os.WriteFile(secret, []byte("secret: 1\n"), 0o600))
	for name, target := range map[string]string{"out": outside, "file": secret, "gone": filepath.Join(outside, "gone"), "loop": "loop", "up": ".."} {
		require.NoError(t, os.Symlink(target, filepath.Join(w.root, name)))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(w.root, "dir"), 0o755))
	task := taskIn(t, w.root)
	hostile := []string{
		"", "/", "/etc", "/etc/passwd", "..", "../state", "dir/../..", "out", "out/secret.yaml", "file", "gone", "gone/x", "loop", "loop/x", "up", "up/root/../state",
		outside, w.state, filepath.Join(w.state, "runs"), "a\x00b", w.root + "/../x", w.root + "x", "//etc/passwd", "/proc/self/root/etc", "dir/../out/secret.yaml",
	}
	for _, path := range hostile {
		for _, call := range []struct {
			tool string
			args map[string]any
		}{
			{"run_python", map[string]any{"code": "1", "input": path}},
			{"run_command", map[string]any{"command": []string{"ls"}, "input": path}},
			{"evaluate_solution", map[string]any{"script_file": path, "task": task}},
			{"evaluate_solution", map[string]any{"script": "print(1)", "task_file": path}},
			{"evaluate_solution", map[string]any{"script": "print(1)", "task": task, "workspace": path}},
			{"run_gate", map[string]any{"command": []string{"true"}, "out": path}},
			{"run_gate", map[string]any{"command": []string{"true"}, "out": "g", "workspace": path}},
			{"run_gate", map[string]any{"wish": path, "out": "g"}},
			{"run_gate", map[string]any{"command": []string{"true"}, "out": "g", "reports": []string{path}}},
			{"invoke_tool", map[string]any{"config": path, "output_dir": "dir"}},
			{"invoke_tool", map[string]any{"config": "dir/c", "output_dir": path}},
		} {
			refused(t, session, call.tool, call.args)
		}
		if path != "" {
			task["data_dir"] = path
			refused(t, session, "evaluate_solution", map[string]any{"script": "print(1)", "task": task})
			task["data_dir"] = "task"
			file := filepath.Join(w.root, "t.yaml")
			quoted, err := json.Marshal(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "competition_id: c\ntask_type: tabular\ndata_modality: tabular\nevaluation_metric: m\n"+
				"metric_direction: maximize\ndescription: d\ndata_dir: %s\n", quoted), 0o600))
			refused(t, session, "evaluate_solution", map[string]any{"script": "print(1)", "task_file": "t.yaml"})
		}
	}
	// A wish mounts no directory of the machine.
	require.NoError(t, os.WriteFile(filepath.Join(w.root, "wish.yaml"), fmt.Appendf(nil,
		"gate_commands: ['true']\ntoolchain:\n  - source: %s\n    target: /opt/x\n", outside), 0o600))
	require.Contains(t, refused(t, session, "run_gate", map[string]any{"wish": "wish.yaml", "seal": true, "out": "g"}), "toolchain")
	// A key in other letters is not a path that nobody looked at.
	require.Contains(t, refused(t, session, "run_gate", map[string]any{"command": []string{"true"}, "out": "g", "OUT": outside}), "unknown key")
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	ids, err := w.store.IDs()
	require.NoError(t, err)
	require.Empty(t, ids)
}

// What is mounted is looked at once more, as it was resolved.
func TestMountsAreChecked(t *testing.T) {
	w := begin(t, nil)
	own, remove, err := w.store.Temp("gate")
	require.NoError(t, err)
	defer func() { require.NoError(t, remove()) }()
	for source, ok := range map[string]bool{own + "/workspace": true, own + "-1/workspace": false, w.store.TempDir(): false, w.root: true, w.root + "/a": true, w.staging + "/1/script.py": true, "/etc": false, w.state + "/runs/other": false, w.root + "x": false} {
		dir := w.store.RecordDir("r1")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		var s spec.Spec
		s.Job.Mounts = []spec.HostMount{{Source: source, Target: "/work/x"}}
		require.NoError(t, record.WriteJSON(filepath.Join(dir, record.SpecFile), s))
		require.Equal(t, ok, w.box.checkMounts("r1") == nil, source)
	}
}

// A program that writes to its ./final cannot replace what another call reads.
func TestPlaces(t *testing.T) {
	var p places
	release, err := p.claim(&place{paths: []string{"/r/s.py"}, final: "/r/w/final"})
	require.NoError(t, err)
	for path, ok := range map[string]bool{"/r/w/final": false, "/r/w/final/x": false, "/r/w": true, "/r/other": true} {
		free, err := p.claim(&place{paths: []string{path}})
		require.Equal(t, ok, err == nil, path)
		if ok {
			free()
		}
	}
	_, err = p.claim(&place{final: "/r/w/final"})
	require.Error(t, err)
	release()
	_, err = p.claim(&place{paths: []string{"/r/w/final/x"}})
	require.NoError(t, err)
	_, err = p.claim(&place{final: "/r/w/final"})
	require.Error(t, err, "another call reads there")
}

func TestPages(t *testing.T) {
	text := strings.Repeat("añ€😀", 10_000)
	binary := []byte("\x00\xff" + strings.Repeat("\x80z", 5000))
	w := begin(t, func(p *enginetest.Program) int {
		p.Print(text)
		p.PrintErr("bad \xff byte")
		_ = os.WriteFile(p.Final("t.txt"), []byte(text), 0o600)
		_ = os.Mkdir(p.Final("d"), 0o700)
		_ = os.WriteFile(p.Final("d/bin"), binary, 0o600)
		_ = os.Symlink("/etc/passwd", p.Final("link"))
		_ = os.Symlink("/etc", p.Final("dirlink"))
		return 0
	})
	session := w.client(t, nil)
	r := ask(t, session, "run_python", map[string]any{"code": "1"})
	id := r.data["id"].(string)
	require.Equal(t, true, r.data["stdout_truncated"])
	require.LessOrEqual(t, len(r.data["stdout"].(string)), maxHead)
	require.True(t, strings.HasPrefix(text, r.data["stdout"].(string)))
	require.Contains(t, r.text, "[truncated: read the rest with read_output")
	for tool, args := range map[string]map[string]any{"read_output": {"id": id}, "read_file": {"id": id, "path": "t.txt"}} {
		var whole strings.Builder
		for offset := 0.0; ; {
			args["offset"], args["limit"] = offset, 10_001
			page := ask(t, session, tool, args)
			require.False(t, page.isError, page.text)
			require.Equal(t, "text", page.data["encoding"])
			require.Equal(t, float64(len(text)), page.data["total"])
			whole.WriteString(page.data["content"].(string))
			offset = page.data["next_offset"].(float64)
			if page.data["eof"].(bool) {
				break
			}
		}
		require.Equal(t, text, whole.String(), tool)
	}
	require.Equal(t, "bad \uFFFD byte", ask(t, session, "read_output", map[string]any{"id": id, "stream": "stderr"}).data["content"])
	bin := ask(t, session, "read_file", map[string]any{"id": id, "path": "d/bin", "limit": 3})
	require.Equal(t, []any{"base64", "AP+A", 3.0, false}, []any{bin.data["encoding"], bin.data["content"], bin.data["next_offset"], bin.data["eof"]})
	for _, path := range []string{"link", "dirlink/passwd", "../result.json", "/etc/passwd", "d", "d/../t.txt", "", "x\x00"} {
		refused(t, session, "read_file", map[string]any{"id": id, "path": path})
	}
	past := ask(t, session, "read_output", map[string]any{"id": id, "offset": 1 << 40})
	require.Equal(t, []any{true, ""}, []any{past.data["eof"], past.data["content"]})
	for _, args := range []map[string]any{{"offset": -1}, {"limit": maxPage + 1}, {"limit": -1}, {"stream": "../x"}, {"id": "../" + id}, {"id": id[:10]}} {
		if args["id"] == nil {
			args["id"] = id
		}
		refused(t, session, "read_output", args)
	}

	read := func(uri string) *sdk.ResourceContents {
		res, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		require.NoError(t, err, uri)
		return res.Contents[0]
	}
	require.Contains(t, read("evalbox://runs/"+id).Text, `"status": "exited"`)
	require.Equal(t, text, read("evalbox://runs/"+id+"/stdout").Text)
	require.Equal(t, binary, read("evalbox://runs/"+id+"/files/d/bin").Blob)
	for _, uri := range []string{"evalbox://runs/" + id + "/files/link", "evalbox://runs/" + id + "/files/../../result.json", "evalbox://runs/x", "evalbox://runs/..%2Fx", "evalbox://trials/x"} {
		_, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		require.Error(t, err, uri)
	}

	// A file that took the place of an output is not followed.
	final := filepath.Join(w.store.RecordDir(id), record.OwnFinal)
	require.NoError(t, os.Remove(filepath.Join(final, "t.txt")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(final, "t.txt")))
	refused(t, session, "read_file", map[string]any{"id": id, "path": "t.txt"})
}

// A client sees the runs of its server only.
func TestSessions(t *testing.T) {
	w := begin(t, prints("x"))
	session := w.client(t, nil)
	id := ask(t, session, "run_python", map[string]any{"code": "1"}).data["id"].(string)
	require.False(t, ask(t, w.client(t, nil), "get_result", map[string]any{"id": id}).isError, "the same server")
	for _, all := range []bool{false, true} {
		o := options{root: w.root, parallel: 1, quota: w.box.quota.limits, allRuns: all}
		other, err := newServer(t.Context(), w.runner, w.settings, o, nil, nil)
		require.NoError(t, err)
		client := (&world{server: other}).client(t, nil)
		require.Equal(t, !all, ask(t, client, "get_result", map[string]any{"id": id}).isError)
		require.Len(t, ask(t, client, "list_runs", nil).data["runs"], map[bool]int{true: 1}[all])
		require.NoError(t, client.Close())
		require.NoError(t, other.close())
	}
}

// untilTerm is a program that goes on until it is asked to end.
func untilTerm(running chan<- struct{}) func(*enginetest.Program) int {
	return func(p *enginetest.Program) int {
		p.Print("begun\n")
		running <- struct{}{}
		select {
		case <-p.Term():
		case <-p.Kill():
		}
		return enginetest.Died(15)
	}
}

// canceled demands that the only run is recorded as canceled.
func (w *world) canceled(t *testing.T) {
	t.Helper()
	id := w.onlyRun(t)
	require.Eventually(t, func() bool {
		r, err := w.store.Load(id)
		return err == nil && r.Result != nil
	}, patience, time.Millisecond)
	r, err := w.store.Load(id)
	require.NoError(t, err)
	require.Equal(t, "canceled", r.Result.Status.String())
	require.Equal(t, "begun\n", r.Result.Stdout)
}

func TestCancel(t *testing.T) {
	running := make(chan struct{}, 1)
	w := begin(t, untilTerm(running))
	session := w.client(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "1"}})
		failed <- err
	}()
	<-running
	id := w.box.newest()[0]
	require.Equal(t, "running", ask(t, session, "get_result", map[string]any{"id": id}).data["status"])
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	w.canceled(t)
	list := ask(t, session, "list_runs", map[string]any{"status": "canceled"})
	require.Len(t, list.data["runs"], 1)
}

func TestDisconnect(t *testing.T) {
	running := make(chan struct{}, 1)
	w := begin(t, untilTerm(running))
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- w.serveStdio(t.Context(), in, out) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(),
		&sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	require.NoError(t, err)
	go func() {
		_, _ = session.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "1"}})
	}()
	<-running
	require.NoError(t, toServer.Close()) // EOF
	go func() { _, _ = io.Copy(io.Discard, fromServer) }()
	require.NoError(t, <-served)
	w.canceled(t)
}

// The end of the server ends its programs.
func TestServerEnds(t *testing.T) {
	running := make(chan struct{}, 1)
	w := begin(t, untilTerm(running))
	session := w.client(t, nil)
	answered := make(chan *sdk.CallToolResult, 1)
	go func() {
		res, err := session.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "1"}})
		if err == nil {
			answered <- res
		}
	}()
	<-running
	w.stop(errClosing)
	require.Equal(t, "canceled", read(t, <-answered).data["error"])
	w.calls.close()
	w.canceled(t)
	require.True(t, ask(t, session, "list_runs", nil).isError)
}

func TestManyCalls(t *testing.T) {
	var now, most atomic.Int64
	w := begin(t, func(p *enginetest.Program) int {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		p.Print("x")
		now.Add(-1)
		return 0
	}, func(o *options, _ *settings.Settings) { o.parallel = 4 })
	session := w.client(t, nil)
	var calls sync.WaitGroup
	var good atomic.Int64
	for range 1000 {
		calls.Go(func() {
			res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "1"}})
			if err == nil && !res.IsError {
				good.Add(1)
			}
		})
	}
	calls.Wait()
	require.Equal(t, int64(1000), good.Load())
	require.LessOrEqual(t, most.Load(), int64(4))
	require.Equal(t, 1000.0, ask(t, session, "list_runs", nil).data["quota"].(map[string]any)["runs"])
}

// More calls than may wait are refused.
func TestPending(t *testing.T) {
	c := newCalls(t.Context(), 1)
	release, err := c.turn(t.Context())
	require.NoError(t, err)
	c.pending = maxPending
	_, err = c.turn(t.Context())
	require.ErrorContains(t, err, "1000 calls wait already")
	c.pending = 0
	release()
	_, err = c.turn(t.Context())
	require.NoError(t, err)
}

func TestHostileTexts(t *testing.T) {
	w := begin(t, func(p *enginetest.Program) int {
		p.Print("\x1b]0;title\x07\x1b[2J\u202e\xff\x00")
		_ = os.WriteFile(p.Final("a\nb\x1b[2J"), []byte("x"), 0o600)
		return 0
	})
	session := w.client(t, nil)
	r := ask(t, session, "run_python", map[string]any{"code": "1"})
	require.False(t, r.isError, r.text)
	require.NotContains(t, r.text, "\x1b")
	file := r.data["outputs"].([]any)[0].(map[string]any)["path"].(string)
	require.Equal(t, "x", ask(t, session, "read_file", map[string]any{"id": r.data["id"], "path": file}).data["content"])
	for _, hostile := range []string{"\x1b[2J", strings.Repeat("x", 100_000), "a\x00b", "../..", "%s%n", "\u202e", "'; rm -rf /"} {
		for _, call := range []struct {
			tool string
			args map[string]any
		}{
			{"run_python", map[string]any{"code": "1", "name": hostile}},
			{"run_python", map[string]any{"code": "1", "env": map[string]string{hostile + "=": "x"}}},
			{"get_result", map[string]any{"id": hostile}},
			{"read_output", map[string]any{"id": r.data["id"], "stream": hostile}},
			{"run_python", map[string]any{hostile: "1"}},
			{"run_gate", map[string]any{hostile: "1"}},
		} {
			text := refused(t, session, call.tool, call.args)
			require.NotContains(t, text, "\x1b")
			require.Less(t, len(text), 10_000)
		}
	}
	for _, args := range []string{`[]`, `"x"`, `null`, `1`, `{"code":1}`, `{"code":"1","args":"x"}`, `{"code":null}`} {
		res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_python", Arguments: json.RawMessage(args)})
		require.True(t, err != nil || res.IsError, args)
	}
}
