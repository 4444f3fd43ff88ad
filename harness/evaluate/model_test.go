package evaluate

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox"
)

func TestNewSolution(t *testing.T) {
	s := NewSolution("x = 1", PhaseMerged)
	require.True(t, s.IsExecutable)
	require.Nil(t, s.Score)
	require.Nil(t, s.SourceModel)
	require.Equal(t, time.UTC, s.CreatedAt.Location())
	require.False(t, s.CreatedAt.IsZero())

	text, err := json.Marshal(s)
	require.NoError(t, err)
	var back SolutionScript
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, s, back)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range []string{"content", "phase", "score", "is_executable", "source_model", "created_at"} {
		require.Contains(t, fields, name)
	}
	require.Len(t, fields, 6)
}

func TestSolutionPhases(t *testing.T) {
	for _, name := range []string{"init", "merged", "refined", "ensemble", "final"} {
		var p SolutionPhase
		require.NoError(t, p.UnmarshalText([]byte(name)))
		require.Equal(t, SolutionPhase(name), p)
	}
	require.Len(t, SolutionPhases(), 5)
	require.ErrorContains(t, new(SolutionPhase).UnmarshalText([]byte("last")), `phase "last": must be one of init, merged`)
}

func TestReplaceBlock(t *testing.T) {
	for name, test := range map[string]struct{ content, old, replacement, want string }{
		"the first of two":        {"a b a", "a", "c", "c b a"},
		"several lines":           {"x\ny\nz\n", "y\nz\n", "w\n", "x\nw\n"},
		"takes it away":           {"x\ny\n", "y\n", "", "x\n"},
		"line ends count":         {"x\r\ny", "\r\n", "\n", "x\ny"},
		"nothing is at the start": {"x", "", "y", "yx"},
	} {
		t.Run(name, func(t *testing.T) {
			before := NewSolution(test.content, PhaseRefined)
			after, err := before.ReplaceBlock(test.old, test.replacement)
			require.NoError(t, err)
			require.Equal(t, test.want, after.Content)
			require.Equal(t, test.content, before.Content)
			require.Equal(t, PhaseRefined, after.Phase)
		})
	}
	_, err := NewSolution("a", PhaseInit).ReplaceBlock("b", "c")
	require.ErrorIs(t, err, ErrBlockNotFound)
	require.ErrorContains(t, err, `"b"`)
}

func TestMetricDirections(t *testing.T) {
	require.NoError(t, Maximize.Check())
	require.NoError(t, Minimize.Check())
	require.ErrorContains(t, MetricDirection("up").Check(), `metric_direction "up": must be one of maximize, minimize`)
	var task TaskDescription
	require.Error(t, json.Unmarshal([]byte(`{"metric_direction":""}`), &task))
}

func TestComparisons(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		newScore, oldScore    float64
		direction             MetricDirection
		better, betterOrEqual bool
	}{
		{2, 1, Maximize, true, true},
		{1, 2, Maximize, false, false},
		{1, 1, Maximize, false, true},
		{2, 1, Minimize, false, false},
		{1, 2, Minimize, true, true},
		{1, 1, Minimize, false, true},
		{-1, -2, Maximize, true, true},
		{0, math.Copysign(0, -1), Maximize, false, true},
		{inf, 1, Maximize, true, true},
		{-inf, 1, Minimize, true, true},
		{nan, 1, Maximize, false, false},
		{1, nan, Minimize, false, false},
		{nan, nan, Maximize, false, false},
		{2, 1, "up", false, false},
	} {
		require.Equal(t, c.better, IsImprovement(c.newScore, c.oldScore, c.direction), "%+v", c)
		require.Equal(t, c.betterOrEqual, IsImprovementOrEqual(c.newScore, c.oldScore, c.direction), "%+v", c)
		require.Equal(t, c.better, BeatsBaseline(c.newScore, &c.oldScore, c.direction), "%+v", c)
		score := c.newScore
		require.Equal(t, c.better && !math.IsInf(score, 0), IsBetterSolution(EvaluationResult{Score: &score}, c.oldScore, c.direction),
			"no score that is not finite outranks another: %+v", c)
		require.False(t, IsBetterSolution(EvaluationResult{Score: &score, IsError: true}, c.oldScore, c.direction))
		require.False(t, IsBetterSolution(EvaluationResult{}, c.oldScore, c.direction))
		require.True(t, BeatsBaseline(c.newScore, nil, c.direction))
	}
}

