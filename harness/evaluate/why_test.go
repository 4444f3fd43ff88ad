package evaluate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestWhy(t *testing.T) {
	of := func(change func(r *Result)) Result {
		r := Result{Name: "a", Run: facts("a", result.StatusExited), EvaluationResult: EvaluationResult{Score: new(0.9)}}
		change(&r)
		return r
	}
	for want, r := range map[string]Result{
		"": of(func(*Result) {}),
		"KeyError: 'benign'": of(func(r *Result) {
			r.IsError, r.ErrorTraceback = true, new("Traceback (most recent call last):\n  x\nKeyError:  'benign'\n\n")
		}),
		"SyntaxError: invalid syntax": of(func(r *Result) { r.IsError, r.ErrorSummary = true, "  File x\nSyntaxError: invalid syntax" }),
		"line 3: calls sys.exit(": of(func(r *Result) {
			r.Run, r.IsError, r.ErrorReason, r.ErrorSummary = nil, true, ErrorReasonRejected, refusedPrefix+"line 3: calls sys.exit("
		}),
		"The time limit ended it.": of(func(r *Result) {
			r.IsError, r.Run.Status, r.Run.Explanation, r.ErrorTraceback = true, result.StatusTimedOut, "The time limit ended it.", new("KeyboardInterrupt")
		}),
		"metric.loss was nan after 2.00s, at step 3.": of(func(r *Result) {
			r.IsError, r.Run.Status = true, result.StatusStoppedByRule
			r.Run.Explanation = `The program was stopped by the rule "metric.loss is nan": metric.loss was nan after 2.00s, at step 3.`
		}),
		"not graded: the grader failed":   of(func(r *Result) { r.Grading = &Grading{Failure: "the grader failed"} }),
		"not graded: interrupted":         of(func(r *Result) { r.Grading = &Grading{Failure: "x", Canceled: true} }),
		"submission: 1 row, expected 142": of(func(r *Result) { r.Submission = &submission.Check{Problems: []string{"1 row, expected 142", "x"}} }),
		"the engine went away":            of(func(r *Result) { r.Failure = "the engine\nwent away" }),
		"the batch ended":                 {Failure: "not started: the batch ended"},
		"it printed no score":             of(func(r *Result) { r.Score = nil }),
		"the score 28 is cut: a separator with a digit, or %, follows it": of(func(r *Result) { r.Score, r.ScoreCut = new(28.0), true }),
		"the score 95 is cut: a separator with a digit, or %, follows it": of(func(r *Result) {
			r.GradedScore, r.Grading = new(95.0), &Grading{Score: new(95.0), ScoreCut: true}
		}),
		"the self-reported score 0.9 is far better than the graded 0.5": of(func(r *Result) {
			r.MetricDirection, r.GradedScore, r.Grading = Maximize, new(0.5), &Grading{Score: new(0.5)}
		}),
	} {
		require.Equal(t, want, r.Explain())
		require.Equal(t, want, r.Bounded().brief().Explain(), "also without the output")
	}
	long := of(func(r *Result) { r.IsError, r.ErrorTraceback = true, new("T\n"+strings.Repeat("é", 1<<20)) })
	require.Len(t, []rune(long.Explain()), 200)
}

func TestOverstated(t *testing.T) {
	for _, test := range []struct {
		self, graded float64
		direction    MetricDirection
		want         bool
	}{
		{0.99, 0.37, Maximize, true},
		{0.37, 0.99, Maximize, false},
		{0.37, 0.99, Minimize, true},
		{0.88, 0.80, Maximize, false}, // 10 % of the graded one
		{0.89, 0.80, Maximize, true},
		{0.14, 0.10, Maximize, false}, // 0.05
		{0.16, 0.10, Maximize, true},
		{1000, 1080, Minimize, false},
		{900, 1080, Minimize, true},
		{-1, -2, Maximize, true},
		{0.99, 0.37, "", false},
	} {
		r := Result{EvaluationResult: EvaluationResult{Score: &test.self}, GradedScore: &test.graded}
		require.Equal(t, test.want, r.Overstated(test.direction), "%+v", test)
	}
	require.False(t, Result{}.Overstated(Maximize))
}

