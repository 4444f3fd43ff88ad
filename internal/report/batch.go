package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// A Batch is the content of a results file.
type Batch struct {
	Title string
	// Results are those that count, and Direction says which scores are better; empty if the results
	// do not say it, and then nothing is ranked.
	Results   []evaluate.Result
	Direction evaluate.MetricDirection
	// Notes are sentences on what is left out of the file.
	Notes []string
	// Runs are the runs of the results whose records are there, by their IDs.
	Runs map[string]Run
}

// standing is a result with its rank; 0 is that of one without a score that counts.
type standing struct {
	evaluate.Result

	rank  int
	score *float64 // that counts; nil for none
	run   *Run
}

func (s standing) key() string {
	seed := ""
	if s.Seed != nil {
		seed = strconv.FormatUint(uint64(*s.Seed), 10)
	}
	return s.Name + "\x00" + seed + "\x00" + strconv.Itoa(s.Repetition)
}

// standings are the results, best first.
func (b Batch) standings() []standing {
	ordered := slices.Clone(b.Results)
	slices.SortStableFunc(ordered, func(x, y evaluate.Result) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), compareSeeds(x.Seed, y.Seed), x.Repetition-y.Repetition)
	})
	ranked, err := evaluate.RankResults(ordered, b.Direction)
	ranks := make([]int, len(b.Results))
	if err != nil {
		ranked = ordered
	} else {
		ranks = evaluate.Ranks(ranked)
	}
	all, scores := make([]standing, len(ranked)), evaluate.Counting(ranked)
	for i, r := range ranked {
		all[i] = standing{Result: r, rank: ranks[i], score: scores[i]}
		if r.Run != nil {
			if run, there := b.Runs[r.Run.ID]; there && run.Result != nil {
				all[i].run = &run
			}
		}
	}
	return all
}

// compareSeeds orders seeds; none comes first.
func compareSeeds(x, y *uint32) int {
	number := func(seed *uint32) int64 {
		if seed == nil {
			return -1
		}
		return int64(*seed)
	}
	return cmp.Compare(number(x), number(y))
}

// class is what became of a result, in a few words, and whether that is good.
func class(r evaluate.Result) (string, Mark) {
	switch {
	case r.Failure != "":
		return "not evaluated", Warning
	case r.ErrorReason == evaluate.ErrorReasonRejected:
		return "refused", Bad
	case r.Run != nil && r.Run.Status == result.StatusCanceled:
		return "canceled", Warning
	case r.Run != nil && r.Run.Status != result.StatusExited:
		return strings.ReplaceAll(r.Run.Status.String(), "_", " "), Bad
	case r.IsError && r.ErrorTraceback != nil:
		return exception(*r.ErrorTraceback), Bad
	case r.IsError:
		return cmp.Or(strings.ReplaceAll(string(r.ErrorReason), "_", " "), "error"), Bad
	case r.Submission != nil && len(r.Submission.Problems) > 0:
		return "wrong submission", Bad
	case r.Grading != nil && r.GradedScore == nil:
		return "not graded", Warning
	case r.BestScore() == nil:
		return "no score", Warning
	}
	return "ended well", Good
}

// exception is the type of the exception of a traceback.
func exception(traceback string) string {
	const most = 60 // characters of a type
	traceback = strings.TrimRight(traceback, " \t\r\n")
	last := traceback[strings.LastIndexByte(traceback, '\n')+1:]
	name, _, _ := strings.Cut(last, ":")
	return lineOf(name, most)
}

// BatchDocument is the report of a batch.
func BatchDocument(b Batch) Document {
	all := b.standings()
	d := Document{Kind: "Batch", Title: b.Title}
	if ids := evaluate.Competitions(b.Results); len(ids) == 1 && ids[0] != "" {
		d.Title = ids[0]
	}
	d.Lead, d.Mark = lead(all)
	d.Data = scores(all)
	d.Sections = []Section{
		{Title: "Summary", Facts: b.summary(all), Text: b.Notes},
		{Title: "Leaderboard", Tables: []Table{leaderboard(all)}, Text: overstated(all)},
		{Title: "Scores", Plots: scorePlots(all)},
		classes(all),
		timeline(all),
		batchMetrics(all),
		tracebacks(all),
		outputsSection(outputs(all), true),
		enforcedSection(results(all)),
	}
	return d
}

