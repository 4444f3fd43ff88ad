package evalbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// A script, with its data in ./input, its output on the terminal, and a time limit.
func ExampleRun() {
	res, err := evalbox.Run(context.Background(), "train.py", func(c *evalbox.Call) {
		c.Input, c.Final = "data", "out"
		c.Args = []string{"--epochs", "3"}
		c.Env["DEBUG"] = "1"
		c.Limits.Timeout = time.Minute
		c.IO.Stdout, c.IO.Stderr = os.Stdout, os.Stderr
	})
	switch path := new(sandbox.PathError); {
	case errors.As(err, &path) && errors.Is(err, fs.ErrNotExist):
		fmt.Println("there is no", path.Path)
	case err != nil:
		fmt.Println("the sandbox failed or refused:", err)
	case res.Status == result.StatusTimedOut:
		fmt.Println("too slow:", res)
	case res.OK():
		fmt.Println(res, *res.Score)
	}
}

// A command of the image, without a network and with what it prints.
func ExampleCommand() {
	res, err := evalbox.Command(context.Background(), []string{"python3", "-c", "print(6 * 7)"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(res.Stdout)
}

// A program whose settings may say engine: kubernetes.
func ExampleNew_kubernetes() {
	runner, err := evalbox.New(sandbox.WithKubernetes(kubernetes.Connect))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()
}

// One runner for many runs. In tests an engine in memory takes the place of the real one.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "evalbox-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	os.Setenv("XDG_CONFIG_HOME", dir) // no settings of this user
	engine := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print("hello " + p.Job.Command[len(p.Job.Command)-1] + "\n")
		return 0
	})
	runner, err := evalbox.New(sandbox.WithEngine(engine), sandbox.WithStateDir(filepath.Join(dir, "state")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()

	for _, name := range []string{"Ada", "Grace"} {
		res, err := runner.Command(context.Background(), []string{"echo", name})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(res.OK(), " ", res.Stdout)
	}
	// Output:
	// true hello Ada
	// true hello Grace
}
