package report

import (
	"cmp"
	"fmt"
	"html/template"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
)

// A Run is a run with the curves of its metrics.
type Run struct {
	record.Record
	Curves []Curve
	// LeftCurves counts metrics that are not in Curves.
	LeftCurves int
}

// A Curve is one metric over time.
type Curve struct {
	Name string
	Unit plot.Unit
	// Custom says that the program printed it. Steps says that X is the program's own step, and not
	// the number of seconds since its start.
	Custom, Steps bool
	Points        []plot.Point
}

// maxCurves bounds the metrics of a run.
const maxCurves = 24

// Curves turns the points of a record into curves, at most this number of points each; left counts
// metrics beyond the bound. The error is that of the points.
func Curves(points iter.Seq2[metrics.Point, error], most int) (curves []Curve, left int, err error) {
	c := collector{at: map[string]int{}, dropped: map[string]bool{}}
	for p, err := range points {
		if err != nil {
			return nil, 0, err
		}
		c.point(p)
	}
	for i := range c.curves {
		if c.curves[i].Points = plot.Thin(c.curves[i].Points, most); c.curves[i].Custom && c.stepless[i] == 0 {
			c.curves[i].Steps = true
		}
	}
	for i, all := range c.steps {
		if c.curves[i].Steps {
			c.curves[i].Points = plot.Thin(all, most)
		}
	}
	return c.curves, len(c.dropped), nil
}

// collector gathers curves.
type collector struct {
	curves []Curve
	at     map[string]int
	// steps are the points of a custom metric over its steps, and stepless counts those without one.
	steps    [][]plot.Point
	stepless []int
	dropped  map[string]bool
	names    []string // of a point
}

func (c *collector) add(name string, unit plot.Unit, custom bool, x, y float64, step *float64) {
	key := name
	if custom {
		key = "\x00" + name // no metric of the machine has this name
	}
	i, there := c.at[key]
	if !there {
		if len(c.curves) == maxCurves {
			if len(c.dropped) < 10*maxCurves {
				c.dropped[key] = true
			}
			return
		}
		i = len(c.curves)
		c.at[key] = i
		c.curves, c.steps, c.stepless = append(c.curves, Curve{Name: name, Unit: unit, Custom: custom}), append(c.steps, nil), append(c.stepless, 0)
	}
	c.curves[i].Points = append(c.curves[i].Points, plot.Point{X: x, Y: y})
	if step == nil {
		c.stepless[i]++
		return
	}
	c.steps[i] = append(c.steps[i], plot.Point{X: *step, Y: y})
}

func (c *collector) point(p metrics.Point) {
	if u := p.Usage; u != nil {
		if u.CPUs != nil {
			c.add("processors", plot.Number, false, p.Seconds, *u.CPUs, nil)
		}
		for _, n := range []struct {
			name  string
			unit  plot.Unit
			value *int64
		}{{"memory", plot.Bytes, u.MemoryBytes}, {"processes", plot.Number, u.Processes}, {"size of ./final", plot.Bytes, u.DiskBytes}} {
			if n.value != nil {
				c.add(n.name, n.unit, false, p.Seconds, float64(*n.value), nil)
			}
		}
		for _, g := range u.GPUs {
			c.add("GPU "+g.ID+" utilization", plot.Percent, false, p.Seconds, g.Utilization, nil)
			c.add("GPU "+g.ID+" memory", plot.Bytes, false, p.Seconds, float64(g.MemoryBytes), nil)
		}
	}
	c.names = slices.AppendSeq(c.names[:0], maps.Keys(p.Values))
	slices.Sort(c.names)
	for _, name := range c.names {
		c.add(name, plot.Number, true, p.Seconds, float64(p.Values[name]), p.Step)
	}
}

// plot draws one curve.
func (c Curve) plot() template.HTML {
	f := plot.Frame{Title: c.Name, Y: c.Unit, XLabel: "time since the start", X: plot.Seconds, Text: c.Name + " of the run over time"}
	if c.Steps {
		f.XLabel, f.X, f.Text = "step", plot.Number, c.Name+" by step"
	}
	return plot.Lines(f, []plot.Series{{Points: c.Points}})
}

