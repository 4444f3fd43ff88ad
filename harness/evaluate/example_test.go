package evaluate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// An engine in memory takes the place of the real one.
func ExampleHarness_EvaluateSolution() {
	dir, err := os.MkdirTemp("", "evaluate-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	engine := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print("Final Validation Performance: 0.75\n")
		return 0
	})
	engine.Warn, engine.Own = nil, ""
	runner, err := sandbox.New(sandbox.WithEngine(engine), sandbox.WithStateDir(filepath.Join(dir, "state")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()
	h, err := evaluate.New(runner, evaluate.Options{Request: sandbox.Request{Image: "debian"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	input := filepath.Join(dir, "input")
	if err := os.Mkdir(input, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	task := evaluate.TaskDescription{
		CompetitionID: "digits", TaskType: "classification", DataModality: "tabular", EvaluationMetric: "accuracy",
		MetricDirection: evaluate.Maximize, Description: "Recognize digits.", DataDir: input,
	}
	res, err := h.EvaluateSolution(context.Background(), mlestar.NewSolution("train()\n", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*res.Score, res.IsError)
	// Output: 0.75 false
}
