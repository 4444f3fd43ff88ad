package plot

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/text"
)

// drawing is an SVG that grows.
type drawing struct {
	height int
	// labels is the width of the names of rows.
	labels int
	body   strings.Builder
	notes  []string
}

func newDrawing(height int) *drawing { return &drawing{height: height} }

// add appends markup. Texts in args are escaped already.
func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.body, format, args...) }

// left notes that something is left out.
func (d *drawing) left(n int, noun string) {
	switch {
	case n == 0:
	case noun == "series": // the plural is the same
		d.notes = append(d.notes, fmt.Sprintf("%d further series", n))
	default:
		d.notes = append(d.notes, strings.Replace(text.Count(n, noun), " ", " further ", 1))
	}
}

// text adds a text; whole is what the reader sees who points at it, if it is longer.
func (d *drawing) text(x, y float64, anchor, shown, whole string) {
	d.add(`<text x="%s" y="%s" text-anchor="%s">%s`, num(x), num(y), anchor, escape(shown))
	if tip := label(whole, MaxTip); tip != shown {
		d.add(`<title>%s</title>`, escape(tip))
	}
	d.add(`</text>`)
}

func (d *drawing) circle(x, y, r float64, series int, tip string) {
	if tip == "" {
		d.add(`<circle class="dot c%d" cx="%s" cy="%s" r="%s"/>`, series, num(x), num(y), num(r))
		return
	}
	d.add(`<circle class="dot c%d" cx="%s" cy="%s" r="%s"><title>%s</title></circle>`, series, num(x), num(y), num(r), escape(tip))
}

// setLabels gives the names of rows the room that they need.
func (d *drawing) setLabels(names []string) {
	const letter, gap = 6.4, 14 // the width of most letters
	for _, name := range names {
		need := letter*float64(utf8.RuneCountInString(label(name, MaxLabel))) + gap
		d.labels = max(d.labels, min(int(need), maxRowLabels))
	}
}

// row adds the name of a row, and returns the middle of the row.
func (d *drawing) row(i int, name string) float64 {
	y := float64(top + i*rowHeight + rowHeight/2)
	d.text(float64(d.labels-8), y+4, "end", label(name, MaxLabel), name)
	return y
}

// axes draws both axes, and returns their scales. tight says that the axis X ends with the data.
func (d *drawing) axes(f Frame, series []Series, tight bool) (x, y scale) {
	x = newScale(series, func(p Point) float64 { return p.X }, f.X, axisLabels, width-right)
	if tight {
		x = x.tight()
	}
	y = newScale(series, func(p Point) float64 { return p.Y }, f.Y, height-bottom, top)
	for _, v := range y.ticks {
		at := y.at(v)
		d.add(`<path class="grid" d="M%d %sH%d"/>`, axisLabels, num(at), width-right)
		d.text(axisLabels-6, at+4, "end", label(y.name(v), 9), y.name(v))
	}
	d.bottom(f, x, axisLabels)
	d.add(`<text class="name" x="4" y="%d" text-anchor="middle" transform="rotate(-90 12 %[1]d)">%s</text>`, (top+height-bottom)/2, escape(label(f.YLabel, MaxLabel)))
	return x, y
}

// rowsAxis draws the axis below rows, and returns its scale.
func (d *drawing) rowsAxis(f Frame, extent Series, names []string, tight bool) scale {
	d.setLabels(names)
	x := newScale([]Series{extent}, func(p Point) float64 { return p.X }, f.X, float64(d.labels+16), width-right)
	if tight {
		x = x.tight()
	}
	d.bottom(f, x, d.labels)
	return x
}

func (d *drawing) bottom(f Frame, x scale, from int) {
	base := d.height - bottom
	for _, v := range x.ticks {
		d.add(`<path class="grid" d="M%s %dV%d"/>`, num(x.at(v)), top, base)
		d.text(x.at(v), float64(base+16), "middle", label(x.name(v), 10), x.name(v))
	}
	d.add(`<path class="axis" d="M%d %dH%d"/>`, from, base, width-right)
	d.add(`<text class="name" x="%d" y="%d" text-anchor="middle">%s</text>`, (from+width-right)/2, base+33, escape(label(f.XLabel, 2*MaxLabel)))
}