// spark is the curve in a line of text, with its last value.
func (c Curve) spark() Cell {
	values := make([]float64, len(c.Points))
	for i, p := range c.Points {
		values[i] = p.Y
	}
	if len(values) == 0 {
		return absent
	}
	last := numberCell(&values[len(values)-1])
	if c.Unit == plot.Bytes {
		most := slices.Max(values)
		last = sizeCell(int64(most))
	}
	last.Spark = plot.Sparkline(c.Name+": "+last.Text, values)
	return last
}

// RunDocument is the report of one run.
func RunDocument(r Run) Document {
	job := r.Spec.Job
	d := Document{Kind: "Run", Title: cmp.Or(job.Name, r.ID), Lead: "The run has no result: it is " + string(r.State) + ".", Mark: Warning}
	identity := facts(
		Fact{"Run", codeCell(r.ID)}, Fact{"Name", textCell(job.Name)}, Fact{"Labels", textCell(labels(job.Labels))},
		Fact{"Created", textCell(r.Created.UTC().Format("2006-01-02 15:04:05 UTC"))}, Fact{"Command", codeCell(strings.Join(job.Command, " "))},
	)
	res := r.Result
	if res == nil {
		d.Sections = []Section{{Title: "Run", Facts: identity}, curvesSection(r)}
		d.Data = factTable(d.Sections)
		return d
	}
	d.Lead, d.Mark = res.Explanation, Good
	if res.Status != result.StatusExited || res.IsError {
		d.Mark = Bad
	}
	end := facts(
		Fact{"Status", marked(textCell(res.Status.String()), d.Mark)}, Fact{"Fault", textCell(res.Fault.String())}, Fact{"Exit code", countCell(res.ExitCode)},
		Fact{"Score", scoreOf(res.Score, res.ScoreUnfinished)}, Fact{"Stopped by", textCell(stoppedBy(res.StoppedBy))},
		Fact{"Duration", secondsCell(res.DurationSeconds)}, Fact{"Overhead", secondsCell(res.SetupSeconds + res.TeardownSeconds)},
		Fact{"Started", timeCell(res.StartedAt)}, Fact{"Finished", timeCell(res.FinishedAt)},
	)
	d.Sections = []Section{
		{Title: "How it ended", Facts: end, Text: warnings(res.Warnings)},
		{Title: "Run", Facts: identity},
		traceback(res),
		{Title: "Use of the machine", Facts: useFacts(res)},
		curvesSection(r),
		{Title: "Output of the program", Blocks: streams(res)},
		outputsSection([]named{{job.Name, res}}, false),
		enforcedSection([]*result.Result{res}),
	}
	d.Data = factTable(d.Sections)
	return d
}

func labels(all map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return strings.Join(parts, ", ")
}

func scoreOf(score *float64, unfinished bool) Cell {
	c := numberCell(score)
	if score != nil && unfinished {
		c.Text, c.Mark = c.Text+" (unfinished)", Warning
	}
	return c
}

func stoppedBy(by *result.StoppedBy) string {
	if by == nil {
		return ""
	}
	return by.Rule + ": " + by.Reason
}

// warnings are the first warnings, as paragraphs.
func warnings(all []string) []string {
	shown, left := head(all, 20)
	texts := make([]string, 0, len(shown)+1)
	for _, w := range shown {
		texts = append(texts, "Warning: "+w)
	}
	if left > 0 {
		texts = append(texts, leftOut(left, "warning"))
	}
	return texts
}

func traceback(res *result.Result) Section {
	switch {
	case res.ErrorTraceback != nil:
		return Section{Title: "Traceback", Blocks: []Block{{"The last traceback in stderr", *res.ErrorTraceback}}}
	case res.ErrorSummary != "":
		return Section{Title: "Error", Blocks: []Block{{"The end of stderr", res.ErrorSummary}}}
	}
	return Section{}
}

func streams(res *result.Result) (blocks []Block) {
	for _, s := range []struct {
		name, text string
		bytes      int64
	}{{"stdout", res.Stdout, res.StdoutBytes}, {"stderr", res.Stderr, res.StderrBytes}} {
		if strings.TrimSpace(s.text) != "" {
			blocks = append(blocks, Block{fmt.Sprintf("%s, %s", s.name, text.Size(s.bytes)), s.text})
		}
	}
	return blocks
}

