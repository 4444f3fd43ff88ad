package plot

import (
	"html/template"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

var hostile = []string{
	`</title></svg><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "]]>", "javascript:alert(1)", "\x00\x1b[2J\u202e\u2066x",
	"' onload='alert(1)", "&lt;script&gt;", strings.Repeat("x<", 1<<19),
}

// requireSafe walks a fragment: no element, attribute or scheme beyond those that plots have.
func requireSafe(t *testing.T, fragment template.HTML) {
	t.Helper()
	elements := strings.Fields("figure figcaption svg desc title text path circle rect g ul li p")
	attributes := strings.Fields("class role aria-label width height viewbox x y cx cy r d text-anchor transform fill-opacity")
	tokens := html.NewTokenizer(strings.NewReader(string(fragment)))
	open := 0
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			require.Zero(t, open)
			return
		case html.StartTagToken:
			open++
			requireToken(t, tokens.Token(), elements, attributes)
		case html.SelfClosingTagToken:
			requireToken(t, tokens.Token(), elements, attributes)
		case html.EndTagToken:
			open--
		case html.TextToken:
			require.NotContains(t, string(tokens.Raw()), "\u202e")
		case html.CommentToken, html.DoctypeToken:
			require.Fail(t, "a comment")
		}
	}
}

func requireToken(t *testing.T, token html.Token, elements, attributes []string) {
	t.Helper()
	require.Contains(t, elements, token.Data)
	for _, a := range token.Attr {
		require.Contains(t, attributes, strings.ToLower(a.Key))
	}
}

// all draws every plot with one text everywhere.
func all(s string) map[string]template.HTML {
	f := Frame{Title: s, Text: s, XLabel: s, YLabel: s, X: Seconds, Y: Bytes}
	series := []Series{{Name: s, Points: []Point{{1, 2, s}, {2, math.NaN(), s}, {3, math.Inf(1), s}, {4, 5, s}}}, {Name: s}}
	return map[string]template.HTML{
		"lines":     Lines(f, series),
		"scatter":   Scatter(f, series),
		"intervals": Intervals(f, []Group{{Name: s, Values: []float64{1, 2, math.NaN()}, Mean: new(1.5), Low: new(1.0), High: new(2.0)}}),
		"timeline":  Timeline(f, []Bar{{Lane: s, Label: s, Start: 1, End: 2, Color: -3}}, []string{s, s}),
		"heat":      Heat(f, Matrix{Rows: []string{s, s}, Columns: []string{s, s, s}, Values: [][]float64{{1, math.NaN()}, {2, 3}}}),
		"sparkline": Sparkline(s, []float64{1, 2, math.Inf(-1), 3}),
	}
}

func TestTextsNeverBecomeMarkup(t *testing.T) {
	for _, s := range hostile {
		for name, drawn := range all(s) {
			requireSafe(t, drawn)
			require.Less(t, len(drawn), 20_000, name)
			require.NotContains(t, drawn, "NaN", name)
			require.NotContains(t, drawn, "Inf", name)
		}
	}
}

func TestPlotsHaveNamesForScreenReaders(t *testing.T) {
	for name, drawn := range all("Loss & memory") {
		require.Contains(t, string(drawn), `role="img"`, name)
		require.Contains(t, string(drawn), `aria-label="Loss &amp; memory"`, name)
	}
}

// TestPlotsAreBounded: the size of a plot does not grow with its data.
func TestPlotsAreBounded(t *testing.T) {
	var series []Series
	var groups []Group
	var bars []Bar
	m := Matrix{}
	for i := range 100 {
		s := Series{Name: strings.Repeat("name", 50)}
		for j := range 10_000 {
			s.Points = append(s.Points, Point{X: float64(j), Y: math.Sin(float64(i * j)), Label: "point"})
		}
		series = append(series, s)
		groups = append(groups, Group{Name: s.Name, Values: make([]float64, 1000)})
		for j := range 100 {
			bars = append(bars, Bar{Lane: s.Name + strings.Repeat("x", i), Label: "run", Start: float64(j), End: float64(j + 1)})
		}
		m.Rows, m.Columns, m.Values = append(m.Rows, s.Name), append(m.Columns, s.Name), append(m.Values, make([]float64, 100))
	}
	f := Frame{Title: "all"}
	for name, c := range map[string]struct {
		drawn template.HTML
		note  string
	}{
		"lines":     {Lines(f, series), "Left out: 92 further series."},
		"scatter":   {Scatter(f, series), "further points"},
		"intervals": {Intervals(f, groups), "Left out: 60 further rows, "},
		"timeline":  {Timeline(f, bars, nil), "Left out: 8000 further bars."},
		"heat":      {Heat(f, m), "Left out: 60 further rows, 76 further columns."},
	} {
		require.Less(t, len(c.drawn), 400_000, name)
		require.Contains(t, string(c.drawn), c.note, name)
	}
	require.Less(t, len(Sparkline("x", make([]float64, 1_000_000))), 2_000)
}

// TestExtremes: numbers at the ends of their range give coordinates within the plot.
func TestExtremes(t *testing.T) {
	for _, values := range [][]float64{
		{}, {0}, {0, 0}, {-5}, {math.MaxFloat64, -math.MaxFloat64}, {5e-324, 0}, {1e15, 1e15 + 0.125}, {math.NaN()}, {math.Inf(1), 1}, {-1e-300, 1e300},
	} {
		for _, unit := range []Unit{Number, Bytes, Seconds, Percent} {
			var points []Point
			for i, v := range values {
				points = append(points, Point{X: v, Y: v, Label: "x"}, Point{X: float64(i), Y: v})
			}
			s := newScale([]Series{{Points: points}}, func(p Point) float64 { return p.X }, unit, 10, 100)
			require.LessOrEqual(t, len(s.ticks), 14)
			for _, v := range append(s.ticks, values...) {
				if finite(v) {
					require.True(t, s.at(v) >= 10 && s.at(v) <= 100, "%v of %v", v, values)
				}
			}
			f := Frame{X: unit, Y: unit}
			requireSafe(t, Lines(f, []Series{{Points: points}}))
			requireSafe(t, Scatter(f, []Series{{Points: points}}))
			requireSafe(t, Intervals(f, []Group{{Values: values}}))
		}
	}
	require.Empty(t, Sparkline("x", []float64{1, math.NaN()}))
}

func TestThin(t *testing.T) {
	var points []Point
	for i := range 3600 {
		points = append(points, Point{X: float64(i), Y: 1})
	}
	points[1000].Y, points[2000].Y, points[3000].Y = 50, -50, math.NaN()
	kept := Thin(points, 60)
	require.LessOrEqual(t, len(kept), 60)
	require.Contains(t, kept, points[1000])
	require.Contains(t, kept, points[2000])
	gaps := 0
	for i, p := range kept {
		if math.IsNaN(p.Y) {
			gaps++
		}
		if i > 0 {
			require.Greater(t, p.X, kept[i-1].X)
		}
	}
	require.Equal(t, 1, gaps)
	require.Len(t, Thin(points[:60], 60), 60)
}

func TestUnits(t *testing.T) {
	for want, c := range map[string]struct {
		unit  Unit
		value float64
	}{
		"1 GiB": {Bytes, 1 << 30}, "0.5s": {Seconds, 0.5}, "1m30s": {Seconds, 90}, "2m": {Seconds, 120}, "2h": {Seconds, 7200}, "1h30m": {Seconds, 5400},
		"12.5 %": {Percent, 0.125}, "1.5": {Number, 1.5}, "1e+300": {Bytes, 1e300},
	} {
		require.Equal(t, want, c.unit.format(c.value))
	}
}

func TestTicks(t *testing.T) {
	names := func(unit Unit, values ...float64) (names []string) {
		var s Series
		for _, v := range values {
			s.Points = append(s.Points, Point{X: v})
		}
		sc := newScale([]Series{s}, func(p Point) float64 { return p.X }, unit, 0, 1)
		for _, v := range sc.ticks {
			names = append(names, sc.name(v))
		}
		return names
	}
	require.Equal(t, []string{"0", "0.2", "0.4", "0.6", "0.8"}, names(Number, 0.1, 0.7))
	require.Equal(t, []string{"0 B", "256 MiB", "512 MiB", "768 MiB", "1 GiB"}, names(Bytes, 0, 1<<30))
	require.Equal(t, []string{"0s", "30s", "1m", "1m30s"}, names(Seconds, 1, 80))
}

func TestLinesGolden(t *testing.T) {
	drawn := Lines(Frame{Title: "Loss", Text: "falls", XLabel: "step", YLabel: "loss"}, []Series{{Name: "a", Points: []Point{{0, 1, ""}, {1, 0.5, ""}, {2, math.NaN(), ""}, {3, 0.2, ""}}}})
	require.True(t, strings.HasPrefix(string(drawn), `<figure class="plot"><figcaption>Loss</figcaption><svg role="img" aria-label="Loss" width="640" height="260" viewBox="0 0 640 260"><desc>falls</desc>`))
	require.Contains(t, string(drawn), `<path class="line c0" d="M66 12L248 142M612 220"/>`)
	require.Contains(t, string(drawn), `<circle class="dot c0" cx="612" cy="220" r="2"/>`)
	require.Contains(t, string(drawn), `<li class="c0">a</li>`)
}

func TestAxisOfAmountsHasNothingBelowZero(t *testing.T) {
	for _, v := range []float64{0, 1, 1e-9, 1e12} {
		drawn := string(Lines(Frame{Title: "Size", Y: Bytes}, []Series{{Points: []Point{{X: 1, Y: v}, {X: 2, Y: v}}}}))
		require.NotContains(t, drawn, ">-", "%g", v)
	}
	require.Contains(t, string(Lines(Frame{}, []Series{{Points: []Point{{X: 1, Y: -2}}}})), ">-2")
}
