package preload_test

import (
	"fmt"

	"github.com/evalbox/evalbox/sandbox/engine/preload"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func ExampleWait() {
	_, ok, err := preload.Wait(spec.Class{}, 0) // nothing is to be imported
	fmt.Println(ok, err)
	// Output: false <nil>
}
