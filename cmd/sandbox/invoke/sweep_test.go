package invoke

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestParseAxis(t *testing.T) {
	for text, want := range map[string][]any{
		"a=1":                      {json.Number("1")},
		"a=0.80, -1,1e3":           {json.Number("0.80"), json.Number("-1"), json.Number("1e3")},
		"a=true,null,fast":         {true, nil, "fast"},
		`a="1",x=y`:                {"1", "x=y"},
		`a=["a,b", 1, ""]`:         {"a,b", json.Number("1"), ""},
		"a=[]":                     {},
		"a=NaN,01,1 2, {\"b\": 1}": {"NaN", "01", "1 2", map[string]any{"b": json.Number("1")}},
	} {
		axis, err := parseAxis(text)
		require.NoError(t, err, text)
		assert.Equal(t, sweep.Axis{Name: "a", Values: want}, axis)
	}
	for _, text := range []string{"", "a", "=1", "a=", "a=1,", "a=[1", "a=[1] 2"} {
		_, err := parseAxis(text)
		assert.Error(t, err, text)
	}
}

func TestSweepSeeds(t *testing.T) {
	var seeds []invoke.Seed
	flag := cli.Seeds(&seeds, readSeed)
	require.NoError(t, flag.Set("1, -2"))
	require.NoError(t, flag.Set("18446744073709551615"))
	assert.Equal(t, []invoke.Seed{invoke.NewSeed(1), invoke.NewSeed(-2), invoke.NewSeed(uint64(math.MaxUint64))}, seeds)
	require.EqualError(t, flag.Set("1,x"), `the seed "x" must be a whole number, as in 1,2,5-7`)
	require.EqualError(t, flag.Set("1-"), `the seed "1-" must be a whole number, as in 1,2,5-7`)
	require.EqualError(t, flag.Set(""), `the seed "" must be a whole number, as in 1,2,5-7`)
	require.EqualError(t, flag.Set("18446744073709551616"),
		"the seed 18446744073709551616 must be between -9223372036854775808 and 18446744073709551615")
	var seed *invoke.Seed
	one := cli.Optional(&seed, "N", invoke.ParseSeed)
	require.NoError(t, one.Set("1"))
	require.NoError(t, one.Set("2"))
	assert.Equal(t, invoke.NewSeed(2), *seed)
	require.Error(t, one.Set("1,2"))
}

// TestSweepSetup: whatever decides what runs do is part of what a sweep is, and no value
// of a variable can be read there.
func TestSweepSetup(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	class := spec.Class{Image: spec.Image{ID: "sha256:1"}, Network: "none", User: "1:1", Runtime: "runsc"}
	f := sweepFlags{toolFlags: toolFlags{exec: "python3 t.py"}}
	setup, err := f.setup(class, "all", map[string]string{"TOKEN": "secret", "EMPTY": ""}, nil)
	require.NoError(t, err)
	for _, hash := range []string{"env.TOKEN", "env.EMPTY"} {
		assert.Regexp(t, "^[0-9a-f]{64}$", setup[hash])
	}
	other, err := f.setup(class, "all", map[string]string{"TOKEN": "another"}, nil)
	require.NoError(t, err)
	assert.NotEqual(t, setup["env.TOKEN"], other["env.TOKEN"])
	delete(setup, "env.TOKEN")
	delete(setup, "env.EMPTY")
	assert.Equal(t, map[string]string{
		"exec": "python3 t.py", "engine": "sandbox", "root": "", "image": "sha256:1", "network": "none", "user": "1:1", "runtime": "runsc", "gpus": "all",
	}, setup)
	here, err := os.Getwd()
	require.NoError(t, err)
	f.root = "tool"
	setup, err = f.setup(class, "", nil, nil)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(here, "tool"), setup["root"])
}

func TestSweepCode(t *testing.T) {
	failures, interrupt := &sweep.FailuresError{}, cli.SignalError{}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.Join(failures), cli.ExitProblem},
		{errors.Join(errors.New("engine lost"), failures), cli.ExitSandbox},
		{errors.Join(interrupt, failures), cli.ExitInterrupted},
		{errors.Join(interrupt), cli.ExitInterrupted},
		{errors.New("refused"), cli.ExitSandbox},
	} {
		assert.Equal(t, test.want, sweepCode(test.err), "%v", test.err)
	}
}

func TestSweepSum(t *testing.T) {
	report := sweep.Report{Dir: "d", Runs: []sweep.End{{Status: sweep.StatusSucceeded}, {Status: sweep.StatusMissing}}}
	assert.Equal(t, "sweep of 2: 1 succeeded, 0 failed, 1 not done · no manifest; the same command continues from there", render.Sweep(report))
	report.Manifest, report.Runs = "d/m", report.Runs[:1]
	assert.Equal(t, "sweep of 1: 1 succeeded, 0 failed · d/m", render.Sweep(report))
}
