//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// report has all samples of one engine.
type report struct {
	Schema  string `json:"schema"`
	Date    string `json:"date"`
	Version string `json:"version"`
	Machine struct {
		Processors int    `json:"processors"`
		Kernel     string `json:"kernel"`
	} `json:"machine"`
	Engine struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		API     string `json:"api"`
		Storage string `json:"storage"`
		Cgroup  int    `json:"cgroup"`
	} `json:"engine"`
	Cases []oneCase `json:"cases"`
}

const reportSchema = "evalbox/bench/v1"

// oneCase has the samples of one case.
type oneCase struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Unit is that of the samples; empty means milliseconds.
	Unit string `json:"unit,omitempty"`
	// Against is the side that the others are compared with; empty means docker run.
	Against string    `json:"against,omitempty"`
	Sides   []samples `json:"sides"`
}

// samples are those of one side, by round. The sides of a case have the same rounds.
type samples struct {
	Side   string    `json:"side"`
	Values []float64 `json:"values"`
	// CPU is the processor time of the machine in milliseconds, until nothing was left.
	CPU []float64 `json:"cpu,omitempty"`
	// PeakKiB is the highest peak memory of the command.
	PeakKiB int64 `json:"peak_kib,omitempty"`
}

func (c *oneCase) side(name string) *samples {
	i := slices.IndexFunc(c.Sides, func(s samples) bool { return s.Side == name })
	if i < 0 {
		return nil
	}
	return &c.Sides[i]
}

// add adds one value of a side.
func (c *oneCase) add(name string, value float64) *samples {
	if c.side(name) == nil {
		c.Sides = append(c.Sides, samples{Side: name})
	}
	s := c.side(name)
	s.Values = append(s.Values, value)
	return s
}

// spread is a median with its minimum and maximum.
type spread struct{ median, low, high float64 }

func (s spread) String() string {
	return fmt.Sprintf("%s (%s–%s)", figure(s.median), figure(s.low), figure(s.high))
}

// figure formats a ratio with three significant digits, without an exponent.
func figure(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	case x >= 0.0995:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// ratio returns the ratios of two sides in all rounds. A machine that gets slower over time does
// not affect it. ok is false if one was not measured.
func (c *oneCase) ratio(side, against string, of func(*samples) []float64) (r spread, ok bool) {
	a, b := c.side(side), c.side(against)
	if a == nil || b == nil || len(of(a)) == 0 || len(of(a)) != len(of(b)) {
		return spread{}, false
	}
	var ratios []float64
	for i, value := range of(a) {
		ratios = append(ratios, value/of(b)[i])
	}
	return spreadOf(ratios), true
}

func values(s *samples) []float64 { return s.Values }

// cpu is the mean processor time, because the kernel counts in hundredths of a second.
func cpu(s *samples) []float64 {
	if len(s.CPU) == 0 {
		return nil
	}
	var sum float64
	for _, ms := range s.CPU {
		sum += ms
	}
	return []float64{sum / float64(len(s.CPU))}
}

// against is the side that a case's sides are compared with.
func (c *oneCase) against() string { return cmp.Or(c.Against, sideDocker) }

func (r *report) name() string { return r.Engine.Name + " " + r.Engine.Version }

func (r *report) title() string {
	e := r.Engine
	return fmt.Sprintf("%s, API %s, %s, cgroup v%d, %d processors, Linux %s", r.name(), e.API, e.Storage, e.Cgroup,
		r.Machine.Processors, r.Machine.Kernel)
}

func (r *report) find(name string) *oneCase {
	i := slices.IndexFunc(r.Cases, func(c oneCase) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Cases[i]
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readReport(path string) (r report, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	if r.Schema != reportSchema {
		return r, fmt.Errorf("%s has the schema %q, want %s: measure again", path, r.Schema, reportSchema)
	}
	return r, nil
}

// row returns the cells of one side: its name, and the ratios of its time and of the machine's
// processor time to those of the reference, and that of its time to a bare runc.
func (c *oneCase) row(s samples) []string {
	cells := []string{s.Side}
	for _, column := range []struct {
		against string
		of      func(*samples) []float64
	}{{c.against(), values}, {sideRunc, values}, {c.against(), cpu}} {
		switch r, ok := c.ratio(s.Side, column.against, column.of); {
		case !ok:
			cells = append(cells, "–")
		case r.low == r.high:
			cells = append(cells, figure(r.median))
		default:
			cells = append(cells, r.String())
		}
	}
	return cells
}

// print prints the ratios of all sides and the targets.
func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\nratios: median (minimum–maximum)\n\n", r.title()) // Flush returns the errors
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, c := range r.Cases {
		fmt.Fprintf(table, "%s: %s\n", strings.ToUpper(c.Name), c.What)
		fmt.Fprintf(table, "\t× %s\t× %s\tCPU × %s\n", c.against(), sideRunc, c.against())
		for _, s := range c.Sides {
			fmt.Fprintln(table, "  "+strings.Join(c.row(s), "\t"))
		}
		fmt.Fprintln(table)
	}
	if rows := r.targets(); len(rows) > 0 {
		for _, row := range append([][]string{targetHead}, rows...) {
			fmt.Fprintln(table, strings.Join(row, "\t"))
		}
	}
	return table.Flush()
}

// divide makes samples of many runs those of one.
func (c *oneCase) divide(runs float64) {
	for _, s := range c.Sides {
		for i := range s.Values {
			s.Values[i] /= runs
		}
		for i := range s.CPU {
			s.CPU[i] /= runs
		}
	}
}
