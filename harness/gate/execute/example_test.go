package execute_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
)

func ExampleDiskBytes() {
	fmt.Println(execute.DiskBytes(evidence.RunManifest{}) >= 0)
	// Output: true
}
