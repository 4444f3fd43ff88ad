package sandbox

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// Usage implements [Engine]. The kernel's own counters are exact and cheap, but
// only to be had on the engine's machine; elsewhere the engine is asked.
func (e *dockerEngine) Usage(ctx context.Context, info EngineInfo, id string) UsageSampler {
	if info.Local {
		if s := cgroupSamplerOf("/sys/fs/cgroup", info.Host.CgroupVersion, id); s != nil {
			// Without the process there is no last reading, and the samples
			// have to do.
			if state, err := e.Inspect(ctx, id); err == nil {
				s.pid, s.id = state.PID, id
			}
			return s
		}
	}
	return &engineSampler{api: e.api, id: id}
}

// cgroupSampler reads the files of one container's cgroup.
type cgroupSampler struct {
	version            int
	cpu, peak, oom     string
	cpuScale           time.Duration
	cpuField, oomField string
	current            string
	highest            atomic.Int64 // AtEnd and Sample may run at once
	pid                int
	id                 string
	// exact says that the last reading was made after the end.
	exact atomic.Bool
}

// cgroupSamplerOf finds the container's cgroup below root, as the cgroupfs and
// the systemd driver place it; nil when it is in neither place.
func cgroupSamplerOf(root string, version int, id string) *cgroupSampler {
	for _, group := range []string{"docker/" + id, "system.slice/docker-" + id + ".scope"} {
		switch version {
		case 1:
			memory := filepath.Join(root, "memory", group)
			if _, err := os.Stat(memory); err == nil {
				return &cgroupSampler{
					version: 1,
					cpu:     filepath.Join(root, "cpuacct", group, "cpuacct.usage"), cpuScale: time.Nanosecond,
					peak: filepath.Join(memory, "memory.max_usage_in_bytes"),
					oom:  filepath.Join(memory, "memory.oom_control"), oomField: "oom_kill",
				}
			}
		case 2:
			dir := filepath.Join(root, group)
			if _, err := os.Stat(dir); err == nil {
				return &cgroupSampler{
					version: 2,
					cpu:     filepath.Join(dir, "cpu.stat"), cpuField: "usage_usec", cpuScale: time.Microsecond,
					peak: filepath.Join(dir, "memory.peak"), current: filepath.Join(dir, "memory.current"),
					oom: filepath.Join(dir, "memory.events"), oomField: "oom_kill",
				}
			}
		}
	}
	return nil
}

func (s *cgroupSampler) Sample(context.Context) (Usage, bool) {
	cpu, ok := readCounter(s.cpu, s.cpuField)
	if !ok {
		return Usage{}, false
	}
	peak, ok := readCounter(s.peak, "")
	if !ok && s.current != "" {
		// memory.peak came with Linux 5.19; before it, the highest sample has
		// to do.
		var now int64
		now, ok = readCounter(s.current, "")
		for old := s.highest.Load(); now > old && !s.highest.CompareAndSwap(old, now); old = s.highest.Load() {
		}
		peak = s.highest.Load()
	}
	kills, oomOK := readCounter(s.oom, s.oomField)
	return Usage{CPU: time.Duration(cpu) * s.cpuScale, PeakMemory: peak, OOMKills: kills}, ok && oomOK
}

// AtEnd implements [UsageSampler]. The engine hears of the end through two other
// processes, and needs milliseconds to remove the cgroup; this reads it within
// microseconds.
func (s *cgroupSampler) AtEnd(ctx context.Context) (Usage, bool) {
	if s.pid <= 0 || !waitProcess(ctx, s.pid, func() bool { return processOf(s.pid, s.id) }) {
		return Usage{}, false
	}
	usage, ok := s.Sample(ctx)
	s.exact.Store(ok)
	return usage, ok
}

func (s *cgroupSampler) Source() string {
	source := "cgroup v" + strconv.Itoa(s.version)
	if s.exact.Load() {
		return source
	}
	return source + ", sampled"
}

// AtEnd implements [UsageSampler]: a process of another machine cannot be
// watched.
func (s *engineSampler) AtEnd(context.Context) (Usage, bool) { return Usage{}, false }

// readCounter reads a file that holds one number, or "name number" lines.
func readCounter(path, field string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	if field == "" {
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == field {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// processOf reports whether a process belongs to a container: the number may be
// another process's by now, or in this PID namespace.
func processOf(pid int, id string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return err == nil && strings.Contains(string(text), id)
}

// engineSampler asks the engine for one reading at a time.
type engineSampler struct {
	api     *client.Client
	id      string
	highest int64
}

func (s *engineSampler) Sample(ctx context.Context) (Usage, bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	reader, err := s.api.ContainerStatsOneShot(ctx, s.id)
	if err != nil {
		return Usage{}, false
	}
	defer reader.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(reader.Body).Decode(&stats); err != nil || stats.CPUStats.CPUUsage.TotalUsage == 0 {
		return Usage{}, false
	}
	s.highest = max(s.highest, int64(stats.MemoryStats.MaxUsage), int64(stats.MemoryStats.Usage))
	return Usage{CPU: time.Duration(stats.CPUStats.CPUUsage.TotalUsage), PeakMemory: s.highest}, true
}

func (s *engineSampler) Source() string { return "engine samples" }
