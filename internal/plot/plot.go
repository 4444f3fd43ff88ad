// Package plot draws small plots as fragments of HTML with SVG in them. The functions are pure:
// equal data gives equal bytes.
//
// A plot has no colors, fonts or styles of its own: the page has [CSS], and its variables follow
// the theme of the reader. So a strict content security policy holds, and paper gets the light theme.
// Every text is data: it is shortened, what would reorder or hide text is made visible, and it never
// becomes markup. The size of a plot does not grow with the data: long series are thinned such that
// peaks stay, and what is left out is counted below the plot.
package plot

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// Bounds of one plot. What exceeds them is left out, and counted.
const (
	// MaxSeries is the number of series, which is that of the colors of [CSS].
	MaxSeries = 8
	// MaxPoints is the number of points of a series of [Lines].
	MaxPoints = 600
	// MaxMarks is the number of points of all series of [Scatter], and that of the points of one
	// group of [Intervals] and of the bars of a [Timeline].
	MaxMarks = 2000
	// MaxRows is the number of groups, lanes and rows, MaxColumns that of the columns of a [Heat].
	MaxRows, MaxColumns = 40, 24
	// MaxLabel is the number of characters of a label beside a plot, MaxTip that of one in it.
	MaxLabel, MaxTip = 28, 120
)

// A Unit says how the numbers of an axis are written.
type Unit int

const (
	Number Unit = iota
	// Bytes has ticks at powers of two.
	Bytes
	Seconds
	// Percent writes a share of 1.
	Percent
)

// Frame is what all plots have.
type Frame struct {
	// Title stands above the plot, and is its name for screen readers. Text, which may be empty,
	// describes what the plot shows, for screen readers too.
	Title, Text string
	// XLabel and YLabel name the axes, X and Y are their units.
	XLabel, YLabel string
	X, Y           Unit
}

// A Point is one mark. Label, which may be empty, is shown when the reader points at it.
type Point struct {
	X, Y  float64
	Label string
}

// Series are points with a name.
type Series struct {
	Name   string
	Points []Point
}

// The sizes of a plot, in pixels where nothing scales it.
const (
	width, height      = 640, 260
	right, top, bottom = 28, 12, 40
	axisLabels         = 66  // the left margin of plots with an axis there
	maxRowLabels       = 200 // that of plots with rows, at most
	rowHeight          = 20
)

