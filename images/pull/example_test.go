package pull_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images/pull"
)

func ExamplePull() {
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		panic(err)
	}
	defer api.Close()
	ref := "python:3.12-slim@sha256:" + strings.Repeat("0", 64)
	image, pulled, err := pull.Pull(context.Background(), api, ref, pull.Options{Progress: os.Stderr})
	if failed, ok := errors.AsType[*pull.Error](err); ok {
		fmt.Println(failed.Kind, failed.Hint())
	}
	fmt.Println(image.ID, pulled)
}

func ExampleVisible() {
	fmt.Println(pull.Visible("\x1b[31mdone\x1b[0m\a"))
	// Output: done
}
