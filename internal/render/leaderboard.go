package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/text"
)

// maxCell bounds a cell, for a terminal of usual width.
const maxCell = 40

// A column is one of a leaderboard.
type column struct {
	name string
	// right aligns numbers.
	right bool
	// shown, if set, says for which evaluations the column is of use; without any it
	// is left out.
	shown func(e evaluate.Result) bool
	cell  func(rank int, e evaluate.Result) string
}

// absent is the cell of a missing value.
const absent = "-"

var columns = []column{
	{name: "RANK", cell: func(rank int, _ evaluate.Result) string {
		if rank == 0 {
			return absent
		}
		return strconv.Itoa(rank)
	}},
	{name: "NAME", cell: func(_ int, e evaluate.Result) string { return text.Fit(e.Name, maxCell) }},
	{
		name: "SEED", right: true,
		shown: func(e evaluate.Result) bool { return e.Seed != nil },
		cell: func(_ int, e evaluate.Result) string {
			if e.Seed == nil {
				return absent
			}
			return strconv.FormatUint(uint64(*e.Seed), 10)
		},
	},
	{
		name: "GRADED", right: true,
		shown: func(e evaluate.Result) bool { return gradedCell(e) != absent },
		cell:  func(_ int, e evaluate.Result) string { return gradedCell(e) },
	},
	{name: "SCORE", right: true, cell: func(_ int, e evaluate.Result) string {
		if e.Score != nil && e.ScoreUnfinished {
			return Unfinished + scoreCell(e.Score)
		}
		return scoreCell(e.Score)
	}},
	{name: "STATUS", cell: func(_ int, e evaluate.Result) string { return text.Fit(evaluationStatus(e), maxCell) }},
	{name: "DURATION", right: true, cell: func(_ int, e evaluate.Result) string {
		if e.Run == nil {
			return absent
		}
		return text.Seconds(e.DurationSeconds)
	}},
	{name: "RUN", cell: func(_ int, e evaluate.Result) string {
		if e.Run == nil {
			return absent
		}
		return e.Run.ID
	}},
}

// gradedCell is the graded score. A failed evaluation has nothing to grade.
func gradedCell(e evaluate.Result) string {
	switch {
	case e.GradedScore != nil:
		return scoreCell(e.GradedScore)
	case e.Grading == nil, !e.Valid():
		return absent
	case e.Grading.Canceled:
		return "canceled"
	}
	return "failed"
}

// scoreCell has the digits that a reader compares; JSON has all.
func scoreCell(score *float64) string {
	if score == nil {
		return absent
	}
	return fmt.Sprintf("%.6g", *score)
}

// Leaderboard is the table of ranked evaluations. Only what has a score that counts
// has a rank.
func Leaderboard(ranked []evaluate.Result) (header []string, rows [][]string) {
	rows = make([][]string, len(ranked))
	graded := slices.ContainsFunc(ranked, func(e evaluate.Result) bool { return e.Grading != nil })
	for _, c := range columns {
		if c.shown != nil && !slices.ContainsFunc(ranked, c.shown) {
			continue
		}
		cells, width := []string{c.name}, len(c.name)
		for i, e := range ranked {
			rank := 0
			if e.Valid() && e.BestScore() != nil && (!graded || e.GradedScore != nil) {
				rank = i + 1
			}
			cells = append(cells, c.cell(rank, e))
			width = max(width, utf8.RuneCountInString(cells[i+1]))
		}
		for i, cell := range cells {
			if c.right {
				cell = strings.Repeat(" ", width-utf8.RuneCountInString(cell)) + cell
			}
			if i == 0 {
				header = append(header, cell)
			} else {
				rows[i-1] = append(rows[i-1], cell)
			}
		}
	}
	return header, rows
}

// TaskTitle is the title of the leaderboard of a task.
func TaskTitle(task evaluate.TaskDescription) string {
	title := fmt.Sprintf("%s · %s, %s", text.Fit(task.CompetitionID, maxCell), text.Fit(task.EvaluationMetric, maxCell), task.MetricDirection)
	if task.BaselineValue != nil {
		title += " · baseline " + scoreCell(task.BaselineValue)
	}
	return title
}

// ResultsTitle is the title of the leaderboard of a results file.
func ResultsTitle(ranked []evaluate.Result, direction evaluate.MetricDirection) string {
	ids := evaluate.Competitions(ranked)
	switch {
	case len(ids) > 1:
		return fmt.Sprintf("%d competitions · %s", len(ids), direction)
	case len(ids) == 0 || ids[0] == "":
		return string(direction)
	}
	return text.Fit(ids[0], maxCell) + " · " + string(direction)
}

// Replaced says which evaluations others have taken the place of; empty for none.
func Replaced(r evaluate.Replaced) string {
	var parts []string
	for _, p := range []struct {
		count int
		text  string
	}{
		{r.Edited, "of another version of the script"}, {r.Setup, "evaluated in another way"}, {r.Repeated, "of the same script"},
	} {
		if p.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.count, p.text))
		}
	}
	switch r.All() {
	case 0:
		return ""
	case 1:
		_, what, _ := strings.Cut(parts[0], " ")
		return "1 evaluation is replaced by one that counts: " + what
	}
	return fmt.Sprintf("%d evaluations are replaced by others that count: %s", r.All(), strings.Join(parts, ", "))
}
