package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// maxCell bounds a text in a title.
const maxCell = 40

// A Board is a leaderboard.
type Board struct {
	// Ranked are the evaluations, best first, and Direction says which scores are better.
	Ranked    []evaluate.Result
	Direction evaluate.MetricDirection
	// Baseline, unless nil, has a row of its own.
	Baseline *float64
	// Top, unless 0, is the number of evaluations that are shown.
	Top int
	// Width, unless 0, is that of the terminal. A table that is wider has fewer columns, and shorter
	// texts. Nothing is left out for 0.
	Width int
}

// A column is one of a leaderboard.
type column struct {
	name string
	// right aligns numbers.
	right bool
	// shown, if set, says for which rows the column is of use; without any it is left out.
	shown func(e row) bool
	cell  func(e row) string
}

// row is an evaluation of a leaderboard. Rank is 0 for one that has no score that counts.
type row struct {
	evaluate.Result

	rank       int
	overstated bool
	// baseline says that the row is the baseline, whose score is GradedScore or Score.
	baseline bool
}

// absent is the cell of a missing value.
const absent = "-"

var columns = []column{
	{name: "RANK", cell: func(e row) string {
		if e.rank == 0 {
			return absent
		}
		return strconv.Itoa(e.rank)
	}},
	{name: "NAME", cell: func(e row) string { return e.Name }},
	{
		name: "SEED", right: true,
		shown: func(e row) bool { return e.Seed != nil },
		cell: func(e row) string {
			if e.Seed == nil {
				return absent
			}
			return strconv.FormatUint(uint64(*e.Seed), 10)
		},
	},
	{
		name: "RESOURCE", right: true,
		shown: func(e row) bool { return e.Resource != 0 },
		cell: func(e row) string {
			if e.Resource == 0 {
				return absent
			}
			return strconv.Itoa(e.Resource)
		},
	},
	{
		name: "GRADED", right: true,
		shown: func(e row) bool { return !e.baseline && gradedCell(e.Result) != absent },
		cell:  func(e row) string { return gradedCell(e.Result) },
	},
	{name: "SCORE", right: true, cell: func(e row) string {
		switch {
		case e.Score != nil && e.ScoreUnfinished:
			return Unfinished + scoreCell(e.Score)
		case e.overstated:
			return Overstated + " " + scoreCell(e.Score)
		}
		return scoreCell(e.Score)
	}},
	{name: "STATUS", cell: func(e row) string {
		if e.baseline {
			return absent
		}
		return tableStatus(e.Result)
	}},
	{name: "DURATION", right: true, cell: func(e row) string {
		if e.Run == nil {
			return absent
		}
		return text.Seconds(e.DurationSeconds)
	}},
	{name: "RUN", cell: func(e row) string {
		if e.Run == nil {
			return absent
		}
		return e.Run.ID
	}},
	{
		name:  "WHY",
		shown: func(e row) bool { return !e.baseline && e.Explain() != "" },
		cell: func(e row) string {
			if e.baseline {
				return absent
			}
			return cmp.Or(e.Explain(), absent)
		},
	},
}

// Overstated marks a score that a script gave itself and that is far better than its graded one.
const Overstated = "!"

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

func scoreCell(score *float64) string {
	if score == nil {
		return absent
	}
	return scoreDigits(*score)
}

// scoreDigits has the digits that a reader compares; JSON has all.
func scoreDigits(score float64) string { return fmt.Sprintf("%.6g", score) }

func (b Board) graded() bool {
	return slices.ContainsFunc(b.Ranked, func(e evaluate.Result) bool { return e.Grading != nil })
}

// rows are the rows of the table, and the names of those with an overstated and with a doubtful score.
func (b Board) rows() (rows []row, marked, doubtful []string) {
	graded, ranks, scores := b.graded(), evaluate.Ranks(b.Ranked), evaluate.Counting(b.Ranked)
	baseline := row{Result: evaluate.Result{Name: "baseline"}, baseline: true}
	if baseline.Score = b.Baseline; graded {
		baseline.Score, baseline.GradedScore = nil, b.Baseline
	}
	placed := b.Baseline == nil
	for i, e := range b.Ranked {
		if b.Top > 0 && i >= b.Top {
			placed = true // it comes later
			break
		}
		if score := scores[i]; !placed && (score == nil || evaluate.IsImprovement(*b.Baseline, *score, b.Direction)) {
			rows, placed = append(rows, baseline), true
		}
		r := row{Result: e, rank: ranks[i], overstated: e.Overstated(cmp.Or(e.MetricDirection, b.Direction))}
		if r.overstated {
			marked = append(marked, e.Name)
		}
		if r.DoubtfulScore() {
			doubtful = append(doubtful, e.Name)
		}
		rows = append(rows, r)
	}
	if !placed {
		rows = append(rows, baseline)
	}
	return rows, marked, doubtful
}

