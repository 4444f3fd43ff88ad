package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// An engine in memory takes the place of docker.FromEnv.
func Example() {
	state, err := os.MkdirTemp("", "state-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)
	engine := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print("Final Validation Performance: 0.75\n")
		return 0
	})
	engine.Warn, engine.Own = nil, ""
	runner, err := sandbox.New(sandbox.WithEngine(engine), sandbox.WithStateDir(filepath.Join(state, "evalbox")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()

	res, err := runner.Run(context.Background(), sandbox.Request{ID: "r1", Image: "debian", Command: []string{"python3", "train.py"}},
		sandbox.IO{Stdout: os.Stdout})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, res.ExitCode, *res.Score, res.Enforced.Network)
	// Output:
	// Final Validation Performance: 0.75
	// exited 0 0.75 none
}

func ExampleSlots() {
	admit := sandbox.Slots(2) // two programs at a time
	hooks := sandbox.Hooks{Admit: admit, Waiting: func(why string) { fmt.Println("waiting:", why) }}
	release, err := hooks.Admit(context.Background())
	fmt.Println(err)
	release()
	// Output: <nil>
}
