package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// busy is the processor time that the machine has spent since it started, of all
// processes and of the kernel (proc(5), /proc/stat, in hundredths of a second).
func busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var total time.Duration
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if idle := i == 3 || i == 4; err != nil || idle || i > 6 {
			continue // idle, waiting for a disk, and what is counted twice
		}
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
}
