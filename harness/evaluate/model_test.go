package evaluate

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox"
)

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
		score := c.newScore
		require.Equal(t, c.better && !math.IsInf(score, 0), IsBetterSolution(EvaluationResult{Score: &score}, c.oldScore, c.direction),
			"no score that is not finite outranks another: %+v", c)
		require.False(t, IsBetterSolution(EvaluationResult{Score: &score, IsError: true}, c.oldScore, c.direction))
		require.False(t, IsBetterSolution(EvaluationResult{}, c.oldScore, c.direction))
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

	// A working directory serves as well as the data in it.
	writeFile(t, file, goodTask+"data_dir: .\noutput_dir: final/\n")
	task, err = LoadTask(file)
	require.NoError(t, err)
	base, input, err := task.Directories()
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
		"too large":         {"# " + strings.Repeat("x", 1<<20), []string{"has more than 1048576 bytes"}},
		"data missing":      {goodTask + "data_dir: nowhere\n", []string{"data_dir", "nowhere\": does not exist"}},
		"data dir empty":    {goodTask + "data_dir: input/empty\n", []string{"data_dir", "empty/input\": does not exist"}},
		"data is a file":    {goodTask + "data_dir: task.yaml\n", []string{"data_dir", "task.yaml\": is not a directory"}},
		"data without file": {goodTask, []string{"data_dir", "holds no file"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "input", "empty"), 0o755))
			file := filepath.Join(dir, "task.yaml")
			writeFile(t, file, test.text)
			_, err := LoadTask(file)
			for _, want := range test.wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := LoadTask(filepath.Join(t.TempDir(), "missing.yaml"))
	var problem *FileError
	require.ErrorAs(t, err, &problem)
	require.ErrorContains(t, err, "missing.yaml: no such file")
	require.Contains(t, problem.Hint(), "competition_id")
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeFile(t, "data/v2/train.csv", "x\n")
	writeFile(t, "data/v2/input", "a file\n")
	writeFile(t, "whole/input/train.csv", "x\n")
	require.NoError(t, os.Mkdir("empty", 0o755))
	for data, want := range map[string][2]string{
		"":               {dir, filepath.Join(dir, "input")},
		"./input":        {dir, filepath.Join(dir, "input")},
		"comp":           {filepath.Join(dir, "comp"), filepath.Join(dir, "comp", "input")},
		"comp/input/":    {filepath.Join(dir, "comp"), filepath.Join(dir, "comp", "input")},
		"comp/inputs":    {filepath.Join(dir, "comp", "inputs"), filepath.Join(dir, "comp", "inputs", "input")},
		"/data/in/input": {"/data/in", "/data/in/input"},
		"data/v2":        {filepath.Join(dir, "data"), filepath.Join(dir, "data", "v2")},
		"whole":          {filepath.Join(dir, "whole"), filepath.Join(dir, "whole", "input")},
		"empty":          {filepath.Join(dir, "empty"), filepath.Join(dir, "empty", "input")},
	} {
		base, input, err := TaskDescription{DataDir: data}.Directories()
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
