package sweep

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbers(t *testing.T) {
	var fields map[string]json.RawMessage
	text := `{"run_id": "r", "timestamp": 3, "seed": 7, "artifacts": [], "score": 0.5, "ok": true, "name": "x", "metrics": {"loss": 2, "by": {"a": 1, "deep": {"b": 1}}}}`
	require.NoError(t, json.Unmarshal([]byte(text), &fields))
	require.Equal(t, map[string]float64{"score": 0.5, "metrics.loss": 2, "metrics.by.a": 1}, manifestNumbers(fields))
	many := map[string]json.RawMessage{"a": json.RawMessage("1")}
	list := map[string]int{}
	for i := range maxNumbers {
		list[string(rune('0'+i))] = i
	}
	many["list"], _ = json.Marshal(list)
	require.Empty(t, manifestNumbers(many))
}

func TestRows(t *testing.T) {
	run := func(x int, status Status, name string) End {
		return End{Name: name, Point: Point{Values: map[string]any{"x": json.Number(string(rune('0' + x)))}}, Status: status}
	}
	of := map[string]map[string]float64{
		"a": {"acc": 0.5, "loss": 1}, "b": {"acc": 1, "loss": 3}, "c": {"acc": 9}, "d": {"acc": 0.25, "loss": 1}, "e": {"acc": 0.75},
	}
	all := rows([]End{
		run(1, StatusSucceeded, "a"), run(1, StatusSucceeded, "b"), run(1, StatusFailed, "c"),
		run(2, StatusSucceeded, "d"), run(2, StatusSucceeded, "e"), run(3, StatusMissing, "f"),
	}, func(e End) map[string]float64 { return of[e.Name] })
	require.Len(t, all, 3)
	require.Equal(t, Row{Values: map[string]any{"x": json.Number("1")}, Runs: 2, Means: map[string]float64{"acc": 0.75, "loss": 2}}, all[0])
	require.Equal(t, map[string]float64{"acc": 0.5}, all[1].Means, "loss is not in each manifest")
	require.Empty(t, all[2].Means)
	require.Zero(t, all[2].Runs)
}
