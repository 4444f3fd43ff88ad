package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// busy returns the processor time that all processes and the kernel have used since
// boot (/proc/stat in proc(5), in hundredths of a second).
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
			continue // idle, iowait, and fields that are counted twice
		}
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
}
