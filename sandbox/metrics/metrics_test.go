package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/result"
)

// points reads a record.
func points(t *testing.T, dir string) (all []Point) {
	t.Helper()
	for p, err := range Read(dir) {
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

func used(cpus float64, memory int64) Usage {
	return Usage{CPUs: &cpus, MemoryBytes: &memory, Processes: new(int64(2)), DiskBytes: new(int64(7)),
		GPUs: []GPU{{ID: "GPU-1", Utilization: cpus / 2, MemoryBytes: memory}}}
}

func printedLine(index int64, name string, value float64) result.MetricLine {
	return result.MetricLine{Index: index, Step: new(float64(index)), Values: map[string]float64{name: value}}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	r := New(dir, false)
	r.Measure(1.00049, used(0.5, 100))
	r.Print(1.5, printedLine(1, "loss", math.NaN()))
	r.Print(1.6, printedLine(2, "loss", 0.25))
	r.Measure(3, used(1.5, 300))
	custom := []result.CustomMetric{{Name: "loss", Count: 2, NotFinite: 1, Last: new(0.25)}}
	m, err := r.Close(custom, 3)
	require.NoError(t, err)
	require.Equal(t, &result.Metrics{
		Points: 4, IntervalSeconds: 2, MeanCPUs: 1.167, PeakCPUs: 1.5, PeakProcesses: 2, PeakDiskBytes: 7,
		GPUs:   []result.GPUMetrics{{ID: "GPU-1", MeanUtilization: 0.583, PeakUtilization: 0.75, PeakMemoryBytes: 300}},
		Custom: custom, Rejected: 3,
	}, m)
	all := points(t, dir)
	require.Len(t, all, 4)
	require.InDelta(t, 1, all[0].Seconds, 0)
	require.Nil(t, all[1].Usage)
	require.True(t, math.IsNaN(float64(all[1].Values["loss"])))
	require.Equal(t, Number(0.25), all[2].Values["loss"])
	require.InDelta(t, 2, *all[2].Step, 0)
}

func TestNothingIsRecorded(t *testing.T) {
	dir := t.TempDir()
	m, err := New(dir, false).Close(nil, 0)
	require.NoError(t, err)
	require.Nil(t, m)
	require.NoFileExists(t, filepath.Join(dir, File))
	require.Empty(t, points(t, dir))
}

// A long run keeps its shape: half of the points are left out each time there are too many of them.
func TestLongRunIsThinned(t *testing.T) {
	dir := t.TempDir()
	r := New(dir, false)
	const n = 3 * MaxPoints
	for i := range int64(n) {
		if i%r.Every() == 0 {
			r.Measure(float64(i), used(1, i))
		}
		// Two kinds of lines in turn: neither may push the other out.
		name := []string{"train", "val"}[i%2]
		r.Print(float64(i), printedLine(i+1, name, float64(i)))
	}
	m, err := r.Close(nil, 0)
	require.NoError(t, err)
	all := points(t, dir)
	require.Len(t, all, m.Points)
	count := map[string]int{}
	last := map[string]float64{}
	for _, p := range all {
		name := ""
		for name = range p.Values { // there is one, or none
		}
		require.GreaterOrEqual(t, p.Seconds, last[name])
		count[name]++
		last[name] = p.Seconds
	}
	require.LessOrEqual(t, count[""], MaxPoints)
	require.GreaterOrEqual(t, count[""], MaxPoints/2-1)
	require.LessOrEqual(t, count["train"]+count["val"], MaxPoints)
	require.InDelta(t, count["train"], count["val"], 2)
	require.GreaterOrEqual(t, count["train"], MaxPoints/4-2)
	require.InDelta(t, n-1, last["val"], 0, "the last point is always there")
	require.Equal(t, int64(4), r.Every())
}

// A program may print other metrics with each line. The bounds hold nevertheless.
func TestMoreGroupsThanPoints(t *testing.T) {
	dir := t.TempDir()
	r := New(dir, false)
	for i := range int64(MaxPoints + 200) {
		values := map[string]float64{}
		for bit := range 13 {
			if (i+1)>>bit&1 == 1 {
				values[fmt.Sprint("m", bit)] = float64(i)
			}
		}
		r.Print(float64(i), result.MetricLine{Index: i + 1, Values: values})
	}
	m, err := r.Close(nil, 0)
	require.NoError(t, err)
	require.LessOrEqual(t, m.Points, MaxPoints)
	require.Greater(t, m.Points, MaxPoints/2)
	require.Len(t, points(t, dir), m.Points)
}

// A disk that hangs holds up neither the program's output nor what is measured, and what was recorded
// meanwhile is the same: at the end the file has all of it.
func TestNothingWaitsForTheDisk(t *testing.T) {
	record := func(r *Recorder) {
		for i := range int64(2 * MaxPoints) { // they are thinned meanwhile
			r.Print(float64(i), printedLine(i+1, "x", float64(i)))
			if i%r.Every() == 0 {
				r.Measure(float64(i), used(1, i))
			}
		}
	}
	quick, slow := t.TempDir(), t.TempDir()
	r := New(quick, false)
	record(r)
	want, err := r.Close(nil, 0)
	require.NoError(t, err)

	disk := make(chan struct{})
	r = New(slow, false)
	r.at = func() { <-disk }
	record(r)
	require.NoFileExists(t, filepath.Join(slow, File))
	close(disk)
	m, err := r.Close(nil, 0)
	require.NoError(t, err)
	require.Equal(t, want, m)
	require.Equal(t, points(t, quick), points(t, slow))
	require.Len(t, points(t, slow), m.Points)
}

// The process that finishes the run of a dead one goes on behind its last point.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	r := New(dir, false)
	r.Measure(1, used(1, 1))
	r.Print(1, printedLine(1, "x", 1))
	r.Print(2, printedLine(2, "x", 2))
	_, err := r.Close(nil, 0)
	require.NoError(t, err)
	file, err := os.OpenFile(filepath.Join(dir, File), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"schema":"evalbox/metrics/v1","sec`)
	require.NoError(t, err)
	require.NoError(t, file.Close())

	r = New(dir, true)
	for i := range int64(3) { // the stream comes again from its beginning
		r.Print(5, printedLine(i+1, "x", float64(i+1)))
	}
	r.Measure(6, used(3, 1))
	m, err := r.Close(nil, 0)
	require.NoError(t, err)
	require.Equal(t, 5, m.Points)
	require.InDelta(t, 3, m.PeakCPUs, 0)
	var seconds []float64
	for _, p := range points(t, dir) {
		seconds = append(seconds, p.Seconds)
	}
	require.Equal(t, []float64{1, 1, 2, 5, 6}, seconds)
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, File), 0o700))
	r := New(dir, false)
	r.Measure(1, used(1, 1))
	m, err := r.Close(nil, 0)
	require.ErrorContains(t, err, "metrics.jsonl is incomplete")
	require.Nil(t, m)
}

