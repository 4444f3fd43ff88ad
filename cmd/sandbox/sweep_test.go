package main

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
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

func TestSweepCode(t *testing.T) {
	failures, interrupt := &sweep.FailuresError{}, interruption{}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.Join(failures), exitProblem},
		{errors.Join(errors.New("engine lost"), failures), exitSandbox},
		{errors.Join(interrupt, failures), exitInterrupted},
		{errors.Join(interrupt), exitInterrupted},
		{errors.New("refused"), exitSandbox},
	} {
		assert.Equal(t, test.want, sweepCode(test.err), "%v", test.err)
	}
}

func TestSweepSum(t *testing.T) {
	report := sweep.Report{Dir: "d", Runs: []sweep.End{{Status: sweep.StatusSucceeded}, {Status: sweep.StatusMissing, Err: errors.New("engine lost")}}}
	assert.Equal(t, "sweep of 2: 1 succeeded, 0 failed, 1 missing · no manifest; --resume goes on from there", sweepSum(report))
	assert.Equal(t, "engine lost", *sweepJSON(report).Runs[1].Failure)
	report.Manifest, report.Runs = "d/m", report.Runs[:1]
	assert.Equal(t, "sweep of 1: 1 succeeded, 0 failed · d/m", sweepSum(report))
}