func TestPipelineConfigDefaults(t *testing.T) {
	text, err := json.Marshal(DefaultPipelineConfig())
	require.NoError(t, err)
	require.JSONEq(t, `{"num_retrieved_models":4,"outer_loop_steps":4,"inner_loop_steps":4,"num_parallel_solutions":2,
		"ensemble_rounds":5,"time_limit_seconds":86400,"subsample_limit":30000,"max_debug_attempts":3}`, string(text))
	require.NoError(t, DefaultPipelineConfig().Validate())
}

func TestPipelineConfigValidate(t *testing.T) {
	err := PipelineConfig{}.Validate()
	var names []string
	c := DefaultPipelineConfig()
	for _, f := range c.fields() {
		names = append(names, f.name)
		require.ErrorContains(t, err, f.name+" 0: must be at least 1")
		bad := DefaultPipelineConfig()
		for _, g := range bad.fields() {
			if g.name == f.name {
				*g.target = -1
			}
		}
		require.EqualError(t, bad.Validate(), f.name+" -1: must be at least 1")
	}
	require.Len(t, names, 8)
}

func TestPipelineConfigJSON(t *testing.T) {
	want := DefaultPipelineConfig()
	want.TimeLimitSeconds, want.EnsembleRounds = 60, 1
	text, err := json.Marshal(want)
	require.NoError(t, err)
	var got PipelineConfig
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, want, got)

	require.NoError(t, json.Unmarshal([]byte(`{"time_limit_seconds": 60.0}`), &got))
	require.Equal(t, 60, got.TimeLimitSeconds)
	require.Equal(t, 5, got.EnsembleRounds, "a field that is missing has its default")

	for text, wants := range map[string][]string{
		`{"outer_loop_steps":0,"ensemble_rounds":-2}`: {"outer_loop_steps 0: must be at least 1", "ensemble_rounds -2: must be at least 1"},
		`{"time_limit":1,"subsample_limit":0}`:        {`"time_limit": is no field`, "subsample_limit 0"},
		`{"subsample_limit":1.5}`:                     {"subsample_limit 1.5: must be a whole number"},
		`{"subsample_limit":"60"}`:                    {`subsample_limit "60": must be a whole number`},
		`{"subsample_limit":null}`:                    {"subsample_limit null: must be a whole number"},
		`{"subsample_limit":true}`:                    {"subsample_limit true: must be a whole number"},
		`{"subsample_limit":1e300}`:                   {"at most 2^53"},
		`[1]`:                                         {"must be a JSON object"},
	} {
		before := got
		err := json.Unmarshal([]byte(text), &got)
		for _, want := range wants {
			require.ErrorContains(t, err, want, text)
		}
		require.Equal(t, before, got, text)
	}
}

const goodTask = `competition_id: wine
task_type: classification
data_modality: tabular
evaluation_metric: accuracy
metric_direction: maximize
description: Tell wines apart.
`

func TestLoadTask(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "input", "deep", "train.csv"), "x\n")
	file := filepath.Join(dir, "task.yaml")
	writeFile(t, file, goodTask+"target_column: kind\nbaseline_value: 0.4\n")
	task, err := LoadTask(file)
	require.NoError(t, err)
	require.Equal(t, "kind", *task.TargetColumn)
	require.Equal(t, 0.4, *task.BaselineValue)
	require.Equal(t, filepath.Join(dir, "input"), task.DataDir, "relative to the file")
	require.Equal(t, "./final", task.OutputDir)

	// A working folder serves as well as the data in it.
	writeFile(t, file, goodTask+"data_dir: .\noutput_dir: final/\n")
	task, err = LoadTask(file)
	require.NoError(t, err)
	base, input, err := task.Folders()
	require.NoError(t, err)
	require.Equal(t, dir, base)
	require.Equal(t, filepath.Join(dir, "input"), input)
}

func TestLoadTaskRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		wants []string
	}{
		"unknown keys":      {goodTask + "metric: x\ntarget: y\n", []string{`:7: unknown key "metric"`, `:8: unknown key "target"`}},
		"a key twice":       {goodTask + "task_type: regression\n", []string{"task_type: is given twice, first in line 2"}},
		"wrong values":      {strings.ReplaceAll(goodTask, "maximize", "up"), []string{`:5: metric_direction: "up" must be one of maximize, minimize`}},
		"wrong types":       {goodTask + "baseline_value: [1]\n", []string{":7: baseline_value: must be a number, is a list"}},
		"what is missing":   {"competition_id: x\n", []string{"task.yaml: evaluation_metric: is missing", "task.yaml: description: is missing", "task_type", "data_modality", "metric_direction"}},
		"another output":    {goodTask + "output_dir: out\n", []string{`output_dir "out": must be ./final`}},
		"no mapping":        {"- x\n", []string{"must be a mapping"}},
		"nothing":           {"", []string{"must be a mapping"}},
		"two documents":     {goodTask + "---\nx: 1\n", []string{"must be one document, has more"}},
		"no YAML":           {"a: b: c\n", []string{"mapping values are not allowed"}},
		"too large":         {"# " + strings.Repeat("x", 1<<20), []string{"has more than 1MiB"}},
		"data missing":      {goodTask + "data_dir: nowhere\n", []string{"data_dir", "does not exist"}},
		"data is a file":    {goodTask + "data_dir: other\n", []string{"data_dir", "is not a folder"}},
		"data without file": {goodTask, []string{"data_dir", "holds no file"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "input", "empty"), 0o755))
			writeFile(t, filepath.Join(dir, "other", "input"), "a file\n")
			file := filepath.Join(dir, "task.yaml")
			writeFile(t, file, test.text)
			_, err := LoadTask(file)
			for _, want := range test.wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := LoadTask(filepath.Join(t.TempDir(), "missing.yaml"))
	var problem *TaskError
	require.ErrorAs(t, err, &problem)
	require.ErrorContains(t, err, "missing.yaml: no such file")
	require.Contains(t, problem.Hint(), "competition_id")
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for data, want := range map[string][2]string{
		"":               {dir, filepath.Join(dir, "input")},
		"./input":        {dir, filepath.Join(dir, "input")},
		"comp":           {filepath.Join(dir, "comp"), filepath.Join(dir, "comp", "input")},
		"comp/input/":    {filepath.Join(dir, "comp"), filepath.Join(dir, "comp", "input")},
		"comp/inputs":    {filepath.Join(dir, "comp", "inputs"), filepath.Join(dir, "comp", "inputs", "input")},
		"/data/in/input": {"/data/in", "/data/in/input"},
	} {
		base, input, err := TaskDescription{DataDir: data}.Folders()
		require.NoError(t, err)
		require.Equal(t, want, [2]string{base, input}, data)
	}
}

func TestCheckDataFollowsALinkToTheData(t *testing.T) {
	task := newTask(t)
	other := t.TempDir()
	require.NoError(t, os.Symlink(task.DataDir, filepath.Join(other, "input")))
	require.NoError(t, TaskDescription{DataDir: other}.CheckData())
	err := TaskDescription{DataDir: t.TempDir()}.CheckData()
	var path *sandbox.PathError
	require.ErrorAs(t, err, &path)
	require.Equal(t, "data_dir", path.Field)
}

func TestSubsampleTexts(t *testing.T) {
	config := DefaultPipelineConfig()
	config.SubsampleLimit = 500
	require.Equal(t, "If there are more than 500 training samples, you must subsample to 500 for a faster run.", SubsampleInstructionFor(config))

	script := NewSolution("df = df.sample(10)\ns = '''```'''\n````\n", PhaseInit)
	for _, ask := range []string{SubsampleRemovalRequest(script), SubsampleExtractionRequest(script)} {
		require.Contains(t, ask, "`````python\n"+script.Content+"\n`````", "the fence is longer than any in the script")
		require.Contains(t, strings.ToLower(ask), "subsampl")
	}
	require.Contains(t, SubsampleRemovalRequest(script), "Return the full script")
	require.Contains(t, SubsampleExtractionRequest(script), "extract")
}
