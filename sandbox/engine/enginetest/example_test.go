package enginetest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A fake engine runs a Go function in place of every program. Give it to sandbox.WithEngine
// to test a caller of the sandbox without containers.
func ExampleNewFake() {
	ctx := context.Background()
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print("hello " + p.Job.Command[0] + "\n")
		return 3
	})
	container, err := fake.Prepare(ctx, spec.Class{Image: spec.Image{ID: "sha256:0"}}, engine.Meta{Name: "evalbox-example"})
	if err != nil {
		panic(err)
	}
	if err := container.Start(ctx, spec.Job{Command: []string{"world"}}, engine.Streams{Stdout: os.Stdout}); err != nil {
		panic(err)
	}
	end, err := container.Wait(ctx)
	fmt.Println(end.ExitCode, end.Complete, err)
	fmt.Println(container.Remove(ctx), fake.Left())
	// Output:
	// hello world
	// 3 true <nil>
	// <nil> []
}
