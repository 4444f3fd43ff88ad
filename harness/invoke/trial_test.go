package invoke

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// job is a job for an invocation.
func job(t *testing.T, inv Invocation) trial.Job {
	t.Helper()
	text, err := JobSpec(inv)
	require.NoError(t, err)
	schematest.Valid(t, schematest.Load(t, trialHarness{}.Schema()), text)
	return trial.Job{ID: "1", Kind: "invoke", Spec: text}
}

// TestDocumentRoundTrip: the document of a job keeps everything.
func TestDocumentRoundTrip(t *testing.T) {
	seed, err := ParseSeed("7")
	require.NoError(t, err)
	schematest.RoundTrip(t, reflect.TypeFor[jobSpec](), nil, seed)
}

// TestTrial: every way in which a call ends has its verdict.
func TestTrial(t *testing.T) {
	for name, test := range map[string]struct {
		fake    fakeBox
		verdict trial.Verdict
		reason  string
		code    int
		fails   bool
	}{
		"passed":    {fakeBox{program: exits(0), left: good}, trial.Passed, "", 0, false},
		"failed":    {fakeBox{program: exits(3)}, trial.Failed, "nonzero_exit", 3, false},
		"wrong":     {fakeBox{program: exits(0), left: map[string]string{ManifestName: "{}", TracePackName: ""}}, trial.Failed, "wrong_artifacts", 0, false},
		"missing":   {fakeBox{program: exits(0)}, trial.Failed, "missing_artifact", 0, false},
		"time":      {fakeBox{program: ends(result.StatusTimedOut, -1)}, trial.Failed, "timeout", -1, false},
		"refused":   {fakeBox{err: &policy.FieldError{Field: "memory", Rule: "is too much"}}, trial.Refused, "refused", -1, false},
		"no engine": {fakeBox{err: errors.New("the engine is gone")}, trial.Inconclusive, "engine", -1, true},
	} {
		h := newFake(t, &test.fake).Trial()
		inv := newInvocation(t)
		inv.Seed, inv.Adapter = new(NewSeed(7)), new("")
		plan, err := h.Plan(t.Context(), job(t, inv))
		if test.fake.err == nil {
			require.NoError(t, err, name)
			require.Empty(t, plan.Problems, name)
			require.Contains(t, string(plan.Detail), `"--seed","7"`)
		}
		res, err := h.Run(t.Context(), job(t, inv), func(trial.Event) {})
		require.Equal(t, test.fails, err != nil, name)
		require.Equal(t, test.verdict, res.Verdict, name)
		require.Equal(t, test.reason, res.Reason, name)
		require.Equal(t, test.code, res.ExitCode, name)
		require.Equal(t, test.verdict == trial.Passed, len(res.Problems) == 0, name)
		var detail Result
		require.NoError(t, json.Unmarshal(res.Detail, &detail))
		require.Equal(t, ResultSchemaV1, detail.Schema)
		if test.verdict == trial.Passed {
			require.Equal(t, []trial.RunRef{{ID: "run-1", Role: "program"}}, res.Runs)
			require.InDelta(t, 1.5, res.Usage.WallSeconds, 0)
			require.Len(t, res.Files, 2)
			requests := test.fake.requests
			require.Equal(t, map[string]string{"trial.id": "1", "trial.kind": "invoke", "trial.role": "program"}, requests[len(requests)-1].Labels)
		}
	}
}

// TestTrialRefuses: a document that is not an invocation is refused, and nothing runs.
func TestTrialRefuses(t *testing.T) {
	fake := &fakeBox{}
	h := newFake(t, fake).Trial()
	require.Equal(t, "invoke", h.Kind())
	for text, want := range map[string]string{
		``:                              "unexpected EOF",
		`[]`:                            "unmarshal JSON array", // the decoder varies its words before this
		`{"schema": "v2"}`:              `want "evalbox/invoke/v1", have "v2"`,
		`{"a": 1}`:                      "unknown object member name",
		`{"config": "", "config": "x"}`: "duplicate object member name",
		`{"schema": "evalbox/invoke/v1", "config": "c"}`:                                     "must not be empty",
		`{"schema": "evalbox/invoke/v1", "config": "c", "output_dir": "o", "seed": 1.5}`:     "must be a whole number",
		`{"schema": "evalbox/invoke/v1", "config": "c", "output_dir": "/no/such/directory"}`: "does not exist",
	} {
		job := trial.Job{Spec: []byte(text)}
		plan, err := h.Plan(t.Context(), job)
		require.NoError(t, err, text)
		require.Len(t, plan.Problems, 1, text)
		require.Contains(t, plan.Problems[0].Rule, want, text)
		res, err := h.Run(t.Context(), job, nil)
		require.NoError(t, err, text)
		require.Equal(t, trial.Refused, res.Verdict, text)
		require.NotNil(t, res.Files)
		if json.Valid([]byte(text)) && !strings.Contains(text, "/no/such") && !strings.Contains(text, `"config": "x"`) {
			schematest.Invalid(t, schematest.Load(t, h.Schema()), []byte(text))
		}
		require.Contains(t, res.Problems[0].Rule, want, text)
	}
	require.Empty(t, fake.requests)
}

// TestTrialTellsOfWaits: a wait is an event, and the caller of the harness hears of it, too.
func TestTrialTellsOfWaits(t *testing.T) {
	var events []trial.Event
	heard := ""
	box := &waitingBox{fakeBox{program: exits(0), left: good}}
	h, err := New(box, Options{Executable: "tool", Hooks: sandbox.Hooks{Waiting: func(why string) { heard = why }}})
	require.NoError(t, err)
	_, err = h.Trial().Run(t.Context(), job(t, newInvocation(t)), func(e trial.Event) { events = append(events, e) })
	require.NoError(t, err)
	require.Equal(t, []trial.Event{{Kind: trial.EventWaiting, Text: "for a GPU"}}, events)
	require.Equal(t, "for a GPU", heard)
}
