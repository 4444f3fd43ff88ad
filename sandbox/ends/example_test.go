package ends_test

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/sandbox/ends"
)

// Every program has one name and one end.
func ExamplePrograms() {
	seen := map[string]bool{}
	for _, p := range slices.Concat(ends.Programs(), ends.Numbers(), ends.Attacks()) {
		if seen[p.Name] || p.Errno != 0 && p.Code == 0 || p.Code != 0 && p.Signal != 0 {
			fmt.Println(p.Name)
		}
		seen[p.Name] = true
	}
	// Output:
}
