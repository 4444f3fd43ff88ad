//go:build !linux

// Command bench needs Linux: it measures runc, bubblewrap and gVisor beside evalbox.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs Linux, for the tools that it measures beside evalbox")
	os.Exit(1)
}