func useFacts(res *result.Result) []Fact {
	var all []Fact
	if u := res.Resources; u.Source != "" {
		all = facts(Fact{"Processor time", secondsCell(u.CPUSeconds)}, Fact{"Peak memory", sizeCell(u.PeakMemoryBytes)}, Fact{"Measured by", textCell(u.Source)})
		if u.OOMKills > 0 {
			all = append(all, Fact{"Processes killed for memory", marked(countCell(u.OOMKills), Bad)})
		}
		if c := u.Contention; c != nil && c.Verdict != result.Quiet {
			all = append(all, Fact{"Waited for a processor", secondsCell(c.WaitedSeconds)}, Fact{"Share of the processors", textCell(string(c.Verdict))})
		}
	}
	if m := res.Metrics; m != nil {
		all = append(all, Fact{"Processors in use, on average", numberCell(&m.MeanCPUs)}, Fact{"Processors in use, at most", numberCell(&m.PeakCPUs)})
		if m.PeakProcesses > 0 {
			all = append(all, Fact{"Processes and threads, at most", countCell(m.PeakProcesses)})
		}
		if m.PeakDiskBytes > 0 {
			all = append(all, Fact{"Size of ./final, at most", sizeCell(m.PeakDiskBytes)})
		}
		for _, g := range m.GPUs {
			value := fmt.Sprintf("%.0f %% on average, %.0f %% at most, %s", 100*g.MeanUtilization, 100*g.PeakUtilization, text.Size(g.PeakMemoryBytes))
			all = append(all, Fact{"GPU " + g.ID, textCell(value)})
		}
		if m.Rejected > 0 {
			all = append(all, Fact{"Lines of metrics that were refused", marked(countCell(m.Rejected), Warning)})
		}
	}
	if n := res.Network; n != nil {
		all = append(all, Fact{"Network", textCell(fmt.Sprintf("level %s, %s, %d refused, %s up, %s down", n.Level, text.Count(n.Requests, "request"), n.Refused,
			text.Size(n.BytesUp), text.Size(n.BytesDown)))})
	}
	return all
}

// curvesSection has the metrics that the program printed first, and their summary.
func curvesSection(r Run) Section {
	s := Section{Title: "Metrics"}
	for _, custom := range []bool{true, false} {
		for _, c := range r.Curves {
			if c.Custom == custom && len(c.Points) > 1 {
				s.Plots = append(s.Plots, c.plot())
			}
		}
	}
	if r.LeftCurves > 0 {
		s.Text = append(s.Text, leftOut(r.LeftCurves, "metric"))
	}
	if r.Result == nil || r.Result.Metrics == nil || len(r.Result.Metrics.Custom) == 0 {
		return s
	}
	t := Table{Title: "Metrics that the program printed", Columns: []string{"Metric", "Last", "At step", "Lowest", "Highest", "Values", "Not finite"}}
	for _, m := range r.Result.Metrics.Custom {
		bad := countCell(m.NotFinite)
		if m.NotFinite > 0 {
			bad.Mark = Warning
		}
		t.Rows = append(t.Rows, []Cell{codeCell(m.Name), numberCell(m.Last), numberCell(m.LastStep), numberCell(m.Min), numberCell(m.Max), countCell(m.Count), bad})
	}
	s.Tables = []Table{t}
	return s
}

// named is a result with the name of its run.
type named struct {
	name string
	*result.Result
}

// outputsSection lists the files in ./final.
func outputsSection(runs []named, names bool) Section {
	t := Table{Columns: []string{"File", "Size", "SHA-256"}}
	skipped := Table{Title: "Not collected", Columns: []string{"Entry", "Kind", "Reason"}}
	if names {
		t.Columns, skipped.Columns = append([]string{"Script"}, t.Columns...), append([]string{"Script"}, skipped.Columns...)
	}
	for _, r := range runs {
		var first []Cell
		if names {
			first = []Cell{textCell(r.name)}
		}
		for _, o := range r.Outputs {
			t.Rows = append(t.Rows, append(slices.Clone(first), codeCell(o.Path), sizeCell(o.SizeBytes), codeCell(o.SHA256)))
		}
		for _, o := range r.OutputsSkipped {
			skipped.Rows = append(skipped.Rows, append(slices.Clone(first), codeCell(o.Path), textCell(o.Kind), textCell(o.Reason)))
		}
	}
	s := Section{Title: "Outputs"}
	for _, each := range []Table{t, skipped} {
		if len(each.Rows) > 0 {
			s.Tables = append(s.Tables, each)
		}
	}
	return s
}

