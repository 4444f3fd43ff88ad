package disk_test

import (
	"fmt"

	"github.com/evalbox/evalbox/sandbox/disk"
)

// Whether this process may mount a file system in a file.
func ExampleCanLoop() {
	if err := disk.CanLoop(); err != nil {
		fmt.Println("disk limits are watched, not enforced:", err)
	}
}
