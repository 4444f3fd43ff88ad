package result

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scanMetrics returns the lines of a text as "step:name=value …", and the number of rejected ones.
func scanMetrics(text string, size int) (lines []string, s *MetricScanner) {
	s = &MetricScanner{Each: func(l MetricLine) {
		var b strings.Builder
		if l.Step != nil {
			fmt.Fprint(&b, *l.Step)
		}
		b.WriteByte(':')
		for _, name := range []string{"acc", "loss", "a\"b", "ü", "x"} {
			if value, ok := l.Values[name]; ok {
				fmt.Fprintf(&b, " %s=%v", name, value)
			}
		}
		lines = append(lines, b.String())
	}}
	for len(text) > 0 {
		n := min(size, len(text))
		_, _ = s.Write([]byte(text[:n]))
		text = text[n:]
	}
	s.End()
	return lines, s
}

func TestMetricLines(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		lines    []string
		rejected int64
	}{
		"one":             {`{"metric": {"loss": 0.31, "step": 120}}` + "\n", []string{"120: loss=0.31"}, 0},
		"no line feed":    {`{"metric":{"loss":1e-3}}`, []string{": loss=0.001"}, 0},
		"white space":     {" \t{ \"metric\" : { \"loss\" : 1 , \"acc\" : -2 } } \r\n", []string{": acc=-2 loss=1"}, 0},
		"between others":  {"epoch 1\n{\"metric\":{\"x\":1}}\n{\"other\":{\"x\":1}}\n{\n", []string{": x=1"}, 0},
		"not alone":       {"[epoch 1] {\"metric\":{\"x\":1}}\n", nil, 0},
		"python's NaN":    {`{"metric": {"loss": NaN, "acc": Infinity, "x": -Infinity}}` + "\n", []string{": acc=+Inf loss=NaN x=-Inf"}, 0},
		"NaN as a string": {`{"metric": {"loss": "NaN"}}` + "\n", []string{": loss=NaN"}, 0},
		"too large":       {`{"metric": {"x": 1e999}}` + "\n", []string{": x=+Inf"}, 0},
		"escaped name":    {`{"metric": {"a\"b": 1, "\u00fc": 2}}` + "\n", []string{`: a"b=1 ü=2`}, 0},
		"last one counts": {`{"metric": {"x": 1, "x": 2}}` + "\n", []string{": x=2"}, 0},
		"step not finite": {`{"metric": {"x": 1, "step": NaN}}` + "\n", []string{": x=1"}, 0},

		"only a step":      {`{"metric": {"step": 1}}` + "\n", nil, 1},
		"empty":            {`{"metric": {}}` + "\n", nil, 1},
		"text":             {`{"metric": {"x": "high"}}` + "\n", nil, 1},
		"null":             {`{"metric": {"x": null}}` + "\n", nil, 1},
		"nested":           {`{"metric": {"x": {"y": 1}}}` + "\n", nil, 1},
		"not an object":    {`{"metric": 3}` + "\n", nil, 1},
		"more members":     {`{"metric": {"x": 1}, "y": 2}` + "\n", nil, 1},
		"cut":              {`{"metric": {"x": 1` + "\n", nil, 1},
		"number":           {`{"metric": {"x": 01}}` + "\n", nil, 1},
		"plus":             {`{"metric": {"x": +1}}` + "\n", nil, 1},
		"control in name":  {`{"metric": {"x\u001b": 1}}` + "\n", nil, 1},
		"bidi in name":     {`{"metric": {"x\u202e": 1}}` + "\n", nil, 1},
		"empty name":       {`{"metric": {"": 1}}` + "\n", nil, 1},
		"long name":        {`{"metric": {"` + strings.Repeat("x", MaxMetricName+1) + `": 1}}` + "\n", nil, 1},
		"long line":        {`{"metric": {"x": 1` + strings.Repeat(" ", MaxMetricLine) + "}}\n" + `{"metric": {"x": 1}}`, []string{": x=1"}, 1},
		"long, not ours":   {`{` + strings.Repeat(" ", 2*MaxMetricLine) + "}\n", nil, 0},
		"broken UTF-8":     {"{\"metric\": {\"\xff\": 1}}\n", nil, 1},
		"trailing garbage": {`{"metric": {"x": 1}} x` + "\n", nil, 1},
	} {
		for _, size := range []int{1, 3, 1 << 20} {
			lines, s := scanMetrics(c.text, size)
			require.Equal(t, c.lines, lines, "%s, in pieces of %d", name, size)
			require.Equal(t, c.rejected, s.Rejected(), "%s, in pieces of %d", name, size)
		}
	}
}

func TestMetricSums(t *testing.T) {
	_, s := scanMetrics(`{"metric":{"loss":3,"step":1}}
{"metric":{"loss":1,"step":2}}
{"metric":{"loss":NaN,"step":3}}
{"metric":{"loss":2}}
{"metric":{"acc":NaN}}
`, 7)
	require.Equal(t, []CustomMetric{
		{Name: "acc", Count: 1, NotFinite: 1},
		{Name: "loss", Count: 4, NotFinite: 1, Last: new(2.0), Min: new(1.0), Max: new(3.0)},
	}, s.Metrics())
}

func TestMetricNamesAreBounded(t *testing.T) {
	var s MetricScanner
	for i := range MaxMetrics + 10 {
		fmt.Fprintf(&s, "{\"metric\":{\"m%d\":1}}\n", i)
	}
	require.Len(t, s.Metrics(), MaxMetrics)
	require.EqualValues(t, 10, s.Rejected())
	fmt.Fprintf(&s, "{\"metric\":{\"m0\":2}}\n")
	require.EqualValues(t, 10, s.Rejected(), "a known name still counts")
}

// The pieces of a stream do not change the answer, and every accepted line is bounded.
func FuzzMetricScanner(f *testing.F) {
	f.Add(`{"metric": {"loss": 0.31, "step": 120}}`+"\n", 3)
	f.Add(`{"metric": {"loss": NaN}}`, 1)
	f.Add("{\"metric\":{\"\\u00e9\":-1.5e+3}}\r\n x", 2)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 {
			size = 1
		}
		whole, a := scanMetrics(text, 1<<30)
		parts, b := scanMetrics(text, size)
		require.Equal(t, whole, parts)
		require.Equal(t, a.Rejected(), b.Rejected())
		for _, m := range a.Metrics() {
			require.NotEmpty(t, m.Name)
			require.LessOrEqual(t, len(m.Name), MaxMetricName)
			if m.Last != nil {
				require.False(t, math.IsNaN(*m.Last) || math.IsInf(*m.Last, 0))
			}
		}
	})
}

func BenchmarkMetricScanner(b *testing.B) {
	for name, line := range map[string]string{
		"metrics": `{"metric": {"loss": 0.31, "acc": 0.9, "step": 120}}` + "\n",
		"text":    "epoch 12: the loss is 0.31, and the accuracy 0.9 at step 120\n",
		"json":    `{"epoch": {"loss": 0.31, "acc": 0.9, "step": 120}}` + "\n",
	} {
		text := []byte(strings.Repeat(line, 1<<20/len(line)))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				var s MetricScanner
				_, _ = s.Write(text)
			}
		})
	}
}
