package probe_test

import (
	"fmt"

	"github.com/evalbox/evalbox/sandbox/probe"
)

func ExampleBatches() {
	for _, batch := range probe.Batches() {
		if len(batch.Questions) == 0 {
			fmt.Println(batch.Group, "asks nothing")
		}
	}
	// Output:
}
