//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// sign is a report in a cell of the table.
func (r report) sign() string {
	sign := r.verdict.String()
	switch {
	case r.Err != "":
		return "?"
	case r.verdict == exact && r.Unknowable:
		sign = "(exact)"
	}
	if len(r.Left) > 0 {
		sign += " LEAK"
	}
	if len(r.Harmed) > 0 {
		sign += " HARM"
	}
	return sign
}

// table shows faults by steps, if there is a report of any: every different outcome of a cell with its number, if there
// is more than one run. "(exact)" is one where nobody can know the end; "?" is a failure of
// the suite.
func (t grid) table(all []report) string {
	cells := map[[2]string][]string{}
	for _, r := range all {
		key := [2]string{r.Fault, r.Step}
		cells[key] = append(cells[key], r.sign())
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| %s |", t.name)
	for _, s := range t.steps {
		fmt.Fprintf(&out, " %s |", s.name)
	}
	out.WriteString("\n|---|" + strings.Repeat("---|", len(t.steps)) + "\n")
	filled := false
	for _, f := range t.faults {
		row, any := "", false
		for _, s := range t.steps {
			signs := cells[[2]string{f.name, s.name}]
			any = any || len(signs) > 0
			row += " " + count(signs) + " |"
		}
		if filled = filled || any; any {
			fmt.Fprintf(&out, "| %s |%s\n", f.name, row)
		}
	}
	if !filled {
		return ""
	}
	return out.String() + "\n"
}

// count lists different words, each with its number.
func count(words []string) string {
	if len(words) == 0 {
		return "–"
	}
	slices.Sort(words)
	var parts []string
	for len(words) > 0 {
		n := 1
		for n < len(words) && words[n] == words[0] {
			n++
		}
		if part := words[0]; n == 1 && len(words) == 1 && len(parts) == 0 {
			parts = append(parts, part)
		} else {
			parts = append(parts, fmt.Sprintf("%d %s", n, part))
		}
		words = words[n:]
	}
	return strings.Join(parts, ", ")
}

// tally sums up a campaign.
func tally(all []report) string {
	var known, knownExact, unknowable, leaked, harmed, failed int
	verdicts := make([]int, len(verdictNames))
	for _, r := range all {
		if r.Err != "" {
			failed++
			continue
		}
		verdicts[r.verdict]++
		if r.Unknowable {
			unknowable++
		} else {
			known++
			if r.verdict == exact {
				knownExact++
			}
		}
		leaked += min(1, len(r.Left))
		harmed += min(1, len(r.Harmed))
	}
	share := 0.0
	if known > 0 {
		share = 100 * float64(knownExact) / float64(known)
	}
	return fmt.Sprintf("%d runs: end known %d, of these exact %.1f %%; end unknowable %d; partial %d, lost %d, absent %d, hung %d, stuck %d, false %d; leaked %d, harmed %d; suite failed %d",
		len(all), known, share, unknowable, verdicts[partial], verdicts[lost], verdicts[absent], verdicts[hung], verdicts[stuck], verdicts[lie], leaked, harmed, failed)
}
