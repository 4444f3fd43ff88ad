package doctor_test

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/doctor"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// A machine without an engine has a finding on its address, and one on the state directory.
func ExampleExamine() {
	dir, err := os.MkdirTemp("", "doctor-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	findings, err := doctor.Examine(context.Background(), doctor.Machine{
		Address: docker.Address{Host: "ftp://lab.example.com"}, StateDir: dir,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range findings {
		fmt.Println(f.Check, f.Verdict)
	}
	// Output:
	// engine address fail
	// state directory ok
}

// A machine with an engine is examined through a runner.
func ExampleExamine_engine() {
	runner, err := sandbox.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()
	findings, err := doctor.Examine(context.Background(), doctor.Machine{
		Runner: runner, StateDir: runner.Store().Dir(), Request: sandbox.Request{Image: "python"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range findings {
		if f.Verdict == doctor.Fail {
			fmt.Println(f.Check, f.Seen, f.Advice)
		}
	}
}
