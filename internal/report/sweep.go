package report

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/text"
)

// A Sweep is the content of the directory of a sweep.
type Sweep struct {
	Title string
	sweep.Results
}

// Bounds of the plots and of the columns of a sweep.
const (
	maxSweepPlots   = 6
	maxSweepNumbers = 12
)

// SweepDocument is the report of a sweep.
func SweepDocument(s Sweep) Document {
	d := Document{Kind: "Sweep", Title: s.Title, Mark: Good}
	ended, failed := s.Count(sweep.StatusSucceeded), s.Count(sweep.StatusFailed)
	missing := len(s.Runs) - ended - failed
	d.Lead = fmt.Sprintf("%d of %s succeeded.", ended, text.Count(len(s.Runs), "run"))
	switch {
	case failed > 0:
		d.Lead, d.Mark = d.Lead+fmt.Sprintf(" %d failed.", failed), Bad
	case missing > 0:
		d.Mark = Warning
	}
	if missing > 0 {
		d.Lead += fmt.Sprintf(" %d did not end.", missing)
	}
	axes := axisNames(s.Config)
	numbers := s.names()
	summary := []Fact{{"Runs", countCell(len(s.Runs))}, {"Seeds", countCell(len(s.Config.Seeds))}, {"Manifest of the sweep", textCell(map[bool]string{true: "written", false: "not written"}[s.Complete])}}
	for _, axis := range s.Config.Axes {
		var values []string
		for _, v := range axis.Values {
			values = append(values, axisValue(v))
		}
		summary = append(summary, Fact{"Axis " + axis.Name, textCell(strings.Join(values, ", "))})
	}
	if a := s.Config.Adapter; a != nil {
		summary = append(summary, Fact{"Adapter", textCell(*a)})
	}
	shown, left := head(numbers, maxSweepNumbers)
	d.Sections = []Section{
		{Title: "Summary", Facts: facts(summary...)},
		{Title: "Axes and metrics", Plots: s.heat(axes, numbers)},
		{Title: "Means over the seeds", Tables: s.means(axes, shown), Text: someText(leftOut(left, "number"))},
		{Title: "Distribution over the seeds", Plots: s.distributions(axes, numbers)},
		s.failures(axes),
		s.outputs(axes),
		{Title: "What the runs depend on", Facts: s.setup()},
	}
	d.Data = s.data(axes, numbers)
	return d
}

