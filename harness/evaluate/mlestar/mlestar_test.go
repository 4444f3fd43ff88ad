package mlestar

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

func TestPipelineConfigDefaults(t *testing.T) {
	text, err := json.Marshal(DefaultPipelineConfig())
	require.NoError(t, err)
	require.JSONEq(t, `{"num_retrieved_models":4,"outer_loop_steps":4,"inner_loop_steps":4,"num_parallel_solutions":2,
		"ensemble_rounds":5,"time_limit_seconds":86400,"subsample_limit":30000,"max_debug_attempts":3}`, string(text))
	require.NoError(t, DefaultPipelineConfig().Validate())
}

func TestPipelineConfigValidate(t *testing.T) {
	err := PipelineConfig{}.Validate()
	require.Len(t, new(PipelineConfig).fields(), 8)
	for name := range new(PipelineConfig).fields() {
		require.ErrorContains(t, err, name+" 0: must be at least 1")
		bad := DefaultPipelineConfig()
		*bad.fields()[name] = -1
		require.EqualError(t, bad.Validate(), name+" -1: must be at least 1")
	}
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
		`{"time_limit":1,"subsample_limit":0}`:        {`"time_limit": is not a field`, "subsample_limit 0"},
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
