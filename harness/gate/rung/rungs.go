package rung

import "slices"

// Rungs of the ladder (RO-10).
const (
	Local     = 641    // it works here
	Stable    = 274177 // it is stable: nulls were thought of, and there is something to show
	Promotion = 65537  // it can be promoted: nothing is uncommitted
)

// Known says whether a number is a rung.
func Known(rung int) bool { return slices.Contains([]int{Local, Stable, Promotion}, rung) }
