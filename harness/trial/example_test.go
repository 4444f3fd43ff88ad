package trial_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/trial"
)

// greeter is a harness whose jobs need no sandbox.
type greeter struct{}

func (greeter) Kind() string   { return "greet" }
func (greeter) Schema() []byte { return []byte("{}") }

func (greeter) Plan(context.Context, trial.Job) (trial.Plan, error) { return trial.Plan{}, nil }

func (greeter) Run(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
	fmt.Println("hello", job.Name)
	return trial.Result{Verdict: trial.Passed}, nil
}

func ExampleQueue() {
	jobs := []trial.Job{{Name: "Ada"}, {Name: "Grace"}}
	summary, err := trial.Queue{}.Run(context.Background(), greeter{}, slices.Values(jobs))
	fmt.Println(summary.Jobs, summary.Passed, err)
	// Output:
	// hello Ada
	// hello Grace
	// 2 2 <nil>
}