// TestStands: a limit that only grew keeps what it had no part in.
func TestStands(t *testing.T) {
	low := Limits{SetupSHA256: "s", TimeoutSeconds: 10, MemoryBytes: 100, PIDs: 5, DiskBytes: 100, OutputBytes: 100}
	of := func(status result.Status, code int) Result {
		return Result{Run: facts("a", status), Limits: new(low), EvaluationResult: EvaluationResult{ExitCode: code, IsError: code != 0 || status != result.StatusExited}}
	}
	higher := func(change func(l *Limits)) Limits {
		l := low
		change(&l)
		return l
	}
	longer := higher(func(l *Limits) { l.TimeoutSeconds = 20 })
	larger := higher(func(l *Limits) { l.MemoryBytes = 200 })
	well, crashed, hung := of(result.StatusExited, 0), of(result.StatusExited, 1), of(result.StatusTimedOut, -1)
	asked, killed := of(result.StatusExited, 0), of(result.StatusExited, 0)
	asked.Run.Deadline, killed.Run.OOMKilled = result.DeadlineSoft, true
	for name, test := range map[string]struct {
		r    Result
		now  Limits
		want bool
	}{
		"longer, ended well":            {well, longer, true},
		"longer, crashed":               {crashed, longer, true},
		"longer, timed out":             {hung, longer, false},
		"longer, asked to finish":       {asked, longer, false},
		"longer, out of memory":         {of(result.StatusOutOfMemory, -1), longer, true},
		"longer, refused":               {Result{Limits: new(low)}, longer, true},
		"larger, ended well":            {well, larger, true},
		"larger, a crash may be memory": {crashed, larger, false},
		"larger, a child was killed":    {killed, larger, false},
		"larger, out of memory":         {of(result.StatusOutOfMemory, -1), larger, false},
		"larger, timed out":             {hung, larger, false},
		"more output":                   {of(result.StatusOutputLimit, -1), higher(func(l *Limits) { l.OutputBytes = 200 }), false},
		"no limit of the output":        {of(result.StatusOutputLimit, -1), higher(func(l *Limits) { l.OutputBytes = 0 }), false},
		"more output, crashed":          {crashed, higher(func(l *Limits) { l.OutputBytes = 0 }), true},
		"shorter":                       {well, higher(func(l *Limits) { l.TimeoutSeconds = 5 }), false},
		"longer and smaller":            {well, higher(func(l *Limits) { l.TimeoutSeconds, l.DiskBytes = 20, 50 }), false},
		"another setup":                 {well, higher(func(l *Limits) { l.SetupSHA256 = "t" }), false},
		"an older version":              {Result{Run: facts("a", result.StatusExited)}, longer, false},
	} {
		ok, limited := test.r.stands(test.now)
		require.Equal(t, test.want, ok, name)
		lower := slices.Contains([]string{"shorter", "longer and smaller", "another setup", "an older version"}, name)
		require.Equal(t, !ok && !lower, limited, name)
	}
}

func TestScorePattern(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                                    "",
		`acc: ([0-9.]+)`:                      "",
		`(a|b): ([0-9.]+)`:                    "must have one group",
		`acc`:                                 "must have one group",
		`(`:                                   "is not a regular expression",
		"(" + strings.Repeat("a", 1000) + ")": "must have at most 1000 bytes",
	} {
		_, err := scorePattern(pattern)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	pattern, err := scorePattern(`acc=(\S+)`)
	require.NoError(t, err)
	for stdout, want := range map[string]*float64{
		"":                             nil,
		"acc=0.5\nacc=0.25 acc=0.75\n": new(0.75),
		"acc=0.5":                      new(0.5),
		"acc=0.5\nacc=nan\n":           nil,
		strings.Repeat("x", maxScoreLine) + "acc=1\nacc=0.5\n":      new(0.5),
		"acc=0.5\n" + strings.Repeat("x", maxScoreLine) + "acc=1\n": new(0.5),
	} {
		s := &scoreScanner{pattern: pattern}
		for i := range len(stdout) {
			_, _ = s.Write([]byte{stdout[i]})
		}
		got, _ := s.score()
		require.Equal(t, want, got, "%.40q", stdout)
	}
	for pattern, cut := range map[string]bool{`acc: ([0-9.]+)`: true, `acc: ([0-9.]+)[,%]`: false, `acc: ([0-9.]+)\d`: true} {
		compiled, err := scorePattern(pattern)
		require.NoError(t, err)
		for _, line := range []string{"acc: 28,341.22", "acc: 95%\n", "acc: 28,3"} {
			s := &scoreScanner{pattern: compiled}
			_, _ = s.Write([]byte("acc: 1\n" + line))
			_, warning := s.score()
			require.Equal(t, cut, warning != "", "%s %s", pattern, line)
		}
	}
	for pattern, line := range map[string]string{`acc ([\d.]+) of \d+`: "acc 0.5 of 1,000", `acc=([0-9.]+) loss=[0-9.]+`: "acc=0.9 loss=3%"} {
		compiled, err := scorePattern(pattern)
		require.NoError(t, err)
		s := &scoreScanner{pattern: compiled}
		_, _ = s.Write([]byte(line))
		_, warning := s.score()
		require.Empty(t, warning, line)
	}
	optional, err := scorePattern(`acc(=[0-9]+)?`)
	require.NoError(t, err)
	s := &scoreScanner{pattern: optional}
	_, _ = s.Write([]byte("acc"))
	_, warning := s.score()
	require.Contains(t, warning, "not a finite number")
}

