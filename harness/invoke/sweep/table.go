package sweep

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/fsx"
)

// A Row has the results of one combination of values over its seeds.
type Row struct {
	Values map[string]any `json:"axis_values"`
	// Runs is how many of them succeeded.
	Runs int `json:"runs"`
	// Means are the means of the numbers in the manifests of the tool, by name. A number in an
	// object has the name of the object before its own: metrics.accuracy. A number that is not in
	// each of these manifests is left out.
	Means map[string]float64 `json:"means"`
}

const (
	maxNumbers = 100 // of one manifest
	maxDepth   = 3   // of objects in a manifest
)

// table has the numbers of the manifests of the runs that succeeded.
func (s *sweep) table(ctx context.Context) []Row {
	return rows(s.report.Runs, func(run End) map[string]float64 { return s.dir.numbers(ctx, run.Name) })
}

// numbers are those of the manifest of a run. One that cannot be read any more has none.
func (d *sweepDir) numbers(ctx context.Context, run string) map[string]float64 {
	file, _, err := fsx.OpenBelow(d.root, runDir(run, OutputName, invoke.ManifestName))
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(fsx.WithContext(ctx, file), invoke.MaxDocument))
	fields, problem := invoke.ParseManifest(text, filepath.Join(run, invoke.ManifestName))
	if err != nil || problem != nil {
		return nil
	}
	return manifestNumbers(fields)
}

// rows are the combinations of the runs in their order.
func rows(runs []End, numbersOf func(End) map[string]float64) []Row {
	all := []Row{}
	for i := 0; i < len(runs); {
		row := Row{Values: runs[i].Values, Means: map[string]float64{}}
		counts, key := map[string]int{}, combination(runs[i])
		for ; i < len(runs) && combination(runs[i]) == key; i++ {
			if runs[i].Status != StatusSucceeded {
				continue
			}
			row.Runs++
			for name, n := range numbersOf(runs[i]) {
				counts[name]++
				row.Means[name] += (n - row.Means[name]) / float64(counts[name])
			}
		}
		for name, n := range counts {
			if n < row.Runs {
				delete(row.Means, name)
			}
		}
		all = append(all, row)
	}
	return all
}

func combination(run End) string {
	text, _ := DeterministicJSON(run.Values) // the plan wrote them already
	return string(text)
}

// manifestNumbers are the numbers of a manifest, except those that the sweep gave.
func manifestNumbers(fields map[string]json.RawMessage) map[string]float64 {
	found := map[string]float64{}
	for name, text := range fields {
		if slices.Contains([]string{"run_id", "timestamp", "seed", "artifacts"}, name) {
			continue
		}
		var value any
		if json.Unmarshal(text, &value) == nil {
			addNumbers(found, name, value, maxDepth)
		}
	}
	if len(found) > maxNumbers {
		return nil // not a list of metrics
	}
	return found
}

func addNumbers(found map[string]float64, name string, value any, depth int) {
	switch value := value.(type) {
	case float64:
		found[name] = value
	case map[string]any:
		for below, v := range value {
			if depth > 1 {
				addNumbers(found, name+"."+below, v, depth-1)
			}
		}
	}
}
