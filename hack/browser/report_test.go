//go:build browser

package browser

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/result"
)

// reports: a report works from the disk, runs no script of a program, and can be sorted.
func (s *site) reports() {
	s.report("hostile.html", s.results("hostile.jsonl", hostileResults()...))
	s.do(chromedp.WaitReady("main"))
	s.harmless("a batch")
	require.Contains(s, eval[string](s, "document.querySelector('table.sortable').textContent"), "window.pwned=1", "the text is there, as text")
	s.report("run.html", "hostile")
	s.harmless("a run")
	require.Contains(s, eval[string](s, "document.body.textContent"), "<img src=x onerror=window.pwned=4>.html")

	s.report("batch.html", s.results("results.jsonl", results()...))
	s.sorts()
	s.themes()
	s.shot("report-batch", 1500)
	s.report("run.html", "train-9")
	s.shot("report-run", 1250)
}

// report writes a report with the command, and opens it from the disk.
func (s *site) report(name, about string) {
	file := filepath.Join(s.TempDir(), name)
	require.NoError(s, s.command("report", about, "-o", file).Run())
	s.do(chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()), chromedp.WaitReady("main"))
}

// harmless requires that nothing of a program became markup that does something.
func (s *site) harmless(what string) {
	s.do(chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('details').forEach((each) => { each.open = true })"))
	require.Equal(s, "undefined", eval[string](s, "typeof window.pwned"), what)
	require.Equal(s, 1, eval[int](s, "document.scripts.length"), what)
	require.Zero(s, eval[int](s, "document.querySelectorAll('img, iframe, object, embed, form, link, a:not([href^=\"#part-\"]), svg script, [onload], [onerror], [style]').length"), what)
	require.NotContains(s, eval[string](s, "document.documentElement.textContent"), "\u202e", what)
}

// sorts: the head of a column sorts the leaderboard, by a click and by a key.
func (s *site) sorts() {
	const scripts = "[...document.querySelectorAll('table.sortable')[0].tBodies[0].rows].map((row) => row.cells[1].textContent)"
	const head = "[...document.querySelectorAll('table.sortable')[0].tHead.rows[0].cells].find((cell) => cell.textContent === 'Time')"
	s.do(chromedp.Evaluate[chromedp.Void](head + ".querySelector('button').click()"))
	require.Equal(s, "ascending", eval[string](s, head+".ariaSort"))
	require.Equal(s, "train-resnet-1", eval[[]string](s, scripts)[0])
	s.do(chromedp.Evaluate[chromedp.Void](head+".querySelector('button').focus()"), chromedp.KeyEvent("\r"))
	require.Equal(s, "descending", eval[string](s, head+".ariaSort"))
	require.Equal(s, "train-resnet-12", eval[[]string](s, scripts)[0])
	require.Equal(s, 1, eval[int](s, "document.querySelectorAll('th[aria-sort]').length"))
	s.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('table.sortable th button').click()"))
	require.Equal(s, "train-resnet-12", eval[[]string](s, scripts)[0], "rank 1")
}

// themes: a page follows the theme of the reader.
func (s *site) themes() {
	const colors = "[document.body, document.querySelector('svg text')].map((e) => getComputedStyle(e)).map((style) => style.backgroundColor + style.color + style.fill).join()"
	light := eval[string](s, colors)
	s.theme("dark")
	require.NotEqual(s, light, eval[string](s, colors))
	require.NotContains(s, eval[string](s, "getComputedStyle(document.body).backgroundColor"), "255, 255, 255")
	s.theme("light")
	require.Equal(s, light, eval[string](s, colors))
}

// theme is what the reader prefers: light or dark.
func (s *site) theme(name string) {
	s.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	}))
}

// results writes a results file.
func (s *site) results(name string, all ...evaluate.Result) string {
	path := filepath.Join(s.TempDir(), name)
	file, _, err := evaluate.OpenResults(path, evaluate.ReadOptions{})
	require.NoError(s, err)
	for _, r := range all {
		require.NoError(s, file.Append(r))
	}
	require.NoError(s, file.Close())
	require.FileExists(s, path)
	return path
}

// results are those of the runs of fill.
func results() (all []evaluate.Result) {
	for i := 1; i <= 12; i++ {
		r := evaluate.Result{
			Schema: evaluate.ResultSchemaV1, Name: fmt.Sprintf("train-resnet-%d", i), CompetitionID: "images", ScriptSHA256: fmt.Sprintf("%064d", i), OriginalSHA256: fmt.Sprintf("%064d", i),
			MetricDirection: evaluate.Maximize, BaselineValue: new(0.5),
			Run:              &evaluate.RunFacts{ID: fmt.Sprintf("train-%d", i), Status: result.StatusExited, Fault: result.FaultNone, GPUs: []string{fmt.Sprint(i % 2)}},
			EvaluationResult: evaluate.EvaluationResult{Score: new(score(i)), DurationSeconds: 300 + 9*float64(i), Warnings: []string{}},
			SelfReported:     true, GradedScore: new(score(i) - 0.01), Grading: &evaluate.Grading{Score: new(score(i) - 0.01), Ended: true},
		}
		if fails(i) {
			r.Run.Fault, r.ExitCode, r.IsError, r.ErrorReason, r.Score, r.GradedScore, r.Grading = result.FaultProgram, 1, true, result.ErrorReasonExitCode, nil, nil, nil
			r.ErrorTraceback = new(traceback)
		}
		all = append(all, r)
	}
	return all
}

// hostileResults have the attack in every field that a script has a say in.
func hostileResults() []evaluate.Result {
	failed := evaluate.Result{
		Schema: evaluate.ResultSchemaV1, Name: attack, CompetitionID: attack, MetricDirection: evaluate.Maximize, Why: attack, Failure: attack, ScriptSHA256: attack, OriginalSHA256: attack,
		Run:              &evaluate.RunFacts{ID: "hostile", Status: result.StatusExited, Fault: result.FaultProgram, Explanation: attack, ImageID: attack, GPUs: []string{attack}},
		EvaluationResult: evaluate.EvaluationResult{ExitCode: 1, IsError: true, ErrorReason: result.ErrorReasonExitCode, ErrorSummary: attack, ErrorTraceback: new(attack), Stdout: attack, Stderr: attack, Warnings: []string{attack}},
		Grading:          &evaluate.Grading{Failure: attack, Traceback: new(attack)},
		Submission:       &submission.Check{Problems: []string{attack}},
	}
	scored := failed
	scored.Name, scored.Failure, scored.IsError, scored.ErrorTraceback, scored.Score, scored.GradedScore = attack+"2", "", false, nil, new(0.5), new(0.4)
	return []evaluate.Result{failed, scored}
}
