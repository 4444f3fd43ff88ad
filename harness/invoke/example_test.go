package invoke_test

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/sandbox"
)

func ExampleSplitCommand() {
	words, err := invoke.SplitCommand(`python -m tool.cli --title 'two words' $HOME`)
	fmt.Printf("%q %v\n", words, err)
	// Output: ["python" "-m" "tool.cli" "--title" "two words" "$HOME"] <nil>
}

// The output directory exists, and has no artifacts yet.
func ExampleHarness_Run() {
	call := func(ctx context.Context, box sandbox.Box) error {
		h, err := invoke.New(box, invoke.Options{Executable: "python -m tool.cli", Root: "tool"})
		if err != nil {
			return err
		}
		seed := invoke.NewSeed(42)
		res, err := h.Run(ctx, invoke.Invocation{Config: "config.json", OutputDir: "out", Seed: &seed})
		if err != nil {
			return err
		}
		fmt.Println(res.OK, res.ManifestPath)
		return res.Err()
	}
	_ = call
}