func TestLayouts(t *testing.T) {
	require.Equal(t, []string{"aide", "kaggle", "mle-bench"}, Layouts())
	for _, name := range Layouts() {
		aliases, err := TaskDescription{CompetitionID: "c", Layout: name}.allAliases("")
		require.NoError(t, err)
		require.NotEmpty(t, aliases)
	}
	_, err := TaskDescription{Layout: "x"}.allAliases("")
	require.ErrorContains(t, err, "layout \"x\": must be one of aide, kaggle, mle-bench")
	aliases, err := TaskDescription{Layout: "aide", Aliases: map[string]string{"./data": "./input", "working": "final/w"}}.allAliases("")
	require.NoError(t, err)
	require.Len(t, aliases, 3)
	require.Equal(t, "final/w", aliases[2].Target, "an alias of the task wins")
}

func TestKaggleLayout(t *testing.T) {
	flat, arranged, many := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(flat, "train.csv"), "x")
	writeFile(t, filepath.Join(flat, "images", "1.png"), "x")
	writeFile(t, filepath.Join(flat, "a\nb"), "x")
	writeFile(t, filepath.Join(arranged, "titanic", "train.csv"), "x")
	writeFile(t, filepath.Join(arranged, "more.csv"), "x")
	full, file := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(full, "titanic", "train.csv"), "x")
	writeFile(t, filepath.Join(file, "titanic"), "x")
	for i := range maxEntries + 1 {
		writeFile(t, filepath.Join(many, strconv.Itoa(i)), "x")
		writeFile(t, filepath.Join(full, strconv.Itoa(i)), "x")
	}
	const always = "/kaggle/working=final submission.csv=final/submission.csv"
	for name, test := range map[string]struct {
		input, want string
		own         map[string]string
	}{
		"flat": {flat, "/input/images=input/images /input/titanic=input /input/train.csv=input/train.csv " +
			"/kaggle/input/images=input/images /kaggle/input/titanic=input /kaggle/input/train.csv=input/train.csv " + always, nil},
		"in a directory of the competition": {arranged, "/input/more.csv=input/more.csv /input/titanic=input/titanic /kaggle/input=input " + always, nil},
		"many entries":                      {many, "/input/titanic=input /kaggle/input/titanic=input " + always, nil},
		"in a directory, many entries":      {full, "/input/titanic=input/titanic /kaggle/input=input " + always, nil},
		"a file of that name":               {file, "/input/titanic=input /kaggle/input/titanic=input " + always, nil},
		"aliases of the task":               {many, "/input/titanic=input /kaggle/input=input/a " + always, map[string]string{"/kaggle/input": "input/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			aliases, err := TaskDescription{CompetitionID: "titanic", Layout: "kaggle", Aliases: test.own}.allAliases(test.input)
			require.NoError(t, err)
			var got []string
			for _, a := range aliases {
				got = append(got, a.Name+"="+a.Target)
			}
			slices.Sort(got)
			require.Equal(t, test.want, strings.Join(got, " "))
		})
	}
	most, own := t.TempDir(), map[string]string{}
	for i := range maxEntries {
		writeFile(t, filepath.Join(most, strconv.Itoa(i)), "x")
	}
	for i := range spec.MaxAliases - 2*maxEntries {
		own[fmt.Sprintf("own/%d", i)] = "input/x"
	}
	aliases, err := TaskDescription{CompetitionID: "titanic", Layout: "kaggle", Aliases: own}.allAliases(most)
	require.NoError(t, err)
	require.Len(t, aliases, len(own)+4, "the aliases of the task, and of the layout without entries")
	for _, id := range []string{"a/b", "..", "", "a\nb"} {
		_, err := TaskDescription{CompetitionID: id, Layout: "kaggle"}.allAliases("")
		require.ErrorContains(t, err, "must be the name of a directory")
	}
}

func TestSyntaxErrors(t *testing.T) {
	found, err := syntaxErrors("[1, 3, \"SyntaxError: invalid syntax\"]\n", 2)
	require.NoError(t, err)
	require.Equal(t, []*Violation{nil, {Line: 3, Rule: "SyntaxError: invalid syntax"}}, found)
	for _, text := range []string{"x\n", "[2, 1, \"a\"]\n", "[-1, 1, \"a\"]\n"} {
		_, err := syntaxErrors(text, 2)
		require.Error(t, err)
	}
}
