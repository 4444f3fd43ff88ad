package main

// didYouMean is a hint with the nearest name, or empty when none is near.
func didYouMean(name string, known []string) string {
	// Further away it is another word.
	best, bestDistance := "", min(len(name)/3+2, 4)
	for _, k := range known {
		if d := distance(name, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return "see all with: sandbox config"
	}
	return "did you mean " + best + "?"
}

// distance is the number of letters to insert, delete or change to get from a to
// b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
