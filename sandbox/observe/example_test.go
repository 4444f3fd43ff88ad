package observe_test

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A run whose plan asks for no observation has a nil Observer, which may be used like any
// other.
func ExampleOpen() {
	warn := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	observer, err := observe.Open(context.Background(), spec.Spec{}, spec.Layout{}, "", engine.Sources{}, observe.DefaultWait, warn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer observer.Close()
	fmt.Printf("%q %v\n", observer.Witness(), observer.Report(true))
	// Output: "" <nil>
}
