package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// The files of an evaluation may come with the document, or lie below the root.
func TestEvaluateSolution(t *testing.T) {
	w := begin(t, func(p *enginetest.Program) int {
		p.Print("Final Validation Performance: 0.75\n")
		_ = os.WriteFile(p.Final("submission.csv"), []byte("1\n"), 0o600)
		return 0
	})
	session := w.client(t, nil)
	task := taskIn(t, w.root)
	require.NoError(t, os.WriteFile(filepath.Join(w.root, "task", "task.yaml"), []byte("competition_id: c\ntask_type: tabular\ndata_modality: tabular\n"+
		"evaluation_metric: m\nmetric_direction: maximize\ndescription: d\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.root, "s.py"), []byte("print(2)\n"), 0o600))
	for _, args := range []map[string]any{
		{"script": "print(1)", "task": task},
		{"script_file": "s.py", "task_file": "task/task.yaml", "workspace": "work/mine", "schema": "evalbox/evaluation-job/v1"},
	} {
		r := ask(t, session, "evaluate_solution", args)
		require.False(t, r.isError, r.text)
		require.Equal(t, []any{"passed", 0.75}, []any{r.data["verdict"], r.data["score"]}, r.text)
		run := r.data["runs"].([]any)[0].(map[string]any)["id"].(string)
		require.Equal(t, "1\n", ask(t, session, "read_file", map[string]any{"id": run, "path": "submission.csv"}).data["content"])
		again := ask(t, session, "get_result", map[string]any{"id": r.data["id"]})
		require.Equal(t, r.data["verdict"], again.data["verdict"])
		res, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "evalbox://trials/" + r.data["id"].(string)})
		require.NoError(t, err)
		require.Contains(t, res.Contents[0].Text, `"evaluate"`)
	}
	require.FileExists(t, filepath.Join(w.root, "work", "mine", "final", "submission.csv"))
	require.NoFileExists(t, filepath.Join(w.root, "task", "solution.py"))
	require.Contains(t, refused(t, session, "evaluate_solution", map[string]any{"script": "exit(0)", "task": task}), "calls exit(")
	require.Contains(t, refused(t, session, "evaluate_solution", map[string]any{"task": task}), "give script or script_file")
	require.Contains(t, refused(t, session, "evaluate_solution", map[string]any{"script": "print(1)"}), "give task or task_file")
	task["Data_Dir"] = "/etc"
	require.Contains(t, refused(t, session, "evaluate_solution", map[string]any{"script": "print(1)", "task": task}), "Data_Dir")
}

// A failure of a program is a normal result.
func TestFailedEvaluation(t *testing.T) {
	w := begin(t, func(p *enginetest.Program) int {
		p.PrintErr(strings.Repeat("warning\n", 9000) + "Traceback (most recent call last):\n  File \"/work/script.py\", line 1, in <module>\nValueError: the cause\n")
		return 1
	})
	r := ask(t, w.client(t, nil), "evaluate_solution", map[string]any{"script": "print(1)", "task": taskIn(t, w.root)})
	require.False(t, r.isError, r.text)
	require.Equal(t, "failed", r.data["verdict"])
	require.Regexp(t, `(?s)^evaluate failed .*\ntraceback:\n.*ValueError: the cause\nstderr \(`, r.text)
	require.Less(t, len(r.text), maxText+1000)
}

func TestInvokeTool(t *testing.T) {
	w := begin(t, func(p *enginetest.Program) int { return 4 }, func(o *options, _ *settings.Settings) { o.exec, o.execRoot = "tool", t.TempDir() })
	require.NoError(t, os.Mkdir(filepath.Join(w.root, "out"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(w.root, "c.json"), []byte("{}"), 0o644))
	r := ask(t, w.client(t, nil), "invoke_tool", map[string]any{"config": "c.json", "output_dir": "out", "seed": 7})
	require.False(t, r.isError, r.text)
	require.Equal(t, []any{"failed", 4.0}, []any{r.data["verdict"], r.data["exit_code"]})
}

// What needs an approval, or a directory outside of the root, is refused.
func TestExecuteContract(t *testing.T) {
	w := begin(t, prints("3\n"))
	session := w.client(t, nil)
	document := func(level string, read ...string) map[string]any {
		return map[string]any{
			"tool_id": "TL-020", "inputs": map[string]any{"command": "echo", "arguments": []string{"3"}},
			"sandbox": map[string]any{"filesystem": map[string]any{"level": level, "read": append([]string{}, read...)}},
		}
	}
	r := ask(t, session, "execute_contract", document("minimal"))
	require.False(t, r.isError, r.text)
	require.Equal(t, "passed", r.data["verdict"], r.text)
	for _, level := range []string{"extended", "elevated"} {
		refused(t, session, "execute_contract", document(level, "/usr/share"))
	}
}
