package owner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// BootID identifies this machine since it was started.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// PIDNamespace identifies the PID namespace of this process.
func PIDNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "unknown"
	}
	return strings.Trim(strings.TrimPrefix(link, "pid:"), "[]")
}

// ProcessStart is field 22 of /proc/PID/stat; the command in field 2 may hold
// spaces and parentheses, so counting starts behind its end. A zombie has
// ended: it will not finish its run.
func ProcessStart(pid int) (string, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndex(text, []byte(") "))
	if err != nil || end < 0 {
		return "", false
	}
	fields := strings.Fields(string(text[end+2:]))
	switch {
	case len(fields) < 20:
		return "", false
	case fields[0] == "Z" || fields[0] == "X":
		return "ended", true
	}
	return fields[19], true
}

// processGone reports whether there is certainly no process of this number.
func processGone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