// Lines draws curves. A point that is not finite interrupts its curve.
func Lines(f Frame, series []Series) template.HTML {
	d := newDrawing(height)
	shown, left := bound(series, MaxSeries)
	d.left(left, "series")
	for i := range shown {
		shown[i].Points = Thin(shown[i].Points, MaxPoints)
	}
	x, y := d.axes(f, shown, true)
	for i, s := range shown {
		var path strings.Builder
		pen := "M"
		for at, p := range s.Points {
			if !finite(p.X, p.Y) {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%s %s", pen, num(x.at(p.X)), num(y.at(p.Y)))
			if alone := pen == "M" && (at+1 == len(s.Points) || !finite(s.Points[at+1].X, s.Points[at+1].Y)); alone {
				d.circle(x.at(p.X), y.at(p.Y), 2, i, "") // a curve of one point shows nothing
			}
			pen = "L"
		}
		d.add(`<path class="line c%d" d="%s"/>`, i, path.String())
	}
	return d.figure(f, shown)
}

// Scatter draws points.
func Scatter(f Frame, series []Series) template.HTML {
	d := newDrawing(height)
	shown, left := bound(series, MaxSeries)
	d.left(left, "series")
	room := MaxMarks
	for i := range shown {
		shown[i].Points, left = bound(shown[i].Points, room)
		room -= len(shown[i].Points)
		d.left(left, "point")
	}
	x, y := d.axes(f, shown, false)
	for i, s := range shown {
		for _, p := range s.Points {
			if finite(p.X, p.Y) {
				tip := fmt.Sprintf("%s: %s, %s", label(p.Label, MaxTip), f.X.format(p.X), f.Y.format(p.Y))
				d.circle(x.at(p.X), y.at(p.Y), 3.5, i, strings.TrimPrefix(tip, ": "))
			}
		}
	}
	return d.figure(f, shown)
}

// A Group is a row of [Intervals]: values, and their mean with an interval around it. What is nil is
// not drawn.
type Group struct {
	Name            string
	Values          []float64
	Mean, Low, High *float64
}

// Intervals draws the values of each group in a row, with the mean and its interval.
func Intervals(f Frame, groups []Group) template.HTML {
	shown, left := bound(groups, MaxRows)
	d := newDrawing(top + rowHeight*max(len(shown), 1) + bottom)
	d.left(left, "row")
	var extent Series
	for i := range shown {
		shown[i].Values, left = bound(shown[i].Values, MaxMarks/max(len(shown), 1))
		d.left(left, "value")
		for _, v := range shown[i].Values {
			extent.Points = append(extent.Points, Point{X: v})
		}
		for _, v := range []*float64{shown[i].Mean, shown[i].Low, shown[i].High} {
			if v != nil {
				extent.Points = append(extent.Points, Point{X: *v})
			}
		}
	}
	names := make([]string, len(shown))
	for i, g := range shown {
		names[i] = g.Name
	}
	x := d.rowsAxis(f, extent, names, false)
	for i, g := range shown {
		y := d.row(i, g.Name)
		for at, v := range g.Values {
			if finite(v) {
				// Equal values would hide one another: they are spread over the row.
				d.circle(x.at(v), y+float64(at*5%11-5), 2.5, 0, f.X.format(v))
			}
		}
		if g.Low != nil && g.High != nil && finite(*g.Low, *g.High) {
			from, to := x.at(*g.Low), x.at(*g.High)
			d.add(`<path class="interval" d="M%[1]s %[3]sH%[2]sM%[1]s %[4]sV%[5]sM%[2]s %[4]sV%[5]s"><title>%[6]s</title></path>`,
				num(from), num(to), num(y), num(y-4), num(y+4), escape(fmt.Sprintf("95 %% interval of the mean: %s to %s", f.X.format(*g.Low), f.X.format(*g.High))))
		}
		if g.Mean != nil && finite(*g.Mean) {
			d.add(`<path class="mean" d="M%[1]s %[2]sl5 5l-5 5l-5 -5z"><title>%[3]s</title></path>`, num(x.at(*g.Mean)), num(y-5), escape("mean: "+f.X.format(*g.Mean)))
		}
	}
	return d.figure(f, nil)
}

// A Bar is a time in a lane of a [Timeline]. Start and End are on the axis X of the frame. Color is
// the number of its color, from 0.
type Bar struct {
	Lane, Label string
	Start, End  float64
	Color       int
}

// Timeline draws bars in lanes, in the order in which the lanes come first. colors names the colors
// of the bars.
func Timeline(f Frame, bars []Bar, colors []string) template.HTML {
	bars, left := bound(bars, MaxMarks)
	lanes := map[string]int{}
	var extent Series
	hidden := 0
	for _, b := range bars {
		if _, there := lanes[b.Lane]; !there {
			lanes[b.Lane] = len(lanes)
		}
		extent.Points = append(extent.Points, Point{X: b.Start}, Point{X: b.End})
	}
	d := newDrawing(top + rowHeight*min(max(len(lanes), 1), MaxRows) + bottom)
	x := d.rowsAxis(f, extent, slices.Collect(maps.Keys(lanes)), true)
	drawn := make([]bool, len(lanes))
	for _, b := range bars {
		lane := lanes[b.Lane]
		if lane >= MaxRows {
			hidden++
			continue
		}
		if !drawn[lane] {
			drawn[lane] = true
			d.row(lane, b.Lane)
		}
		if !finite(b.Start, b.End) {
			continue
		}
		from, to := x.at(b.Start), x.at(b.End)
		d.add(`<rect class="bar c%d" x="%s" y="%d" width="%s" height="%d"><title>%s</title></rect>`, color(b.Color), num(from),
			top+lane*rowHeight+3, num(max(to-from, 1)), rowHeight-6, escape(fmt.Sprintf("%s: %s to %s", label(b.Label, MaxTip), f.X.format(b.Start), f.X.format(b.End))))
	}
	d.left(left+hidden, "bar")
	var legend []Series
	for _, name := range colors {
		legend = append(legend, Series{Name: name})
	}
	return d.figure(f, legend)
}

// Matrix has the values of a [Heat]: Values[row][column]. NaN is an empty cell.
type Matrix struct {
	Rows, Columns []string
	Values        [][]float64
	// PerColumn gives each column a scale of its own.
	PerColumn bool
}

// Heat draws a table of numbers whose cells are the darker the higher their values are.
func Heat(f Frame, m Matrix) template.HTML {
	rows, leftRows := bound(m.Rows, MaxRows)
	columns, leftColumns := bound(m.Columns, MaxColumns)
	const cellHeight, header = 26, 26
	d := newDrawing(header + cellHeight*len(rows) + bottom/2)
	d.left(leftRows, "row")
	d.left(leftColumns, "column")
	d.setLabels(rows)
	rowLabels := float64(d.labels)
	cell := (width - rowLabels - right) / float64(max(len(columns), 1))
	fit := max(int(cell/7), 3) // characters
	for j, name := range columns {
		d.text(rowLabels+cell*(float64(j)+0.5), header-9, "middle", label(name, fit), name)
	}
	all := newExtent()
	for i := range rows {
		for j := range columns {
			all.add(m.at(i, j))
		}
	}
	for i, name := range rows {
		y := float64(header + i*cellHeight)
		d.text(rowLabels-8, y+17, "end", label(name, MaxLabel), name)
		for j := range columns {
			e := all
			if m.PerColumn {
				e = newExtent()
				for k := range rows {
					e.add(m.at(k, j))
				}
			}
			v, shown := m.at(i, j), "–"
			if finite(v) {
				shown = f.Y.format(v)
				d.add(`<rect class="cell" x="%s" y="%s" width="%s" height="%d" fill-opacity="%.2f"/>`, num(rowLabels+cell*float64(j)+1), num(y+1),
					num(cell-2), cellHeight-2, 0.05+0.45*e.share(v))
			}
			d.add(`<g class="value">`)
			d.text(rowLabels+cell*(float64(j)+0.5), y+17, "middle", label(shown, fit), shown)
			d.add(`</g>`)
		}
	}
	return d.figure(f, nil)
}

func (m Matrix) at(row, column int) float64 {
	if row >= len(m.Values) || column >= len(m.Values[row]) {
		return math.NaN()
	}
	return m.Values[row][column]
}

// Sparkline draws a curve without axes that fits into a line of text. title names it for screen
// readers and for who points at it; it is to say the numbers that matter. Without two finite values
// it is empty.
func Sparkline(title string, values []float64) template.HTML {
	const w, h, most = 120, 24, 60
	points := make([]Point, 0, len(values))
	e := newExtent()
	for i, v := range values {
		if finite(v) {
			points = append(points, Point{X: float64(i), Y: v})
			e.add(v)
		}
	}
	if len(points) < 2 {
		return ""
	}
	points = Thin(points, most)
	var path strings.Builder
	last := float64(len(values) - 1)
	for i, p := range points {
		pen := "L"
		if i == 0 {
			pen = "M"
		}
		fmt.Fprintf(&path, "%s%s %s", pen, num(1+(w-2)*p.X/last), num(h-2-(h-4)*e.share(p.Y)))
	}
	//nolint:gosec // the title is escaped, the path is numbers
	return template.HTML(fmt.Sprintf(`<svg class="spark" role="img" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" aria-label="%[3]s"><title>%[3]s</title><path class="line c0" d="%[4]s"/></svg>`,
		w, h, escape(label(title, MaxTip)), path.String()))
}

// format writes a number for people.
func (u Unit) format(v float64) string {
	switch u {
	case Bytes:
		if math.Abs(v) < math.MaxInt64 {
			return text.Size(int64(v))
		}
	case Seconds:
		if v >= 0 && v < 1e9 {
			return seconds(v)
		}
	case Percent:
		return strconv.FormatFloat(100*v, 'g', 4, 64) + " %"
	case Number:
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}

// seconds is a duration without zeros at its end, such as "1m30s" or "0.5s".
func seconds(v float64) string {
	if v < 60 {
		return strconv.FormatFloat(v, 'g', 4, 64) + "s"
	}
	whole := time.Duration(v * float64(time.Second)).Round(time.Second).String()
	if strings.HasSuffix(whole, "m0s") {
		whole = strings.TrimSuffix(whole, "0s")
	}
	if strings.HasSuffix(whole, "h0m") {
		whole = strings.TrimSuffix(whole, "0m")
	}
	return whole
}

// label is an untrusted text on one line, shortened.
func label(s string, most int) string {
	const bytes = 4 // of a character at most
	return text.Fit(terminal.Line(text.OneLine(text.Short(s, bytes*most))), most)
}

func escape(s string) string { return template.HTMLEscapeString(s) }

func color(n int) int { return ((n % MaxSeries) + MaxSeries) % MaxSeries }

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// bound is a copy of at most this number of elements, and how many are left out.
func bound[T any](all []T, most int) (shown []T, left int) {
	most = max(most, 0)
	return append([]T{}, all[:min(len(all), most)]...), max(len(all)-most, 0)
}

// Thin keeps at most this number of points. Of the points of each stretch it keeps the lowest and the
// highest, and one that is not finite, so that peaks and gaps stay.
func Thin(points []Point, most int) []Point {
	if len(points) <= most {
		return points
	}
	stretches := most / 3
	kept := make([]Point, 0, most)
	for i := range stretches {
		from, to := i*len(points)/stretches, (i+1)*len(points)/stretches
		low, high, gap := from, from, -1
		for at := from; at < to; at++ {
			switch y := points[at].Y; {
			case !finite(points[at].X, y):
				gap = at
			case !finite(points[low].Y) || y < points[low].Y:
				low = at
			}
			if y := points[at].Y; finite(y) && (!finite(points[high].Y) || y > points[high].Y) {
				high = at
			}
		}
		for at := from; at < to; at++ {
			if at == low || at == high || at == gap {
				kept = append(kept, points[at])
			}
		}
	}
	return kept
}
