package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// row is one measured figure.
type row struct {
	what, ours, docker, ratio, target string
	met                               bool
}

// compared returns a row for a time that should be at most limit times docker's. The
// ratio is the median of the ratios of all pairs, so a machine that gets slower over
// time does not affect it.
func compared(what string, ours, docker []time.Duration, limit float64) row {
	ratio := medianRatio(ours, docker)
	return row{
		what: what, ours: spread(ours), docker: spread(docker),
		ratio: ratioText(ratio), target: fmt.Sprintf("<= %.2f x", limit), met: ratio <= limit,
	}
}

// spread formats the median of times, with the minimum and the maximum.
func spread(times []time.Duration) string {
	return fmt.Sprintf("%s (%.1f-%.1f)", milliseconds(median(times)),
		float64(slices.Min(times))/float64(time.Millisecond), float64(slices.Max(times))/float64(time.Millisecond))
}

func printTable(w io.Writer, rows []row) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "MEDIAN (MIN-MAX) OF\tEVALBOX\tDOCKER RUN\tRATIO\tTARGET\t") // Flush returns the errors
	for _, r := range rows {
		verdict := "missed"
		if r.met {
			verdict = "met"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.ours, cmp.Or(r.docker, "-"), cmp.Or(r.ratio, "-"), r.target, verdict)
	}
	return table.Flush()
}

func ratioText(ratio float64) string { return fmt.Sprintf("%.2f x", ratio) }

func milliseconds(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// median returns the middle value, or the mean of the two middle values.
func median[T time.Duration | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func medianRatio(a, b []time.Duration) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = float64(a[i]) / float64(b[i])
	}
	return median(ratios)
}