func TestReadDamaged(t *testing.T) {
	for name, content := range map[string]string{
		"not JSON":     "hello\n",
		"other schema": `{"schema":"evalbox/metrics/v2","seconds":1}` + "\n",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, File), []byte(content), 0o600))
		var failed error
		for _, err := range Read(dir) {
			failed = err
		}
		require.ErrorContains(t, failed, "metrics.jsonl:1", name)
	}
}

func TestSchema(t *testing.T) {
	root := schematest.Load(t, SchemaJSON)
	require.Equal(t, SchemaV1, *root.Properties["schema"].Const)
	resolved, err := root.Resolve(&jsonschema.ResolveOptions{})
	require.NoError(t, err)
	u := used(1, 2)
	for _, p := range []Point{
		{Schema: SchemaV1, Usage: &u}, {Schema: SchemaV1, Usage: &Usage{}},
		{Schema: SchemaV1, Index: 1, Step: new(3.0), Values: map[string]Number{"a": 1, "b": Number(math.NaN()), "c": Number(math.Inf(-1))}},
	} {
		text, err := json.Marshal(p)
		require.NoError(t, err)
		var value any
		require.NoError(t, json.Unmarshal(text, &value))
		require.NoError(t, resolved.Validate(value), string(text))
		var again Point
		require.NoError(t, json.Unmarshal(text, &again))
		if !math.IsNaN(float64(p.Values["b"])) {
			require.Equal(t, p, again)
		}
	}
	require.Error(t, resolved.Validate(map[string]any{"schema": SchemaV1, "seconds": 1, "values": map[string]any{"x": "high"}}))
	// Every field of the Go type is in the schema.
	for _, typ := range []struct {
		of     reflect.Type
		schema *jsonschema.Schema
	}{{reflect.TypeFor[Point](), root}, {reflect.TypeFor[Usage](), root.Properties["usage"]}, {reflect.TypeFor[GPU](), root.Properties["usage"].Properties["gpus"].Items}} {
		require.Len(t, typ.schema.Properties, typ.of.NumField(), typ.of)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	r := New(dir, false)
	r.Print(1.5, result.MetricLine{Index: 1, Values: map[string]float64{"loss": 0.31}})
	if _, err := r.Close(nil, 0); err != nil {
		fmt.Println(err)
	}
	for p, err := range Read(dir) {
		fmt.Println(p.Seconds, p.Values["loss"], err)
	}
	// Output: 1.5 0.31 <nil>
}
