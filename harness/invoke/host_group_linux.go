package invoke

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// toolAttributes put the tool into a process group of its own, and end it when this
// process is killed: then nobody ends the group.
func toolAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupLives reports whether a process of the group runs. One that has ended but that
// nobody waited for does not, although it still has its number: not every machine has an
// init that waits.
func groupLives(group int) bool {
	if !signalGroup(group, 0) {
		return false
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return true // what cannot be seen may live
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is gone
		}
		if state, of, ok := stateOf(text); ok && of == group && state != 'Z' && state != 'X' {
			return true
		}
	}
	return false
}

// stateOf reads state and process group out of /proc/PID/stat, see proc(5): the name of
// the program, which may hold anything, ends with the last parenthesis.
func stateOf(text []byte) (state byte, group int, ok bool) {
	end := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[end+1:])
	if end < 0 || len(fields) < 3 {
		return 0, 0, false
	}
	group, err := strconv.Atoi(string(fields[2]))
	return fields[0][0], group, err == nil
}