func lead(all []standing) (string, Mark) {
	well := 0
	for _, s := range all {
		if s.EndedWell() {
			well++
		}
	}
	mark := Good
	switch {
	case well == 0:
		mark = Bad
	case well < len(all):
		mark = Warning
	}
	sentence := fmt.Sprintf("%d of %s ended well.", well, text.Count(len(all), "evaluation"))
	if len(all) > 0 && all[0].rank == 1 && all[0].score != nil {
		sentence += fmt.Sprintf(" The best score is %s, of %s.", numberCell(all[0].score).Text, cmp.Or(all[0].Name, "a script without a name"))
	}
	return sentence, mark
}

func (b Batch) summary(all []standing) []Fact {
	var scripts []string
	var seconds, cpu float64
	graded := 0
	for _, s := range all {
		if !slices.Contains(scripts, s.Name) {
			scripts = append(scripts, s.Name)
		}
		seconds += s.DurationSeconds
		if s.Grading != nil {
			graded++
		}
		if s.run != nil {
			cpu += s.run.Result.Resources.CPUSeconds
		}
	}
	kind := "printed by the scripts themselves"
	if graded > 0 {
		kind = "graded"
	}
	span := ""
	if first, last, ok := extent(all); ok {
		span = fmt.Sprintf("%s to %s UTC", first.UTC().Format("2006-01-02 15:04:05"), last.UTC().Format("15:04:05"))
		if last.Sub(first) > 12*time.Hour {
			span = fmt.Sprintf("%s to %s UTC", first.UTC().Format("2006-01-02 15:04"), last.UTC().Format("2006-01-02 15:04"))
		}
	}
	summary := []Fact{
		{"Evaluations", countCell(len(all))}, {"Scripts", countCell(len(scripts))}, {"Better scores are", textCell(map[evaluate.MetricDirection]string{
			evaluate.Maximize: "higher", evaluate.Minimize: "lower",
		}[b.Direction])}, {"Scores are", textCell(kind)}, {"Baseline", numberCell(baseline(b.Results))},
		{"Ran", textCell(span)}, {"Time of all runs", secondsCell(seconds)},
	}
	if cpu > 0 {
		summary = append(summary, Fact{"Processor time", secondsCell(cpu)})
	}
	if n := len(b.Runs); n > 0 && n < len(all) {
		summary = append(summary, Fact{"Records of runs that are there", countCell(n)})
	}
	return facts(summary...)
}

func baseline(results []evaluate.Result) *float64 {
	for _, r := range results {
		if r.BaselineValue != nil {
			return r.BaselineValue
		}
	}
	return nil
}

