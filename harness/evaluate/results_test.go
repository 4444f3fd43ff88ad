package evaluate

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// written is a results file with the given evaluations.
func written(t *testing.T, evaluations ...Result) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.jsonl")
	file, report, err := OpenResults(path, ReadOptions{})
	require.NoError(t, err)
	require.Empty(t, report.Results)
	for _, e := range evaluations {
		require.NoError(t, file.Append(e))
	}
	require.NoError(t, file.Close())
	return path
}

func TestResultsRoundTrip(t *testing.T) {
	want := scored("a", new(0.5)).Bounded()
	want.Seed, want.Stdout = new(uint32(3)), "über\n\x00\u2028"
	path := written(t, want, scored("b", nil))
	report, err := ReadResults(path, ReadOptions{})
	require.NoError(t, err)
	require.Len(t, report.Results, 2)
	require.Equal(t, want, report.Results[0])
	require.Zero(t, report.Torn)

	file, report, err := OpenResults(path, ReadOptions{})
	require.NoError(t, err)
	require.Len(t, report.Results, 2)
	_, _, err = OpenResults(path, ReadOptions{})
	require.ErrorIs(t, err, sandbox.ErrBusy, "one writer at a time")
	require.NoError(t, file.Append(scored("c", nil)))
	require.NoError(t, file.Close())
	report, err = ReadResults(path, ReadOptions{})
	require.NoError(t, err)
	require.Equal(t, "a b c", names(report.Results))
}

func TestResultsBoundText(t *testing.T) {
	e := scored("a", nil)
	e.Stdout, e.Stderr, e.Run = strings.Repeat("x", 1<<20)+"end", "short", &RunFacts{Status: 1, Fault: 1}
	report, err := ReadResults(written(t, e), ReadOptions{})
	require.NoError(t, err)
	got := report.Results[0]
	require.Less(t, len(got.Stdout), textLimit+100)
	require.Contains(t, got.Stdout, "bytes dropped")
	require.True(t, strings.HasSuffix(got.Stdout, "end"))
	require.Equal(t, "short", got.Stderr)
	require.True(t, got.Run.OutputTruncated)
	require.False(t, e.Run.OutputTruncated, "the argument does not change")
}

func TestResultsCutByACrash(t *testing.T) {
	path := written(t, scored("a", nil), scored("b", nil))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	first := strings.IndexByte(string(whole), '\n') + 1
	for name, text := range map[string]string{
		"in the middle":       string(whole[:first+40]),
		"in the schema":       string(whole[:first+5]),
		"one byte":            string(whole[:first+1]),
		"but for its end":     string(whole[:len(whole)-1]),
		"zeros":               string(whole[:first]) + "\x00\x00\x00",
		"zeros and an end":    string(whole[:first]) + "\x00\x00\n",
		"cut, and then ended": string(whole[:first+40]) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			report, err := ReadResults(path, ReadOptions{})
			require.NoError(t, err)
			require.Equal(t, "a", names(report.Results))
			require.Equal(t, 2, report.Torn)

			file, report, err := OpenResults(path, ReadOptions{})
			require.NoError(t, err)
			require.Equal(t, 2, report.Torn)
			require.NoError(t, file.Append(scored("c", nil)))
			require.NoError(t, file.Close())
			report, err = ReadResults(path, ReadOptions{})
			require.NoError(t, err)
			require.Equal(t, "a c", names(report.Results))
			require.Zero(t, report.Torn)
		})
	}
}

