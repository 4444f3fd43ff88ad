package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// cgroupRoot is where systemd and the distributions mount control groups.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupUsage reads the control groups of a container of this machine. It is false if its main
// process is not visible here, or no longer the container's.
func cgroupUsage(pid int, container string) (engine.Usage, bool) {
	if pid <= 0 {
		return engine.Usage{}, false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(text), container) {
		return engine.Usage{}, false
	}
	return readCgroup(cgroupRoot, string(text))
}

// readCgroup reads the files of the control groups that the text of /proc/PID/cgroup names.
func readCgroup(root, text string) (engine.Usage, bool) {
	dirs := map[string]string{} // by controller; "" is that of version 2
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || strings.Contains(fields[2], "..") {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			dirs[controller] = filepath.Join(root, controller, fields[2])
		}
	}
	if dirs["memory"] == "" {
		return readCgroup2(dirs[""])
	}
	cpu, ok1 := cgroupNumber(dirs["cpuacct"], "cpuacct.usage", "")
	memory, ok2 := cgroupNumber(dirs["memory"], "memory.usage_in_bytes", "")
	peak, ok3 := cgroupNumber(dirs["memory"], "memory.max_usage_in_bytes", "")
	cache, ok4 := cgroupNumber(dirs["memory"], "memory.stat", "total_inactive_file")
	processes, ok5 := cgroupNumber(dirs["pids"], "pids.current", "")
	return engine.Usage{CPU: time.Duration(cpu), PeakMemory: peak, Memory: max(memory-cache, 0), Processes: processes, Source: "cgroup v1, sampled"},
		ok1 && ok2 && ok3 && ok4 && ok5
}

func readCgroup2(dir string) (engine.Usage, bool) {
	cpu, ok1 := cgroupNumber(dir, "cpu.stat", "usage_usec")
	memory, ok2 := cgroupNumber(dir, "memory.current", "")
	cache, ok3 := cgroupNumber(dir, "memory.stat", "inactive_file")
	processes, ok4 := cgroupNumber(dir, "pids.current", "")
	peak, _ := cgroupNumber(dir, "memory.peak", "") // since Linux 5.19
	return engine.Usage{CPU: time.Duration(cpu) * time.Microsecond, PeakMemory: max(peak, memory), Memory: max(memory-cache, 0), Processes: processes,
		Source: "cgroup v2, sampled"}, ok1 && ok2 && ok3 && ok4
}

// cgroupNumber reads a number of a file: that of the line that begins with a key, or the only one.
func cgroupNumber(dir, name, key string) (int64, bool) {
	if dir == "" {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		value := strings.TrimSpace(line)
		if key != "" {
			var ok bool
			if value, ok = strings.CutPrefix(value, key+" "); !ok {
				continue
			}
		}
		n, err := strconv.ParseInt(value, 10, 64)
		return n, err == nil
	}
	return 0, false
}
