// Command waiter is the program of the engine-loss tests: the only file of a
// tiny image. It says that it runs, waits for a file in ./final, and exits with
// the code that the file holds. `waiter scores` prints scores as well, and exits
// with 0 on SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	scores := len(os.Args) > 1 && os.Args[1] == "scores"
	score := func(value string) {
		if scores {
			fmt.Println("Final Validation Performance: " + value)
		}
	}
	stop := make(chan os.Signal, 1)
	if scores {
		signal.Notify(stop, syscall.SIGTERM)
	}
	score("0.222")
	fmt.Println("ready")
	tick := time.NewTicker(20 * time.Millisecond)
	for {
		select {
		case <-stop:
			score("0.333")
			os.Exit(0)
		case <-tick.C:
		}
		if text, err := os.ReadFile("final/go"); err == nil && strings.HasSuffix(string(text), "\n") {
			code, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				os.Exit(99)
			}
			score("0.585")
			fmt.Println("going")
			_ = os.WriteFile("final/gone", nil, 0o644) // the test fails without it
			os.Exit(code)
		}
	}
}
