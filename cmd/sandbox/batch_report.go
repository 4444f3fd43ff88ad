package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

// report shows the results of a batch and sets the exit code. ended is the reason of an
// early end; nil if there was none.
func (b *batchRun) report(ended error) error {
	notStarted, inconclusive := 0, 0
	for _, e := range b.all {
		switch {
		case e == nil:
			notStarted++
		case !e.Conclusive():
			inconclusive++
		}
	}
	b.app.code = batchCode(ended, notStarted+inconclusive)
	err := b.show(ended)
	if !b.settings.Quiet {
		b.app.say(b.sum(notStarted, inconclusive))
	}
	errs := append([]error{err}, b.failed...)
	return errors.Join(append(errs, ended)...)
}

// batchCode is the exit code of a batch.
func batchCode(ended error, missing int) int {
	var failures *failuresError
	switch {
	case errors.As(ended, &failures):
		return exitProblem
	case errors.Is(ended, errBudget):
		return exitTimeLimit
	case ended != nil:
		return exitCode(nil, ended)
	case missing > 0:
		return exitSandbox
	}
	return 0
}

// sum is the last line on a batch.
func (b *batchRun) sum(notStarted, inconclusive int) string {
	valid := 0
	for _, e := range b.all {
		if e != nil && endedWell(*e) && e.Conclusive() {
			valid++
		}
	}
	failed := len(b.all) - valid - notStarted - inconclusive
	parts := []string{fmt.Sprintf("%d ended well", valid), fmt.Sprintf("%d failed", failed)}
	if inconclusive > 0 {
		parts = append(parts, fmt.Sprintf("%d without a conclusive result", inconclusive))
	}
	if notStarted > 0 {
		parts = append(parts, fmt.Sprintf("%d not started", notStarted))
	}
	shown := fmt.Sprintf("batch of %d: %s", len(b.all), strings.Join(parts, ", "))
	if n := b.debugged.Load(); n > 0 {
		shown += " · " + text.Count(n, "debug command") + " failed"
	}
	shown += " · results in " + b.flags.results
	if inconclusive+notStarted > 0 {
		shown += "; the same command goes on from there"
	}
	return shown
}

// show prints the results: the leaderboard, or one line of JSON for each.
func (b *batchRun) show(ended error) error {
	switch {
	case b.settings.JSON:
		return b.printLines(ended)
	case b.settings.Quiet:
		return nil
	}
	var found []evaluate.Evaluation
	for _, e := range b.all {
		if e != nil {
			found = append(found, *e)
		}
	}
	ranked, err := evaluate.RankEvaluations(found, b.task.MetricDirection)
	if err != nil || len(ranked) == 0 {
		return err
	}
	if err := b.app.printLeaderboard(render.TaskTitle(b.task), ranked); err != nil {
		return err
	}
	return b.printStatistics(found)
}

// printStatistics prints a line for each script that ran with several seeds.
func (b *batchRun) printStatistics(found []evaluate.Evaluation) error {
	if b.flags.repeat == 1 {
		return nil
	}
	var names []string
	scores, runs := map[string][]float64{}, map[string]int{}
	for _, e := range found {
		if _, there := scores[e.Name]; !there {
			names = append(names, e.Name)
			scores[e.Name] = []float64{}
		}
		runs[e.Name]++
		if score := e.BestScore(); score != nil && e.Valid() {
			scores[e.Name] = append(scores[e.Name], *score)
		}
	}
	for _, name := range names {
		if err := b.app.print("%s", name+": "+render.Statistics(evaluate.Summarize(scores[name]), runs[name])); err != nil {
			return err
		}
	}
	return nil
}

// printLines prints an evaluation for each entry, in their order.
func (b *batchRun) printLines(ended error) error {
	encoder := json.NewEncoder(b.app.streams.Out)
	encoder.SetEscapeHTML(false)
	for i, e := range b.all {
		if e == nil {
			missing := b.entries[i].asked(b.task.CompetitionID, b.setup)
			why := "the batch ended"
			if ended != nil && !errors.Is(ended, context.Canceled) {
				why = text.OneLine(ended.Error())
			}
			missing.Failure = "not started: " + why
			e = &missing
		}
		if err := encoder.Encode(e); err != nil {
			return readerGone(err)
		}
	}
	return nil
}