func overstated(all []standing) []string {
	n := 0
	for _, s := range all {
		if s.Overstated(s.MetricDirection) {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return []string{"⚠ marks a score that the script gave itself and that is far better than the graded one. There is 1."}
	}
	return []string{fmt.Sprintf("⚠ marks a score that the script gave itself and that is far better than the graded one. There are %d.", n)}
}

// column is one of the leaderboard. A column without a value is left out.
type column struct {
	name string
	cell func(s standing) Cell
}

var boardColumns = []column{
	{"Rank", func(s standing) Cell {
		if s.rank == 0 {
			return absent
		}
		return countCell(s.rank)
	}},
	{"Script", func(s standing) Cell { return textCell(s.Name) }},
	{"Seed", seedCell},
	{"Resource", func(s standing) Cell {
		if s.Resource == 0 {
			return absent
		}
		return countCell(s.Resource)
	}},
	{"Graded score", func(s standing) Cell { return numberCell(s.GradedScore) }},
	{"Own score", func(s standing) Cell {
		c := scoreOf(s.Score, s.ScoreUnfinished)
		if s.Overstated(s.MetricDirection) {
			c.Text, c.Mark = c.Text+" ⚠", Warning
		}
		return c
	}},
	{"Result", func(s standing) Cell {
		name, mark := class(s.Result)
		return marked(textCell(name), mark)
	}},
	{"Why", func(s standing) Cell { return textCell(s.Explain()) }},
	{"Time", func(s standing) Cell {
		if s.Result.Run == nil {
			return absent
		}
		return secondsCell(s.DurationSeconds)
	}},
	{"Peak memory", func(s standing) Cell {
		if s.run == nil || s.run.Result.Resources.Source == "" {
			return absent
		}
		return sizeCell(s.run.Result.Resources.PeakMemoryBytes)
	}},
	{"Repairs", func(s standing) Cell {
		if s.Repairs == 0 {
			return absent
		}
		return countCell(s.Repairs)
	}},
	{"Cached", func(s standing) Cell {
		if !s.Cached {
			return absent
		}
		return textCell("yes")
	}},
	{"Run", func(s standing) Cell {
		if s.Result.Run == nil {
			return absent
		}
		return codeCell(record.ShortID(s.Result.Run.ID))
	}},
}

func seedCell(s standing) Cell {
	if s.Seed == nil {
		return absent
	}
	return countCell(int64(*s.Seed))
}

// leaderboard has the columns that have a value in any row.
func leaderboard(all []standing) Table { return table(boardColumns, all) }

func table(columns []column, all []standing) Table {
	var t Table
	t.Rows = make([][]Cell, len(all))
	for _, c := range columns {
		cells := make([]Cell, len(all))
		used := false
		for i, s := range all {
			cells[i] = c.cell(s)
			used = used || cells[i].Text != absent.Text
		}
		if !used {
			continue
		}
		t.Columns = append(t.Columns, c.name)
		for i := range cells {
			t.Rows[i] = append(t.Rows[i], cells[i])
		}
	}
	return t
}

// scores is the table of the CSV. Its columns are always the same.
func scores(all []standing) Table {
	t := Table{Columns: []string{
		"rank", "name", "seed", "repetition", "resource", "graded_score", "score", "overstated", "class", "why", "duration_seconds", "cpu_seconds", "peak_memory_bytes",
		"repairs", "cached", "run", "script_sha256",
	}}
	for _, s := range all {
		row := []Cell{absent, textCell(s.Name), seedCell(s), countCell(s.Repetition), countCell(s.Resource), numberCell(s.GradedScore), numberCell(s.Score), textCell(yes(s.Overstated(s.MetricDirection)))}
		if s.rank > 0 {
			row[0] = countCell(s.rank)
		}
		name, _ := class(s.Result)
		cpu, memory, id := absent, absent, absent
		if s.run != nil && s.run.Result.Resources.Source != "" {
			cpu, memory = numberCell(&s.run.Result.Resources.CPUSeconds), sizeCell(s.run.Result.Resources.PeakMemoryBytes)
		}
		if s.Result.Run != nil {
			id = textCell(s.Result.Run.ID)
		}
		t.Rows = append(t.Rows, append(row, textCell(name), textCell(s.Explain()), numberCell(&s.DurationSeconds), cpu, memory, countCell(s.Repairs),
			textCell(yes(s.Cached)), id, textCell(s.ScriptSHA256)))
	}
	return t
}

// scorePlots are the distribution of the scores, and scores against what they cost.
func scorePlots(all []standing) (plots []template.HTML) {
	byScript := map[string][]float64{}
	var order []string
	var everything []float64
	var byTime, byMemory []plot.Point
	for _, s := range all {
		score := s.score
		if score == nil {
			continue
		}
		if byScript[s.Name] == nil {
			order = append(order, s.Name)
		}
		byScript[s.Name] = append(byScript[s.Name], *score)
		everything = append(everything, *score)
		if s.Result.Run != nil {
			byTime = append(byTime, plot.Point{X: s.DurationSeconds, Y: *score, Label: s.Name})
		}
		if s.run != nil && s.run.Result.Resources.Source != "" {
			byMemory = append(byMemory, plot.Point{X: float64(s.run.Result.Resources.PeakMemoryBytes), Y: *score, Label: s.Name})
		}
	}
	if len(everything) == 0 {
		return nil
	}
	var groups []plot.Group
	for _, name := range order {
		if values := byScript[name]; len(values) > 1 {
			groups = append(groups, group(cmp.Or(name, "without a name"), values))
		}
	}
	if len(groups) > 0 {
		plots = append(plots, plot.Intervals(plot.Frame{Title: "Scores over the seeds of each script", XLabel: "score", Text: "A dot is a score, a diamond the mean, a line its 95 % confidence interval after Student's t distribution."}, groups))
	} else {
		plots = append(plots, plot.Intervals(plot.Frame{Title: "Distribution of the scores", XLabel: "score", Text: "A dot is the score of one script."}, []plot.Group{{Name: "all scripts", Values: everything}}))
	}
	if len(byTime) > 1 {
		plots = append(plots, plot.Scatter(plot.Frame{Title: "Score against time", XLabel: "time of the run", X: plot.Seconds, YLabel: "score"}, []plot.Series{{Points: byTime}}))
	}
	if len(byMemory) > 1 {
		plots = append(plots, plot.Scatter(plot.Frame{Title: "Score against memory", XLabel: "peak memory", X: plot.Bytes, YLabel: "score"}, []plot.Series{{Points: byMemory}}))
	}
	return plots
}

// group has the mean of values and its interval.
func group(name string, values []float64) plot.Group {
	s := evaluate.Summarize(values)
	return plot.Group{Name: name, Values: values, Mean: s.Mean, Low: s.Low, High: s.High}
}

// classes counts what became of the results.
func classes(all []standing) Section {
	type count struct {
		name    string
		mark    Mark
		n       int
		example standing
	}
	var counts []*count
	at := map[string]*count{}
	for _, s := range all {
		name, mark := class(s.Result)
		if at[name] == nil {
			at[name] = &count{name: name, mark: mark, example: s}
			counts = append(counts, at[name])
		}
		at[name].n++
	}
	slices.SortStableFunc(counts, func(a, b *count) int { return b.n - a.n })
	t := Table{Columns: []string{"Result", "Evaluations", "Share", "Example", "Why"}}
	for _, c := range counts {
		share := float64(c.n) / float64(len(all))
		t.Rows = append(t.Rows, []Cell{
			marked(textCell(c.name), c.mark), countCell(c.n), {Text: fmt.Sprintf("%.0f %%", 100*share), Number: &share}, textCell(c.example.Name), textCell(c.example.Explain()),
		})
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{Title: "Results and failures", Tables: []Table{t}}
}

// times are the start and the end of a run.
func (s standing) times() (start, end time.Time, ok bool) {
	if s.run == nil || s.Cached {
		return start, end, false
	}
	start, started := instant(s.run.Result.StartedAt)
	end, ended := instant(s.run.Result.FinishedAt)
	return start, end, started && ended && !end.Before(start)
}

func extent(all []standing) (first, last time.Time, ok bool) {
	for _, s := range all {
		if start, end, known := s.times(); known {
			if !ok || start.Before(first) {
				first = start
			}
			if !ok || end.After(last) {
				last = end
			}
			ok = true
		}
	}
	return first, last, ok
}

// timeline shows who ran when: on which GPU, or at which of the places for programs at the same time.
func timeline(all []standing) Section {
	first, last, ok := extent(all)
	if !ok {
		return Section{}
	}
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b standing) int {
		x, _, _ := a.times()
		y, _, _ := b.times()
		return x.Compare(y)
	})
	colors := []string{"ended well", "ended otherwise"}
	var bars []plot.Bar
	var places []time.Time // when each becomes free
	var busy time.Duration
	for _, s := range ordered {
		start, end, known := s.times()
		if !known {
			continue
		}
		busy += end.Sub(start)
		color := 0
		if !s.EndedWell() {
			color = 1
		}
		bar := plot.Bar{Label: s.Name, Start: start.Sub(first).Seconds(), End: end.Sub(first).Seconds(), Color: color}
		for _, id := range s.run.Result.Enforced.GPUs {
			bar.Lane = "GPU " + id
			bars = append(bars, bar)
		}
		if bar.Lane == "" {
			at := slices.IndexFunc(places, func(free time.Time) bool { return !free.After(start) })
			if at < 0 {
				at, places = len(places), append(places, end)
			}
			places[at] = end
			bar.Lane = fmt.Sprintf("place %d", at+1)
			bars = append(bars, bar)
		}
	}
	slices.SortStableFunc(bars, func(a, b plot.Bar) int { return strings.Compare(natural(a.Lane), natural(b.Lane)) })
	s := Section{Title: "Timeline", Plots: []template.HTML{plot.Timeline(plot.Frame{
		Title: "Who ran when", XLabel: "time since the first start, " + first.UTC().Format("2006-01-02 15:04:05 UTC"), X: plot.Seconds,
		Text: "A bar is a run. Its row is the GPU that it had, or a place for one program.",
	}, bars, colors)}}
	if span := last.Sub(first); span > 0 {
		s.Facts = []Fact{{"From the first start to the last end", secondsCell(span.Seconds())}, {"Programs at the same time, on average", textCell(fmt.Sprintf("%.2f", busy.Seconds()/span.Seconds()))}}
	}
	return s
}

