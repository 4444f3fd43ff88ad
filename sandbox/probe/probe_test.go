package probe

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
)

func TestParse(t *testing.T) {
	got, err := parse("g", "# A comment.\n#= yes\n#=runsc no\ndef question():\n    pass\n\ndef helper():\n    pass\n\n#= /a+/\ndef other():\n")
	require.NoError(t, err)
	require.Equal(t, []Question{
		{Group: "g", Name: "question", Want: "yes", Under: []TraitAnswer{{"runsc", "no"}}}, {Group: "g", Name: "other", Want: "/a+/"},
	}, got)
	assert.Equal(t, "yes", got[0].want(Machine{Runtime: "runc"}))
	assert.Equal(t, "no", got[0].want(Machine{Runtime: "runsc"}))
	for _, wrong := range []string{"#= a\n#= b\ndef f():\n", "#= a\nx = 1\n", "#=A b\ndef f():\n", "#=\ndef f():\n"} {
		_, err := parse("g", wrong)
		assert.Error(t, err, wrong)
	}
}

// Each probe has a name of its own, and the programs of the table need not be distinguished.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	add := func(group, name string) {
		assert.False(t, seen[group+"/"+name], "%s/%s is there twice", group, name)
		seen[group+"/"+name] = true
	}
	for _, b := range Batches() {
		require.NotEmpty(t, b.Questions)
		for _, q := range b.Questions {
			add(q.Group, q.Name)
			assert.Contains(t, b.Python, "\ndef "+q.Name+"():")
		}
	}
	for _, r := range Runs() {
		add(r.Group, r.Name)
		assert.NotEqual(t, r.Python == "", r.Command == nil, "%s/%s: either a program or a command", r.Group, r.Name)
		for _, u := range r.Under {
			assert.NotEmpty(t, u.Why, "%s/%s", r.Group, r.Name)
			assert.Contains(t, Machine{}.Traits(), u.Trait)
		}
	}
	require.GreaterOrEqual(t, len(seen), 160)
}

func TestBatchJudge(t *testing.T) {
	b := Batch{Group: "g", Questions: []Question{{"g", "a", "1", nil}, {"g", "b", "2", nil}, {"g", "c", "3", nil}}}
	got := b.Judge(Machine{}, &result.Result{Stdout: "noise\nANSWER a 1\nANSWER b 3\n", Explanation: "The program exited with 1."})
	require.Len(t, got, 3)
	assert.Empty(t, got[0].Differs)
	assert.Equal(t, []string{`the answer is "3", not "2"`}, got[1].Differs)
	assert.Contains(t, got[2].Differs[0], "no answer")
}

func TestRunJudge(t *testing.T) {
	well := result.Result{Status: result.StatusExited, Fault: result.FaultNone, OutputComplete: true}
	half := 0.5
	for name, test := range map[string]struct {
		want   Want
		change func(r *result.Result)
		first  string // the first difference; empty for none
	}{
		"an uneventful run":   {change: func(*result.Result) {}},
		"an unexpected word":  {change: func(r *result.Result) { r.Stdout = "x" }, first: `stdout is "x", not ""`},
		"another end":         {want: Want{Code: 3}, change: func(*result.Result) {}, first: "fault is none, not program"},
		"a score":             {want: Want{Score: "0.5"}, change: func(r *result.Result) { r.Score = &half }},
		"a score too many":    {change: func(r *result.Result) { r.Score = &half }, first: `score is "0.5", not ""`},
		"output is missing":   {change: func(r *result.Result) { r.OutputComplete = false }, first: "output_complete is false, not true"},
		"a warning too many":  {change: func(r *result.Result) { r.Warnings = []string{"w"} }, first: `warnings: ["w"], not []`},
		"an output too many":  {change: func(r *result.Result) { r.Outputs = []result.Output{{Path: "p", Mode: "0644"}} }, first: `outputs: ["p 0644 0"], not []`},
		"an expected output":  {want: Want{Outputs: []string{"/p.*/"}}, change: func(r *result.Result) { r.Outputs = []result.Output{{Path: "p", Mode: "0644"}} }},
		"it took too long":    {want: Want{Seconds: 1}, change: func(r *result.Result) { r.DurationSeconds = 2 }, first: "it took 2.0 s, more than 1 s"},
		"a count of a stream": {change: func(r *result.Result) { r.StderrBytes = 1 }, first: "stderr_bytes is 1, not 0"},
	} {
		t.Run(name, func(t *testing.T) {
			res := well
			test.change(&res)
			got := Run{Want: test.want}.Judge(Machine{}, &res).Differs
			if test.first == "" {
				require.Empty(t, got)
				return
			}
			require.NotEmpty(t, got)
			require.Equal(t, test.first, got[0])
		})
	}
	long := tail(strings.Repeat("x", 10_000))
	assert.Less(t, len(long), 700)
}
