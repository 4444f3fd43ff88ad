package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/text"
)

// pair is what two batches have of one script, seed and repetition.
type pair struct{ a, b *standing }

func (p pair) either() *standing { return cmp.Or(p.a, p.b) }

// change is the difference of two scores; nil unless both count.
func (p pair) change() *float64 {
	if p.a == nil || p.b == nil || p.a.score == nil || p.b.score == nil {
		return nil
	}
	return new(*p.b.score - *p.a.score)
}

// mark says whether the second score is better.
func (p pair) mark(direction evaluate.MetricDirection) Mark {
	switch change := p.change(); {
	case change == nil || *change == 0:
		return Plain
	case evaluate.IsImprovement(*p.b.score, *p.a.score, direction):
		return Good
	case direction.Check() == nil:
		return Bad
	}
	return Plain
}

// CompareDocument puts two batches side by side: scores, ranks and results of the same scripts.
func CompareDocument(a, b Batch) Document {
	var pairs []*pair
	var seconds [2]float64
	at := map[string]*pair{}
	for i, batch := range []Batch{a, b} {
		for _, s := range batch.standings() {
			seconds[i] += s.DurationSeconds
			p := at[s.key()]
			if p == nil {
				p = &pair{}
				at[s.key()] = p
				pairs = append(pairs, p)
			}
			if i == 0 {
				p.a = &s
			} else {
				p.b = &s
			}
		}
	}
	direction := cmp.Or(b.Direction, a.Direction)
	d := Document{Kind: "Comparison", Title: a.Title + " and " + b.Title}
	var better, worse, both, changed int
	var changes []float64
	for _, p := range pairs {
		switch p.mark(direction) {
		case Good:
			better++
		case Bad:
			worse++
		case Plain, Warning:
		}
		if p.a == nil || p.b == nil {
			continue
		}
		both++
		if change := p.change(); change != nil {
			changes = append(changes, *change)
		}
		was, _ := class(p.a.Result)
		if is, _ := class(p.b.Result); was != is {
			changed++
		}
	}
	d.Lead = fmt.Sprintf("Of %s in both, %d scored better in the second batch and %d worse; %d ended in another way.", text.Count(both, "evaluation"), better, worse, changed)
	var notes []string
	for _, batch := range []Batch{a, b} {
		for _, note := range batch.Notes {
			notes = append(notes, batch.Title+": "+note)
		}
	}
	if a.Direction != b.Direction {
		notes = append(notes, "The batches do not agree on which scores are better.")
	}
	if x, y := evaluate.Competitions(a.Results), evaluate.Competitions(b.Results); !slices.Equal(x, y) {
		notes = append(notes, "The batches are of different competitions, whose scores cannot be compared.")
	}
	s := evaluate.Summarize(changes)
	interval := ""
	if s.Low != nil && s.High != nil {
		interval = fmt.Sprintf("%s to %s", numberCell(s.Low).Text, numberCell(s.High).Text)
	}
	d.Sections = []Section{
		{Title: "Summary", Text: notes, Facts: facts(
			Fact{"First batch", textCell(a.Title)}, Fact{"Second batch", textCell(b.Title)}, Fact{"In both", countCell(both)},
			Fact{"In one only", countCell(len(pairs) - both)}, Fact{"Better in the second", countCell(better)}, Fact{"Worse in the second", countCell(worse)},
			Fact{"Change of the score, on average", numberCell(s.Mean)}, Fact{"Its 95 % confidence interval", textCell(interval)},
			Fact{"Time of all runs, first", secondsCell(seconds[0])}, Fact{"Time of all runs, second", secondsCell(seconds[1])},
		)},
		{Title: "Scores side by side", Tables: []Table{compared(pairs, direction)}, Plots: comparePlots(pairs)},
		transitions(pairs),
	}
	d.Data = comparedData(pairs)
	return d
}

func compared(pairs []*pair, direction evaluate.MetricDirection) Table {
	t := Table{Columns: []string{"Script", "Seed", "First score", "Second score", "Change", "First rank", "Second rank", "First result", "Second result"}}
	for _, p := range pairs {
		row := []Cell{textCell(p.either().Name), seedCell(*p.either()), scoreIn(p.a), scoreIn(p.b), changeCell(p.change(), p.mark(direction)), rankIn(p.a), rankIn(p.b)}
		t.Rows = append(t.Rows, append(row, classIn(p.a), classIn(p.b)))
	}
	return t
}

func comparedData(pairs []*pair) Table {
	t := Table{Columns: []string{"name", "seed", "repetition", "first_score", "second_score", "change", "first_rank", "second_rank", "first_class", "second_class"}}
	for _, p := range pairs {
		t.Rows = append(t.Rows, []Cell{
			textCell(p.either().Name), seedCell(*p.either()), countCell(p.either().Repetition), scoreIn(p.a), scoreIn(p.b), numberCell(p.change()), rankIn(p.a), rankIn(p.b),
			classIn(p.a), classIn(p.b),
		})
	}
	return t
}

func scoreIn(s *standing) Cell {
	if s == nil {
		return absent
	}
	return numberCell(s.score)
}

func rankIn(s *standing) Cell {
	if s == nil || s.rank == 0 {
		return absent
	}
	return countCell(s.rank)
}

func classIn(s *standing) Cell {
	if s == nil {
		return absent
	}
	name, mark := class(s.Result)
	return marked(textCell(name), mark)
}

func changeCell(change *float64, mark Mark) Cell {
	c := marked(numberCell(change), mark)
	if change != nil && *change > 0 {
		c.Text = "+" + c.Text
	}
	return c
}

func comparePlots(pairs []*pair) []template.HTML {
	var points []plot.Point
	for _, p := range pairs {
		if p.change() != nil {
			points = append(points, plot.Point{X: *p.a.score, Y: *p.b.score, Label: p.either().label()})
		}
	}
	if len(points) < 2 {
		return nil
	}
	return []template.HTML{plot.Scatter(plot.Frame{Title: "Second score against first", XLabel: "score in the first batch", YLabel: "score in the second"}, []plot.Series{{Points: points}})}
}

// transitions counts results that are not the same in both batches.
func transitions(pairs []*pair) Section {
	type change struct{ was, is string }
	counts := map[change]int{}
	examples := map[change]string{}
	var order []change
	for _, p := range pairs {
		was, is := classIn(p.a).Text, classIn(p.b).Text
		if p.a == nil || p.b == nil {
			continue // the table says which are in one only
		}
		if was == is {
			continue
		}
		c := change{was, is}
		if counts[c]++; counts[c] == 1 {
			order, examples[c] = append(order, c), p.either().label()
		}
	}
	if len(order) == 0 {
		return Section{}
	}
	slices.SortStableFunc(order, func(a, b change) int { return counts[b] - counts[a] })
	t := Table{Columns: []string{"First result", "Second result", "Evaluations", "Example"}}
	for _, c := range order {
		t.Rows = append(t.Rows, []Cell{textCell(c.was), textCell(c.is), countCell(counts[c]), textCell(examples[c])})
	}
	return Section{Title: "Results that changed", Tables: []Table{t}}
}
