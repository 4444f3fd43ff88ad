// Command waiter is the program of the engine-loss tests: the only file of a
// tiny image. It says that it runs, waits for a file in ./final, and exits with
// the code that the file holds.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	fmt.Println("ready")
	for {
		if text, err := os.ReadFile("final/go"); err == nil && strings.HasSuffix(string(text), "\n") {
			code, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				os.Exit(99)
			}
			fmt.Println("going")
			os.Exit(code)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