func someText(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func axisNames(c sweep.Config) (names []string) {
	for _, axis := range c.Axes {
		names = append(names, axis.Name)
	}
	return names
}

// axisValue is a value of an axis for people.
func axisValue(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// names are those of all numbers, sorted; those of objects such as metrics come first.
func (s Sweep) names() []string {
	all := map[string]bool{}
	for _, numbers := range s.Numbers {
		for name := range numbers {
			all[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(names, func(a, b string) int { return strings.Count(b, ".") - strings.Count(a, ".") })
	return names
}

// axisCells are the values of the axes of a row.
func axisCells(axes []string, values map[string]any) []Cell {
	cells := make([]Cell, len(axes))
	for i, axis := range axes {
		cells[i] = textCell(axisValue(values[axis]))
		if n, ok := values[axis].(json.Number); ok {
			if v, err := n.Float64(); err == nil {
				cells[i].Number = &v
			}
		}
	}
	return cells
}

func (s Sweep) means(axes, numbers []string) []Table {
	t := Table{Columns: slices.Concat(axes, []string{"Runs"}, numbers)}
	for _, row := range s.Table {
		cells := append(axisCells(axes, row.Values), countCell(row.Runs))
		for _, name := range numbers {
			cells = append(cells, meanCell(row, name))
		}
		t.Rows = append(t.Rows, cells)
	}
	return []Table{t}
}

func meanCell(row sweep.Row, name string) Cell {
	if v, there := row.Means[name]; there {
		return numberCell(&v)
	}
	return absent
}

// heat draws the metrics over the axes: for two axes a plane for each metric, and otherwise the
// combinations against the metrics, each with a scale of its own.
func (s Sweep) heat(axes, numbers []string) (plots []template.HTML) {
	if len(numbers) == 0 {
		return nil
	}
	if len(axes) == 2 {
		rows, columns := s.Config.Axes[0], s.Config.Axes[1]
		if len(columns.Values) > len(rows.Values) {
			rows, columns = columns, rows
		}
		shown, _ := head(numbers, maxSweepPlots)
		for _, name := range shown {
			m := plot.Matrix{Rows: prefixed(rows), Columns: prefixed(columns), Values: make([][]float64, len(rows.Values))}
			for i := range m.Values {
				m.Values[i] = slices.Repeat([]float64{math.NaN()}, len(columns.Values))
			}
			for _, row := range s.Table {
				i, j := place(rows, row.Values), place(columns, row.Values)
				if v, there := row.Means[name]; there && i >= 0 && j >= 0 {
					m.Values[i][j] = v
				}
			}
			plots = append(plots, plot.Heat(plot.Frame{Title: name, Text: "The mean over the seeds for each combination of values."}, m))
		}
		return plots
	}
	m := plot.Matrix{Columns: numbers, PerColumn: true}
	for _, row := range s.Table {
		m.Rows = append(m.Rows, combination(axes, row.Values))
		values := make([]float64, len(numbers))
		for j, name := range numbers {
			values[j] = math.NaN()
			if v, there := row.Means[name]; there {
				values[j] = v
			}
		}
		m.Values = append(m.Values, values)
	}
	return []template.HTML{plot.Heat(plot.Frame{Title: "Combinations of values and metrics", Text: "The means over the seeds. Each column has a scale of its own."}, m)}
}

func prefixed(axis sweep.Axis) (names []string) {
	for _, v := range axis.Values {
		names = append(names, axis.Name+"="+axisValue(v))
	}
	return names
}

// place is the index of the value of an axis; -1 if the axis does not have it.
func place(axis sweep.Axis, values map[string]any) int {
	return slices.IndexFunc(axis.Values, func(v any) bool { return axisValue(v) == axisValue(values[axis.Name]) })
}

func combination(axes []string, values map[string]any) string {
	parts := make([]string, len(axes))
	for i, axis := range axes {
		parts[i] = axis + "=" + axisValue(values[axis])
	}
	return strings.Join(parts, " ")
}

// distributions draws the values of the first metrics over the seeds of each combination.
func (s Sweep) distributions(axes, numbers []string) (plots []template.HTML) {
	if len(s.Config.Seeds) < 2 {
		return nil
	}
	shown, _ := head(numbers, maxSweepPlots)
	for _, name := range shown {
		var groups []plot.Group
		at := map[string]int{}
		values := [][]float64{}
		var names []string
		for i, run := range s.Runs {
			v, there := s.Numbers[i][name]
			if !there {
				continue
			}
			key := combination(axes, run.Values)
			if _, known := at[key]; !known {
				at[key] = len(values)
				values, names = append(values, nil), append(names, key)
			}
			values[at[key]] = append(values[at[key]], v)
		}
		for i, all := range values {
			groups = append(groups, group(names[i], all))
		}
		plots = append(plots, plot.Intervals(plot.Frame{Title: name, XLabel: name, Text: "A dot is one seed, a diamond the mean, a line its 95 % confidence interval after Student's t distribution."}, groups))
	}
	return plots
}

func (s Sweep) failures(axes []string) Section {
	t := Table{Columns: slices.Concat(axes, []string{"Seed", "Status", "Exit code", "Why"})}
	for _, run := range s.Runs {
		if run.Status == sweep.StatusSucceeded {
			continue
		}
		mark, code := Bad, absent
		if run.Status != sweep.StatusFailed {
			mark = Warning
		}
		if run.ExitCode != nil {
			code = countCell(*run.ExitCode)
		}
		t.Rows = append(t.Rows, append(axisCells(axes, run.Values), textCell(run.Seed.String()), marked(textCell(string(run.Status)), mark), code, textCell(string(run.Failure))))
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{Title: "Runs that did not succeed", Tables: []Table{t}}
}

func (s Sweep) outputs(axes []string) Section {
	t := Table{Columns: slices.Concat(axes, []string{"Seed", "SHA-256 of manifest.json"})}
	for _, run := range s.Runs {
		if run.ManifestHash != "" {
			t.Rows = append(t.Rows, append(axisCells(axes, run.Values), textCell(run.Seed.String()), codeCell(string(run.ManifestHash))))
		}
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{Title: "Outputs", Tables: []Table{t}}
}

// setup leaves out the hashes of environment variables, which say nothing to a reader, and the path of
// a directory of this machine.
func (s Sweep) setup() (all []Fact) {
	for _, name := range slices.Sorted(maps.Keys(s.Setup)) {
		if !strings.HasPrefix(name, sweep.SetupHashed) && name != "root" {
			all = append(all, Fact{name, textCell(s.Setup[name])})
		}
	}
	return facts(all...)
}

// data has a row for each run.
func (s Sweep) data(axes, numbers []string) Table {
	t := Table{Columns: slices.Concat(axes, []string{"seed", "status", "exit_code", "failure", "manifest_sha256"}, numbers)}
	for i, run := range s.Runs {
		code := absent
		if run.ExitCode != nil {
			code = countCell(*run.ExitCode)
		}
		row := append(axisCells(axes, run.Values), textCell(run.Seed.String()), textCell(string(run.Status)), code, textCell(string(run.Failure)), textCell(string(run.ManifestHash)))
		for _, name := range numbers {
			if v, there := s.Numbers[i][name]; there {
				row = append(row, numberCell(&v))
				continue
			}
			row = append(row, absent)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
