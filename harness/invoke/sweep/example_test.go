package sweep_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
)

func ExampleNewPlan() {
	plan, err := sweep.NewPlan(sweep.Config{
		Axes:  []sweep.Axis{{Name: "zoom", Values: []any{-1, 0.5}}, {Name: "mode", Values: []any{"fast"}}},
		Seeds: []invoke.Seed{invoke.NewSeed(1), invoke.NewSeed(2)},
	}, sweep.Spec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range plan.Len() {
		fmt.Println(plan.Name(i))
	}
	// Output:
	// mode=fast_zoom=m1_seed=1
	// mode=fast_zoom=m1_seed=2
	// mode=fast_zoom=0p5_seed=1
	// mode=fast_zoom=0p5_seed=2
}
