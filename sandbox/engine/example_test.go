package engine_test

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A container that is weaker than its plan is refused before any program exists.
func ExampleCheckReady() {
	class := spec.Class{User: "64646:64646", Network: "none"}
	seen := wire.Ready{Seccomp: 2, Interfaces: []string{"lo"}} // its user is root
	err := engine.CheckReady(class, seen)
	fmt.Println(errors.Is(err, engine.ErrUnenforceable))
	fmt.Println(err)
	// Output:
	// true
	// limit cannot be enforced: the container is not what was planned: user: 64646:64646 was planned, 0:0 is there
}

func ExampleLaunchError() {
	err := &engine.LaunchError{Stage: engine.StageExec, Errno: syscall.ENOENT}
	fmt.Println(err.ExitCode(), err)
	// Output: 127 exec: no such file or directory
}
