//go:build linux

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// documents has the samples and the drawings of the page beside it, documents + ".md".
const documents = "../docs/performance"

// The figures of the page are between these lines.
const (
	figuresBegin = "<!-- figures: written by `go -C hack run ./bench -publish` -->\n"
	figuresEnd   = "<!-- end of the figures -->\n"
)

// publish copies the files of samples, and writes what follows from them.
func publish(dir string, files []string) error {
	if len(files) == 0 {
		return errors.New("-publish needs a file of -json for each engine")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	written, err := rendered(dir)
	if err != nil {
		return err
	}
	for path, text := range written {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rendered returns the page and the drawings that follow from the samples in a directory.
func rendered(dir string) (map[string][]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json")) // sorted
	if err != nil {
		return nil, err
	}
	var reports []report
	for _, file := range files {
		r, err := readReport(file)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	slices.SortFunc(reports, func(a, b report) int { return strings.Compare(a.Engine.API, b.Engine.API) })
	page := dir + ".md"
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	before, rest, found := strings.Cut(string(text), figuresBegin)
	_, after, foundEnd := strings.Cut(rest, figuresEnd)
	if !found || !foundEnd {
		return nil, fmt.Errorf("%s lacks the lines that enclose its figures", page)
	}
	written := map[string][]byte{page: []byte(before + figuresBegin + figures(filepath.Base(dir), reports) + figuresEnd + after)}
	for _, c := range cases {
		picture, err := drawn(c.name, reports)
		if err != nil {
			return nil, err
		}
		if picture != nil {
			written[filepath.Join(dir, c.name+".svg")] = picture
		}
	}
	return written, nil
}

// figures returns the tables of all engines as Markdown.
func figures(dir string, reports []report) string {
	var b strings.Builder
	for _, r := range reports {
		fmt.Fprintf(&b, "\n## Targets: %s\n\nMeasured on %s with %s.\n\n", r.title(), r.Date, r.Version)
		table(&b, targetHead, r.targets())
	}
	for _, which := range cases {
		title := fmt.Sprintf("\n## %s\n\n![%s](%s/%s.svg)\n", which.what, which.name, dir, which.name)
		for _, r := range reports {
			c := r.find(which.name)
			if c == nil {
				continue
			}
			fmt.Fprintf(&b, "%s\n%s, %d rounds:\n\n", title, r.name(), len(c.Sides[0].Values))
			title = ""
			var rows [][]string
			for _, s := range c.Sides {
				rows = append(rows, append(c.row(s), spreadOf(s.Values).String()))
			}
			table(&b, []string{"", "× " + c.against(), "× " + sideRunc, "processor time × " + c.against(), cmp.Or(c.Unit, "ms")}, rows)
		}
	}
	return b.String()
}

func table(w io.Writer, head []string, rows [][]string) {
	rule := slices.Repeat([]string{"---"}, len(head))
	for _, cells := range slices.Concat([][]string{head, rule}, rows) {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// drawn returns a picture of a case: a point for the median ratio of each side, and a line from
// the minimum to the maximum, with a colour for each engine. It is nil if there are no samples.
func drawn(name string, reports []report) ([]byte, error) {
	p := plot.New()
	p.Title.Padding = vg.Points(6)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	var sides []string
	for i := range reports {
		c := reports[i].find(name)
		if c == nil {
			continue
		}
		p.Title.Text, p.X.Label.Text = c.What, "× "+c.against()
		for _, s := range c.Sides {
			if !slices.Contains(sides, s.Side) {
				sides = append(sides, s.Side)
			}
		}
	}
	if len(sides) == 0 {
		return nil, nil
	}
	slices.Reverse(sides) // the first is at the top
	for i := range reports {
		if err := addPoints(p, i, &reports[i], name, sides); err != nil {
			return nil, err
		}
	}
	p.NominalY(sides...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(sides))+0.2*float64(len(reports)) // the legend is above the points
	p.X.Min, p.X.Max = p.X.Min/1.3, p.X.Max*1.3
	canvas := vgsvg.New(18*vg.Centimeter, vg.Length(3+0.8*float64(len(sides)))*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var text bytes.Buffer
	_, err := canvas.WriteTo(&text)
	return text.Bytes(), err
}

// colors are those of the engines.
var colors = []color.Color{color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}, color.RGBA{R: 0xd9, G: 0x6b, B: 0x0b, A: 0xff}}

// addPoints adds the points of one engine.
func addPoints(p *plot.Plot, i int, r *report, name string, sides []string) error {
	c := r.find(name)
	if c == nil {
		return nil
	}
	var points struct {
		plotter.XYs
		plotter.XErrors
	}
	for _, s := range c.Sides {
		ratio, ok := c.ratio(s.Side, c.against(), values)
		if !ok {
			continue
		}
		if ratio.low <= 0 {
			return fmt.Errorf("%s: the ratio of %s is %v, and the axis is logarithmic: measure again", name, s.Side, ratio.low)
		}
		row := float64(slices.Index(sides, s.Side)) - 0.2*float64(i) // below one another
		points.XYs = append(points.XYs, plotter.XY{X: ratio.median, Y: row})
		points.XErrors = append(points.XErrors, struct{ Low, High float64 }{ratio.low - ratio.median, ratio.high - ratio.median})
	}
	if len(points.XYs) == 0 {
		return nil
	}
	medians, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	spans, err := plotter.NewXErrorBars(points)
	if err != nil {
		return err
	}
	medians.Color, medians.Shape, medians.Radius = colors[i%len(colors)], draw.CircleGlyph{}, vg.Points(3)
	spans.Color = colors[i%len(colors)]
	p.Add(spans, medians)
	p.Legend.Add(r.name(), medians)
	return nil
}
