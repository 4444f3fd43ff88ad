package gate_test

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/sandbox"
)

// A gate directory is written in any case; its verdict says whether the gate passed.
func ExampleHarness_Run() {
	run := func(ctx context.Context, box sandbox.Box) error {
		h, err := gate.New(box, gate.Options{})
		if err != nil {
			return err
		}
		job, err := h.Load(ctx, gate.Document{Command: []string{"python3", "-m", "pytest", "-q"}, Workspace: ".", Out: "evidence"})
		if err != nil {
			return err
		}
		report, err := h.Run(ctx, job)
		if err != nil {
			return err
		}
		fmt.Println(report.Verdict.Status == evidence.Pass)
		return nil
	}
	_ = run
}