// figure is the whole plot, with a legend if there are several names.
func (d *drawing) figure(f Frame, legend []Series) template.HTML {
	var b strings.Builder
	title := escape(label(f.Title, MaxTip))
	fmt.Fprintf(&b, `<figure class="plot"><figcaption>%s</figcaption><svg role="img" aria-label="%[1]s" width="%[2]d" height="%[3]d" viewBox="0 0 %[2]d %[3]d">`, title, width, d.height)
	fmt.Fprintf(&b, `<desc>%s</desc>%s</svg>`, escape(label(f.Text, 4*MaxTip)), d.body.String())
	if len(legend) > 1 || len(legend) == 1 && legend[0].Name != "" {
		b.WriteString(`<ul class="legend">`)
		for i, s := range legend[:min(len(legend), MaxSeries)] {
			fmt.Fprintf(&b, `<li class="c%d">%s</li>`, i, escape(label(s.Name, 2*MaxLabel)))
		}
		b.WriteString(`</ul>`)
	}
	if len(d.notes) > 0 {
		fmt.Fprintf(&b, `<p class="left">Left out: %s.</p>`, strings.Join(d.notes, ", "))
	}
	b.WriteString(`</figure>`)
	return template.HTML(b.String()) //nolint:gosec // every text above is escaped
}

// num writes a coordinate.
func num(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// extent is the range of finite values.
type extent struct{ low, high float64 }

func newExtent() extent { return extent{math.Inf(1), math.Inf(-1)} }

func (e *extent) add(v float64) {
	if finite(v) {
		e.low, e.high = min(e.low, v), max(e.high, v)
	}
}

// share is the place of a value in the range, from 0 to 1; 0.5 if all values are equal.
func (e extent) share(v float64) float64 {
	if !(e.high > e.low) {
		return 0.5
	}
	// Halves, because the difference of two large numbers may be infinite.
	return min(max((v/2-e.low/2)/(e.high/2-e.low/2), 0), 1)
}

// scale maps values to coordinates.
type scale struct {
	extent

	data     extent  // of the values
	from, to float64 // coordinates
	ticks    []float64
	unit     Unit
	step     float64
}

// largest bounds the numbers of an axis, such that differences stay finite.
const largest = 1e300

// newScale is the scale of all finite values of series, widened to its outermost ticks.
func newScale(series []Series, value func(Point) float64, unit Unit, from, to float64) scale {
	s := scale{extent: newExtent(), from: from, to: to, unit: unit}
	for _, each := range series {
		for _, p := range each.Points {
			s.add(min(max(value(p), -largest), largest))
		}
	}
	switch {
	case s.low > s.high:
		s.low, s.high = 0, 1
	case s.low == s.high:
		v, pad := s.low, cmp.Or(math.Abs(s.low)/10, 1)
		if s.low, s.high = v-pad, v+pad; v >= 0 {
			s.low = max(s.low, 0) // there is no amount below zero
		}
	}
	s.step = niceStep((s.high-s.low)/5, unit)
	first, last := math.Floor(s.low/s.step), math.Ceil(s.high/s.step)
	const exact = 1 << 50 // beyond it, the numbers differ in the last digits of a float64 only
	if !(last-first <= 12) || max(math.Abs(first), math.Abs(last)) > exact {
		s.ticks = []float64{s.low, s.high}
		return s
	}
	for k := first; k <= last; k++ {
		s.ticks = append(s.ticks, k*s.step)
	}
	s.data = s.extent
	s.low, s.high = s.ticks[0], s.ticks[len(s.ticks)-1]
	return s
}

// tight is the scale without room beyond the data.
func (s scale) tight() scale {
	if s.data.low >= s.data.high {
		return s
	}
	s.extent = s.data
	s.ticks = slices.DeleteFunc(s.ticks, func(v float64) bool { return v < s.low || v > s.high })
	return s
}

// at is the coordinate of a value.
func (s scale) at(v float64) float64 { return s.from + (s.to-s.from)*s.share(v) }

// name is the label of a tick. Digits that the step does not have are rounding.
func (s scale) name(v float64) string {
	if s.unit != Number {
		return s.unit.format(v)
	}
	if math.Abs(v) < s.step/2 {
		return "0"
	}
	if decimals := -math.Floor(math.Log10(s.step)); decimals >= 0 && decimals <= 6 && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', int(decimals), 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// niceStep is the round number that is at least a width: 1, 2 or 5 times a power of ten. For bytes it
// is a power of two, for times from a minute on a step of a clock.
func niceStep(width float64, unit Unit) float64 {
	switch {
	case unit == Bytes:
		return math.Exp2(math.Ceil(math.Log2(max(width, 1))))
	case unit == Seconds && width > 10:
		for _, step := range []float64{15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400} {
			if width <= step {
				return step
			}
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(max(width, 1e-300))))
	for _, m := range []float64{1, 2, 5} {
		if width <= m*power {
			return m * power
		}
	}
	return 10 * power
}
