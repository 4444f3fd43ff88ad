package browse

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"

	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/metrics"
)

// metricsView is the measurements of a run.
type metricsView struct {
	// Plots are the curves of the machine, and then those of the program.
	Plots []template.HTML
	Rows  []metricRow
	// Left is the number of metrics that are not shown.
	Left    int
	Problem string
}

// metricRow sums one metric of the program up.
type metricRow struct {
	Name                    string
	Count                   int
	Last, Step, Least, Most string
}

const (
	// maxMetrics bounds the metrics of a page.
	maxMetrics = 24
	// maxPlots bounds its curves of the program's metrics.
	maxPlots = 12
)

// curve collects the points of one quantity.
type curve struct {
	points []plot.Point
	last   metrics.Point
}

// readMetrics reads the measurements in the record of a run, also while it goes on.
func readMetrics(dir string) (v metricsView) {
	machine, program := map[string]*curve{}, map[string]*curve{}
	add := func(to map[string]*curve, name string, x, y float64) *curve {
		c := to[name]
		if c == nil {
			c = &curve{}
			to[name] = c
		}
		c.points = append(c.points, plot.Point{X: x, Y: y})
		return c
	}
	for p, err := range metrics.Read(dir) {
		if err != nil {
			v.Problem = text.Fit(err.Error(), 300)
			break
		}
		if u := p.Usage; u != nil {
			addUsage(func(name string, y float64) { add(machine, name, p.Seconds, y) }, *u)
		}
		for name, value := range p.Values {
			x := p.Seconds
			if p.Step != nil {
				x = *p.Step
			}
			add(program, name, x, float64(value)).last = p
		}
	}
	v.Plots = machinePlots(machine)
	names := slices.Sorted(maps.Keys(program))
	v.Left = max(0, len(names)-maxMetrics)
	for i, name := range names[:len(names)-v.Left] {
		c := program[name]
		v.Rows = append(v.Rows, c.row(name))
		if i < maxPlots && len(c.points) > 1 {
			x, unit := "step", plot.Unit(0)
			if c.last.Step == nil {
				x, unit = "time", plot.Seconds
			}
			v.Plots = append(v.Plots, plot.Lines(plot.Frame{Title: name, XLabel: x, X: unit}, []plot.Series{{Name: name, Points: c.points}}))
		}
	}
	return v
}

func addUsage(add func(name string, y float64), u metrics.Usage) {
	if u.CPUs != nil {
		add(cpus, *u.CPUs)
	}
	if u.MemoryBytes != nil {
		add(memory, float64(*u.MemoryBytes))
	}
	if u.Processes != nil {
		add(processes, float64(*u.Processes))
	}
	if u.DiskBytes != nil {
		add(disk, float64(*u.DiskBytes))
	}
	for _, g := range u.GPUs {
		add("GPU "+g.ID, g.Utilization)
	}
}

// Quantities of the machine.
const (
	cpus      = "Processors in use"
	memory    = "Memory"
	processes = "Processes"
	disk      = "Size of ./final"
)

func machinePlots(curves map[string]*curve) (plots []template.HTML) {
	units := map[string]plot.Unit{memory: plot.Bytes, disk: plot.Bytes}
	order := []string{cpus, memory, processes, disk}
	for _, name := range slices.Sorted(maps.Keys(curves)) {
		if !slices.Contains(order, name) {
			order = append(order, name) // a GPU
		}
	}
	for _, name := range order[:min(len(order), maxPlots)] {
		if c := curves[name]; c != nil && len(c.points) > 1 {
			plots = append(plots, plot.Lines(plot.Frame{Title: name, X: plot.Seconds, XLabel: "time", Y: units[name]}, []plot.Series{{Name: name, Points: c.points}}))
		}
	}
	return plots
}

func (c *curve) row(name string) metricRow {
	least := slices.MinFunc(c.points, func(a, b plot.Point) int { return cmp.Compare(a.Y, b.Y) }).Y
	most := slices.MaxFunc(c.points, func(a, b plot.Point) int { return cmp.Compare(a.Y, b.Y) }).Y
	r := metricRow{Name: name, Count: len(c.points), Last: short(float64(c.last.Values[name])), Least: short(least), Most: short(most)}
	if c.last.Step != nil {
		r.Step = text.Number(*c.last.Step)
	}
	return r
}

func short(n float64) string { return fmt.Sprintf("%.6g", n) }
