//go:build !linux

// Command faults needs Linux: it starts engines.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "faults: needs Linux, to start engines of its own")
	os.Exit(1)
}