// Table is the leaderboard as a table. Notes are lines below it.
func (b Board) Table() (header []string, cells [][]string, notes []string) {
	rows, marked, doubtful := b.rows()
	var used []column
	for _, c := range columns {
		if c.shown == nil || slices.ContainsFunc(rows, c.shown) {
			used = append(used, c)
		}
	}
	table := make([][]string, len(rows)+1)
	for _, c := range used {
		table[0] = append(table[0], c.name)
	}
	for i, r := range rows {
		for _, c := range used {
			table[i+1] = append(table[i+1], terminal.Line(text.OneLine(c.cell(r))))
		}
	}
	table = fitted(table, b.Width)
	for at, name := range table[0] {
		if i := slices.IndexFunc(used, func(c column) bool { return c.name == name }); used[i].right {
			width := widthOf(table, at)
			for _, row := range table {
				row[at] = strings.Repeat(" ", width-utf8.RuneCountInString(row[at])) + row[at]
			}
		}
	}
	if len(marked) > 0 {
		notes = append(notes, Overstated+" the self-reported score is far better than the graded one: "+text.First(marked, 5, ", "))
	}
	if len(doubtful) > 0 {
		notes = append(notes, "a separator or % follows the number of the score, which may be cut: "+text.First(doubtful, 5, ", "))
	}
	if left := len(b.Ranked) - b.Top; b.Top > 0 && left > 0 {
		notes = append(notes, fmt.Sprintf("and %d more", left))
	}
	return table[0], table[1:], notes
}

// widthOf is the width of a column. A character outside of ASCII may be as wide as two.
func widthOf(table [][]string, at int) int {
	width := 0
	for _, row := range table {
		width = max(width, utf8.RuneCountInString(row[at]))
	}
	return width
}

// cellWidth is the most that a cell can take on a terminal.
func cellWidth(cell string) int {
	width := 0
	for _, r := range cell {
		if width++; r >= 0x1100 && r != '…' {
			width++
		}
	}
	return width
}

// fitted returns a table that is at most this wide, if that is possible, and with width 0 the table
// itself. The columns RUN and DURATION go first if WHY has little room, then the longest texts
// become shorter.
func fitted(table [][]string, width int) [][]string {
	if width <= 0 {
		return table
	}
	const gap, least, room = 2, 8, 30
	widths := func() (all []int, sum int) {
		for at := range table[0] {
			w := 0
			for _, row := range table {
				w = max(w, cellWidth(row[at]))
			}
			all, sum = append(all, w), sum+w
		}
		return all, sum + gap*(len(all)-1)
	}
	for _, name := range []string{"RUN", "DURATION"} {
		all, sum := widths()
		if i := slices.Index(table[0], "WHY"); i >= 0 {
			sum -= max(all[i]-room, 0)
		}
		if at := slices.Index(table[0], name); at >= 0 && sum > width {
			for i, row := range table {
				table[i] = slices.Delete(slices.Clone(row), at, at+1)
			}
		}
	}
	all, sum := widths()
	for ; sum > width; sum-- {
		longest := -1
		for at, name := range table[0] {
			if slices.Contains([]string{"NAME", "STATUS", "WHY"}, name) && all[at] > least && (longest < 0 || all[at] >= all[longest]) {
				longest = at
			}
		}
		if longest < 0 {
			break
		}
		all[longest]--
	}
	for _, row := range table {
		for at, cell := range row {
			row[at] = fitCell(cell, all[at])
		}
	}
	return table
}

// fitCell returns at most as much of a cell as fits into a width.
func fitCell(cell string, width int) string {
	if cellWidth(cell) <= width {
		return cell
	}
	for limit := utf8.RuneCountInString(cell) - 1; limit > 1; limit-- {
		if short := text.Fit(cell, limit); cellWidth(short) <= width {
			return short
		}
	}
	return "…"
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
func ResultsTitle(ranked []evaluate.Result, direction evaluate.MetricDirection, baseline *float64) string {
	ids := evaluate.Competitions(ranked)
	title := string(direction)
	switch {
	case len(ids) > 1:
		title = fmt.Sprintf("%d competitions · %s", len(ids), direction)
	case len(ids) == 1 && ids[0] != "":
		title = text.Fit(ids[0], maxCell) + " · " + title
	}
	if baseline != nil {
		title += " · baseline " + scoreCell(baseline)
	}
	return title
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
