package push_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/images/push"
)

// Push the image of an archive, and name it by its digest.
func ExampleFile() {
	to, err := push.ParseTarget("registry.example/team/tools:1.0")
	if err != nil {
		panic(err)
	}
	pushed, err := push.File(context.Background(), "tools.tar", to, push.Options{Progress: os.Stderr})
	if failed, ok := errors.AsType[*push.Error](err); ok {
		fmt.Println(failed.Kind, failed.Hint())
	}
	fmt.Println(pushed.Reference)
}
