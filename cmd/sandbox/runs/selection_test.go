package runs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func runOf(id string, at int64, state record.State, res *result.Result) record.Record {
	return record.Record{ID: id, State: state, Created: time.Unix(at, 0), Result: res,
		Spec: spec.Spec{Job: spec.Job{Name: "train-" + id, Labels: map[string]string{"exp": "e1", "bare": ""}}}}
}

func TestSelection(t *testing.T) {
	ended := func(status result.Status, code int) *result.Result {
		return &result.Result{Status: status, ExitCode: code}
	}
	all := []record.Record{
		runOf("good", 1, record.Finished, ended(result.StatusExited, 0)),
		runOf("bad", 2, record.Finished, ended(result.StatusExited, 3)),
		runOf("late", 3, record.Finished, ended(result.StatusTimedOut, -1)),
		runOf("now", 4, record.Running, nil),
		runOf("lost", 5, record.Lost, nil),
	}
	for name, test := range map[string]struct {
		s    selection
		want []string
	}{
		"all":          {selection{}, []string{"good", "bad", "late", "now", "lost"}},
		"failed":       {selection{record.Filter{Status: []string{"failed"}}}, []string{"bad", "late"}},
		"succeeded":    {selection{record.Filter{Status: []string{"succeeded"}}}, []string{"good"}},
		"a status":     {selection{record.Filter{Status: []string{"exited"}}}, []string{"good", "bad"}},
		"two":          {selection{record.Filter{Status: []string{"running", "lost"}}}, []string{"now", "lost"}},
		"name":         {selection{record.Filter{Name: "train-l*"}}, []string{"late", "lost"}},
		"label":        {selection{record.Filter{Labels: []string{"exp=e1", "bare"}, Status: []string{"lost"}}}, []string{"lost"}},
		"other label":  {selection{record.Filter{Labels: []string{"exp=e2"}}}, nil},
		"empty label":  {selection{record.Filter{Labels: []string{"exp="}}}, nil},
		"no label":     {selection{record.Filter{Labels: []string{"nosuch"}}}, nil},
		"since":        {selection{record.Filter{Since: time.Unix(4, 0)}}, []string{"now", "lost"}},
		"before":       {selection{record.Filter{Before: time.Unix(2, 0)}}, []string{"good"}},
		"in that time": {selection{record.Filter{Since: time.Unix(2, 0), Before: time.Unix(4, 0)}}, []string{"bad", "late"}},
	} {
		var got []string
		for _, each := range all {
			if test.s.matches(each, nil) {
				got = append(got, each.ID)
			}
		}
		require.Equal(t, test.want, got, name)
	}
	prunable := func(f pruneFlags) (ids []string) {
		for _, run := range f.prunable(all) {
			ids = append(ids, run.RunID)
		}
		return ids
	}
	require.Equal(t, []string{"good", "bad", "late"}, prunable(pruneFlags{}), "what has no result stays")
	require.Equal(t, []string{"good", "bad"}, prunable(pruneFlags{keepLast: new(1)}))
	require.Equal(t, []string{"bad"}, prunable(pruneFlags{keepLast: new(1), selection: selection{record.Filter{Status: []string{"failed"}}}}))
	require.Empty(t, prunable(pruneFlags{keepLast: new(9)}))
}

func TestReadAgeAndSince(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 720 * time.Hour, "2w": 336 * time.Hour, "90": 90 * time.Second, "1h30m": 90 * time.Minute, "0s": 0} {
		got, err := readAge(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "d", "-1d", "-5s", "1.5d", "99999999d", "x", "1y"} {
		_, err := readAge(text)
		require.Error(t, err, text)
	}
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	for text, want := range map[string]time.Time{
		"1h": now.Add(-time.Hour), "2026-01-01": time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local),
		"2026-01-02 15:04": now.Truncate(time.Minute), "2026-01-02T15:04:05Z": time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
	} {
		got, err := readSince(now)(text)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), text)
	}
	_, err := readSince(now)("yesterday")
	require.Error(t, err)
}

func TestShortTime(t *testing.T) {
	now := time.Date(2026, 6, 2, 15, 4, 5, 0, time.Local)
	require.Equal(t, "03:00:00", shortTime(time.Date(2026, 6, 2, 3, 0, 0, 0, time.Local), now))
	require.Equal(t, "Jun  1 23:59", shortTime(time.Date(2026, 6, 1, 23, 59, 0, 0, time.Local), now))
	require.Equal(t, "2025-06-01", shortTime(time.Date(2025, 6, 1, 0, 0, 0, 0, time.Local), now))
}
