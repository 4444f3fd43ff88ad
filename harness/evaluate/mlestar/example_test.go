package mlestar_test

import (
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
)

func ExampleSolutionScript_ReplaceBlock() {
	solution := mlestar.NewSolution("depth = 3\nfit(depth)\n", mlestar.PhaseInit)
	better, err := solution.ReplaceBlock("depth = 3", "depth = 5")
	fmt.Printf("%q %v\n", better.Content, err)
	_, err = solution.ReplaceBlock("width = 1", "width = 2")
	fmt.Println(errors.Is(err, mlestar.ErrBlockNotFound))
	// Output:
	// "depth = 5\nfit(depth)\n" <nil>
	// true
}
