//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPublishedFiguresAreThoseOfTheSamples: nobody edits a table or a drawing by hand.
func TestPublishedFiguresAreThoseOfTheSamples(t *testing.T) {
	t.Chdir("..")
	written, err := rendered(documents)
	require.NoError(t, err)
	for path, want := range written {
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(t, string(want) == string(have), "%s differs: run cd hack && go run ./bench -publish ../docs/performance/*.json", path)
	}
	drawings, err := filepath.Glob(filepath.Join(documents, "*.svg"))
	require.NoError(t, err)
	for _, path := range drawings {
		assert.Contains(t, written, path, "a drawing of a case that is gone")
	}
}

// TestPublish writes the tables, the verdicts and the drawings of two engines.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+figuresBegin+"stale\n"+figuresEnd+"after\n"), 0o644))
	into := filepath.Join(dir, "performance")
	require.NoError(t, os.Mkdir(into, 0o755))
	var files []string
	for _, name := range []string{"floor", "current"} {
		r := sampleReport()
		r.Engine.Name = name
		files = append(files, filepath.Join(dir, name+".json"))
		require.NoError(t, r.write(files[len(files)-1]))
	}
	require.NoError(t, publish(into, files))

	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, want := range []string{
		"before\n", "after\n", "## Targets: floor", "## Targets: current",
		"| library, cold / docker run --rm | ≤ 0.45 | 0.40 (0.20–0.50) | ok |",
		"| 200 scripts, rate of sandbox batch -j 2 / xargs -P 2 docker run --rm | ≥ 3.00 | 2.00 | missed |",
		"| library | 0.40 (0.20–0.50) | – | 0.50 | 40.0 (20.0–50.0) |",
	} {
		assert.Contains(t, string(text), want)
	}
	assert.NotContains(t, string(text), "stale")
	for _, name := range []string{"pass.svg", "batch.svg", "goroutines.svg"} {
		picture, err := os.ReadFile(filepath.Join(into, name))
		require.NoError(t, err)
		assert.Contains(t, string(picture), "</svg>")
	}
}

func sampleReport() report {
	r := report{Schema: reportSchema}
	r.Engine.API, r.Engine.Storage = "1.41", "overlay2"
	pass := oneCase{Name: "pass"}
	for _, ms := range []float64{20, 40, 50} {
		pass.add(sideLibrary, ms).CPU = []float64{10}
		pass.add(sideDocker, 100).CPU = []float64{20}
	}
	batch := oneCase{Name: "batch", Against: sideXargs}
	batch.add(sideXargs, 200)
	batch.add(sideBatch, 100)
	same := oneCase{Name: "goroutines", Against: sideTen}
	same.add(sideTen, 2)
	same.add(sideThousand, 2)
	r.Cases = []oneCase{pass, batch, same}
	return r
}

func TestRatiosNeedTheSameRounds(t *testing.T) {
	c := oneCase{}
	c.add("a", 1)
	c.add("b", 2)
	c.add("b", 4)
	_, ok := c.ratio("a", "b", values)
	assert.False(t, ok)
	_, ok = c.ratio("a", "c", values)
	assert.False(t, ok)
	c.add("a", 1)
	got, ok := c.ratio("a", "b", values)
	assert.True(t, ok)
	assert.Equal(t, spread{0.375, 0.25, 0.5}, got)
}