// natural sorts "place 10" after "place 9".
func natural(lane string) string {
	name, number, _ := strings.Cut(lane, " ")
	return fmt.Sprintf("%s %40s", name, number)
}

// Bounds of the metrics of a batch.
const (
	maxShownMetrics = 4
	maxShownRuns    = plot.MaxSeries
)

// A metric is one of a batch. One that the programs printed can have the name of one of the machine.
type metric struct {
	name   string
	custom bool
}

// metricsOf are the metrics of all runs, those that programs printed first.
func metricsOf(all []standing) (found []metric) {
	for _, s := range all {
		if s.run == nil {
			continue
		}
		for _, c := range s.run.Curves {
			if m := (metric{c.Name, c.Custom}); len(found) < maxCurves && !slices.Contains(found, m) {
				found = append(found, m)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b metric) int {
		switch {
		case a.custom == b.custom:
			return 0
		case a.custom:
			return -1
		}
		return 1
	})
	return found
}

// batchMetrics has the curves of the best runs together, and a small curve of each metric of each run.
func batchMetrics(all []standing) Section {
	found := metricsOf(all)
	if len(found) == 0 {
		return Section{}
	}
	s := Section{Title: "Metrics"}
	for _, m := range found {
		if m.custom && len(s.Plots) < maxShownMetrics {
			s.Plots = append(s.Plots, together(all, m))
		}
	}
	columns := []column{{"Script", func(s standing) Cell { return textCell(s.label()) }}}
	shown, left := head(found, maxShownMetrics+1)
	for _, m := range shown {
		columns = append(columns, column{m.name, func(s standing) Cell {
			if c := s.curve(m); c != nil {
				return c.spark()
			}
			return absent
		}})
	}
	measured := slices.DeleteFunc(slices.Clone(all), func(s standing) bool { return s.run == nil || len(s.run.Curves) == 0 })
	t := table(columns, measured)
	t.Title = "Metrics of each run: the last value, and the highest number of bytes"
	s.Tables = []Table{t}
	if left > 0 {
		s.Text = []string{leftOut(left, "metric")}
	}
	return s
}

// together draws a metric of the first runs.
func together(all []standing, m metric) template.HTML {
	f := plot.Frame{Title: m.name + " of the first runs of the leaderboard", YLabel: m.name, XLabel: "step"}
	var series []plot.Series
	for _, each := range all {
		if c := each.curve(m); c != nil && len(series) < maxShownRuns {
			if !c.Steps {
				f.XLabel, f.X = "time since the start", plot.Seconds
			}
			series = append(series, plot.Series{Name: each.label(), Points: c.Points})
		}
	}
	return plot.Lines(f, series)
}

func (s standing) curve(m metric) *Curve {
	if s.run == nil {
		return nil
	}
	for i, c := range s.run.Curves {
		if c.Name == m.name && c.Custom == m.custom {
			return &s.run.Curves[i]
		}
	}
	return nil
}

// label is the name of a result, with its seed.
func (s standing) label() string {
	name := cmp.Or(s.Name, "without a name")
	if s.Seed != nil {
		name += fmt.Sprintf(", seed %d", *s.Seed)
	}
	return name
}

// tracebacks has one traceback for all that end with the same line.
func tracebacks(all []standing) Section {
	s := Section{Title: "Tracebacks", Folded: true}
	at := map[string]int{}
	count := map[int]int{}
	for _, each := range all {
		text := each.ErrorSummary
		if each.ErrorTraceback != nil {
			text = *each.ErrorTraceback
		}
		if text == "" || !each.IsError {
			continue
		}
		why := each.Explain()
		i, there := at[why]
		if !there {
			i = len(s.Blocks)
			at[why] = i
			s.Blocks = append(s.Blocks, Block{each.label() + ": " + why, text})
		}
		count[i]++
	}
	for i := range s.Blocks {
		if more := count[i] - 1; more > 0 {
			s.Blocks[i].Title = fmt.Sprintf("%s, and %s with the same last line", s.Blocks[i].Title, text.Count(more, "other"))
		}
	}
	return s
}

func outputs(all []standing) (runs []named) {
	for _, s := range all {
		if s.run != nil {
			runs = append(runs, named{s.label(), s.run.Result})
		}
	}
	return runs
}

func results(all []standing) (runs []*result.Result) {
	for _, s := range all {
		if s.run != nil {
			runs = append(runs, s.run.Result)
		}
	}
	return runs
}
