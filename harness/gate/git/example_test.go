package git_test

import (
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/git"
)

func ExampleResolve() {
	_, err := git.Resolve("/nowhere", "HEAD")
	fmt.Println(errors.As(err, new(*git.RevisionError)), err != nil)
}