// enforcedSection says what was enforced. A value that differs between runs is given as often as it
// occurs.
func enforcedSection(runs []*result.Result) Section {
	s := Section{Title: "What was enforced"}
	if len(runs) == 0 {
		return s
	}
	values := map[string]map[string]int{}
	var names []string
	for _, r := range runs {
		for _, f := range enforcedFacts(r) {
			if values[f.Name] == nil {
				values[f.Name] = map[string]int{}
				names = append(names, f.Name)
			}
			values[f.Name][f.Value.Text]++
		}
	}
	for _, name := range names {
		all := slices.SortedFunc(maps.Keys(values[name]), func(a, b string) int {
			return cmp.Or(values[name][b]-values[name][a], cmp.Compare(a, b))
		})
		if len(all) == 1 {
			s.Facts = append(s.Facts, Fact{name, textCell(all[0])})
			continue
		}
		shown, left := head(all, 3)
		parts := make([]string, 0, len(shown)+1)
		for _, v := range shown {
			parts = append(parts, fmt.Sprintf("%s (%s)", v, text.Count(values[name][v], "run")))
		}
		if left > 0 {
			parts = append(parts, fmt.Sprintf("%d more", left))
		}
		s.Facts = append(s.Facts, Fact{name, textCell(strings.Join(parts, ", "))})
	}
	return s
}

func enforcedFacts(r *result.Result) []Fact {
	e := r.Enforced
	size := func(bytes int64) string {
		if bytes <= 0 {
			return ""
		}
		return text.Size(bytes)
	}
	limit := ""
	if e.TimeoutSeconds > 0 {
		limit = text.Seconds(e.TimeoutSeconds)
	}
	return facts(
		Fact{"Time limit", textCell(limit)}, Fact{"Memory", textCell(size(e.MemoryBytes))}, Fact{"Processors", numberCell(positive(e.CPUs))},
		Fact{"Processes and threads", numberCell(positive(float64(e.PIDs)))}, Fact{"Disk", textCell(strings.TrimSpace(size(e.DiskBytes) + " " + bound(e.Disk)))},
		Fact{"Output", textCell(size(e.OutputLimitBytes))}, Fact{"Network", textCell(e.Network)}, Fact{"User", textCell(e.User)},
		Fact{"Isolation", textCell(e.Isolation.Grade)}, Fact{"Root file system", textCell(readOnly(e.ReadOnlyRoot))}, Fact{"New privileges", textCell(never(e.NoNewPrivileges))},
		Fact{"Capabilities dropped", textCell(strings.Join(e.CapDrop, ", "))}, Fact{"System calls", textCell(e.Seccomp)}, Fact{"GPUs", textCell(strings.Join(e.GPUs, ", "))},
		Fact{"Not enforced", marked(textCell(strings.Join(e.Unenforced, ", ")), Warning)}, Fact{"Engine", textCell(strings.TrimSpace(e.Engine + " " + e.Runtime))},
		Fact{"Image", textCell(r.Image.Name)}, Fact{"Image ID", textCell(r.Image.ID)}, Fact{"Image locked", textCell(yes(r.Image.Locked))},
	)
}

func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

func bound(d result.DiskBound) string {
	if d == "" {
		return ""
	}
	return "(" + string(d) + ")"
}

func readOnly(is bool) string {
	if is {
		return "read-only"
	}
	return "writable"
}

func never(is bool) string {
	if is {
		return "impossible"
	}
	return "possible"
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// factTable has the facts of all sections as rows.
func factTable(sections []Section) Table {
	t := Table{Columns: []string{"section", "name", "value"}}
	for _, s := range sections {
		for _, f := range s.Facts {
			t.Rows = append(t.Rows, []Cell{textCell(s.Title), textCell(f.Name), f.Value})
		}
	}
	return t
}

// timeCell is a time of a result for people.
func timeCell(s string) Cell {
	t, ok := instant(s)
	if !ok {
		return textCell(s)
	}
	return textCell(t.UTC().Format("2006-01-02 15:04:05.000 UTC"))
}

// instant reads a time of a result.
func instant(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil
}