func TestResultsOfAnotherKind(t *testing.T) {
	whole, err := os.ReadFile(written(t, scored("a", nil)))
	require.NoError(t, err)
	for name, test := range map[string]struct{ text, want string }{
		"a letter":         {"Dear John,\nhow are you", ":1: is not an evaluation"},
		"the last line":    {string(whole) + "hello", ":2: is not an evaluation"},
		"in the middle":    {string(whole) + `{"schema":"evalbox/eva` + "\n" + string(whole), ":2: is not an evaluation"},
		"another schema":   {`{"schema":"evalbox/result/v1"}` + "\n", `:1: schema is "evalbox/result/v1"`},
		"JSON without end": {`{"a":1}`, ":1: schema is"},
		"an endless line":  {strings.Repeat("x", resultLines.Max+2), ":1: is longer than"},
		"two on one line":  {strings.TrimSpace(string(whole)) + string(whole) + string(whole), ":1: is not an evaluation"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "results.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
			_, err := ReadResults(path, ReadOptions{})
			var problem *FileError
			require.ErrorAs(t, err, &problem)
			require.ErrorContains(t, err, test.want)
			require.NotEmpty(t, problem.Hint())
			_, _, err = OpenResults(path, ReadOptions{})
			require.ErrorContains(t, err, test.want)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, test.text, string(after), "it stays as it is")
		})
	}
	_, err = ReadResults(filepath.Join(t.TempDir(), "nowhere"), ReadOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = OpenResults(filepath.Join(t.TempDir(), "no", "where"), ReadOptions{})
	require.Error(t, err)
	_, _, err = OpenResults(t.TempDir(), ReadOptions{})
	require.Error(t, err)
}

func TestResultsEmptyAndBlank(t *testing.T) {
	whole, err := os.ReadFile(written(t, scored("a", nil)))
	require.NoError(t, err)
	for _, text := range []string{"", "\n\n", "\n" + string(whole) + "\r\n\n"} {
		report, err := readResults(strings.NewReader(text), "x", ReadOptions{})
		require.NoError(t, err)
		require.Zero(t, report.Torn)
		require.EqualValues(t, len(text), report.size)
	}
}

func TestResultsRefuseWhatJSONCannotCarry(t *testing.T) {
	file, _, err := OpenResults(filepath.Join(t.TempDir(), "results.jsonl"), ReadOptions{})
	require.NoError(t, err)
	defer file.Close()
	require.ErrorContains(t, file.Append(scored("a", new(math.Inf(1)))), "unsupported value: +Inf")
	e := scored("a", nil)
	e.GradedScore = new(math.NaN())
	require.ErrorContains(t, file.Append(e), "unsupported value: NaN")
	require.NoError(t, file.Append(scored("b", nil)))
}

func TestLatest(t *testing.T) {
	a, b, c := scored("a", new(1.0)), scored("b", nil), scored("a", new(2.0))
	seeded := scored("a", nil)
	seeded.Seed = new(uint32(0))
	changed := scored("a", nil)
	changed.ScriptSHA256 = "other"
	latest, replaced := Latest([]Result{a, b, c, seeded, changed})
	require.Equal(t, []Result{changed, b, seeded}, latest, "an old version does not count any more")
	require.Equal(t, Replaced{Repeated: 1, Edited: 1}, replaced)
	require.Equal(t, 2, replaced.All())

	// What a later try could not find out does not undo what is known, whatever the setup.
	ended := func(script, setup, competition string, status result.Status) Result {
		return Result{Name: "a", OriginalSHA256: script, SetupSHA256: setup, CompetitionID: competition, Run: facts("", status)}
	}
	known, canceled := ended("1", "s", "c", result.StatusExited), ended("1", "t", "c", result.StatusCanceled)
	latest, replaced = Latest([]Result{known, canceled})
	require.Equal(t, []Result{known}, latest)
	require.Equal(t, Replaced{Setup: 1}, replaced)
	latest, _ = Latest([]Result{canceled, known})
	require.Equal(t, []Result{known}, latest)
	edited := ended("2", "s", "c", result.StatusCanceled)
	latest, _ = Latest([]Result{known, edited})
	require.Equal(t, []Result{edited}, latest, "the score is that of another script")

	other := ended("1", "s", "d", result.StatusExited)
	repeated := known
	repeated.Repetition = 1
	latest, replaced = Latest([]Result{known, other, repeated})
	require.Len(t, latest, 3)
	require.Zero(t, replaced)
	require.Equal(t, []string{"c", "d"}, Competitions(latest))
}

func FuzzReadResults(f *testing.F) {
	f.Add(`{"schema":"evalbox/evaluation/v1","name":"a"}` + "\n" + `{"schema":"evalb`)
	f.Add("\x00\x00\n\n{}")
	f.Fuzz(func(t *testing.T, text string) {
		report, err := readResults(strings.NewReader(text), "x", ReadOptions{})
		if err == nil && (report.size > int64(len(text)) || report.Torn == 0 && report.size != int64(len(text))) {
			t.Fatalf("size %d of %d", report.size, len(text))
		}
	})
}
