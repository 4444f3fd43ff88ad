package hostpath_test

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func ExampleResolve() {
	_, _, err := hostpath.Resolve(context.Background(), spec.Request{Input: "/etc", Final: "/usr/bin"}, hostpath.Protected{StateDir: "/var/lib/evalbox"})
	fmt.Println(err)
	// Output:
	// input "/etc": is a directory of the system
	// final "/usr/bin": is emptied before a run, and is a directory of the system
}
