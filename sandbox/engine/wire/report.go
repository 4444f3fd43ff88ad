package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kind is how a main process ended.
type Kind uint32

const (
	Exited     Kind = 1
	Signaled   Kind = 2
	NotStarted Kind = 3
)

// Stop is the reason why init stopped the main process.
type Stop uint32

const (
	StopNone     Stop = 0
	StopDeadline Stop = 1
	// StopTerm and StopKill are signals from outside the container: SIGTERM, with the job's
	// grace period, and SIGUSR1, which kills at once.
	StopTerm Stop = 2
	StopKill Stop = 3
	// StopOrphan is the job's orphan limit, which ends a job without a controller.
	StopOrphan Stop = 4
)

// Report is init's report about a job that has ended.
type Report struct {
	Kind Kind
	// Value is the exit code, the signal, or the errno of the stage that failed.
	Value int
	Stage Stage
	// Resource is the number of the limit that could not be set, if Stage is "rlimit".
	Resource uint32
	// Wall is the time from the fork to the end of the main process, by a monotonic
	// clock; Started and Finished are by the machine's wall clock.
	Wall              time.Duration
	Started, Finished time.Time
	Stop              Stop
	// SoftAfter is the time from the fork to the soft signal, by a monotonic clock; 0 if it
	// was not sent. Init sends it only because the deadline is near.
	SoftAfter time.Duration
	// Escalated reports whether the main process outlived its grace period and was killed.
	Escalated     bool
	ProcessesLeft int
	// Abandoned reports whether the controller had disconnected before the end.
	Abandoned bool
	Usage     Usage
	Share     Share
	// Waiter is nil if no process waited for the job.
	Waiter *Waiter
	// Left is nil if the job had no [Job.Scratch], or its program did not start.
	Left *Left
}

// Left is what a program left in its scratch directory: regular files, without those whose
// name or whose directory's name begins with a dot, without __pycache__, and without those of
// other file systems.
type Left struct {
	Files, Bytes int64
	// Complete is false if init could not look at everything: at most 20,000 entries, 16
	// levels and 100 ms.
	Complete bool
	// Names are the paths of at most 5 files, the largest first, as the program wrote them.
	Names []string
}

// Usage is the resource usage of the container at the end of its program. CPU and OOMKills are
// without those of a waiting process before the job.
type Usage struct {
	CPU        time.Duration
	PeakMemory int64
	OOMKills   int64
	// Source is "cgroup v1", "cgroup v2", or "rusage", which covers only the main process and
	// the children that it waited for.
	Source string
}

// Share is what the threads of a program got of the processors. All times add up over threads.
type Share struct {
	// Known says that the kernel counts how long a thread waits; Ran, Waited, Lacked and Available
	// are 0 otherwise. They lack less than a second of each thread that ended by itself before
	// the program.
	Known bool
	// Ran is how long they ran, Waited how long they could have run and had no processor.
	Ran, Waited time.Duration
	// Lacked is the part of Waited that the program could have used within its limit of
	// processors, each second by itself: threads that wait for each other, or for one processor
	// while another processor is idle, lack nothing.
	Lacked time.Duration
	// Available is the processor time that it could have used in all.
	Available time.Duration
	// Gap is the time in which not even init ran: the container was frozen. If Known is not set,
	// init may have waited for a processor instead.
	Gap time.Duration
	// Throttled is how long the CPU limit of the container held it back. Pressure is how long at
	// least one thread waited (PSI); 0 on cgroup v1. Both come from the control group.
	Throttled, Pressure time.Duration
}

// Stage is the step at which a start failed.
type Stage uint32

var stageNames = []string{"", "stdin", "rlimit", "chdir", "filter", "relay", "exec", "oom score", "fork", "alias"}

func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return "stage " + strconv.Itoa(int(s))
}

// parseReport parses the payload of a report frame.
func parseReport(payload []byte) (Report, error) {
	var r Report
	files, before := map[string]string{}, map[string]string{}
	seen := map[uint16]bool{}
	for tag, value := range fields(payload) {
		if tag != 9 && tag != 15 && tag != 17 && seen[tag] {
			return Report{}, fmt.Errorf("%w: field %d of the report twice", errFormat, tag)
		}
		seen[tag] = true
		if tag == 0 || !r.setNumber(tag, value) || !r.setRest(tag, value, files, before) {
			return Report{}, fmt.Errorf("%w: field %d of the report", errFormat, tag)
		}
	}
	if !seen[1] || !seen[2] || !seen[4] || r.Kind == NotStarted && r.Stage == 0 {
		return Report{}, fmt.Errorf("%w: a report without an end", errFormat)
	}
	if usage, ok := counters(files); ok {
		was, _ := counters(before)
		r.Usage = usage
		r.Usage.CPU, r.Usage.OOMKills = max(usage.CPU-was.CPU, 0), max(usage.OOMKills-was.OOMKills, 0)
	}
	r.Share.Throttled = max(throttled(files)-throttled(before), 0)
	r.Share.Pressure = max(pressure(files)-pressure(before), 0)
	return r, nil
}

// setNumber handles the fields that are one 32-bit number.
func (r *Report) setNumber(tag uint16, value []byte) bool {
	n, ok := word(value)
	switch tag {
	case 1:
		r.Kind = Kind(n)
		return ok && n >= 1 && n <= 3
	case 2:
		r.Value = int(n)
	case 3:
		r.Stage = Stage(n)
	case 6:
		r.Stop = Stop(n)
		return ok && n <= 4
	case 7:
		r.Escalated = n != 0
	case 8:
		r.ProcessesLeft = int(n)
	case 11:
		r.Abandoned = n != 0
	case 12:
		r.Resource = n
	default:
		return true // another form, or a field of a later version
	}
	return ok
}

// setRest handles the fields of other forms.
func (r *Report) setRest(tag uint16, value []byte, files, before map[string]string) (ok bool) {
	le := binary.LittleEndian
	switch tag {
	case 4:
		if ok = len(value) == 8; ok {
			r.Wall = time.Duration(le.Uint64(value))
			ok = r.Wall >= 0
		}
	case 13:
		if ok = len(value) == 8; ok {
			r.SoftAfter = time.Duration(le.Uint64(value))
			ok = r.SoftAfter > 0
		}
	case 5:
		if ok = len(value) == 24; ok {
			used := time.Duration(le.Uint64(value)+le.Uint64(value[8:])) * time.Microsecond
			r.Usage = Usage{CPU: max(used, 0), PeakMemory: int64(le.Uint64(value[16:]) & (1<<40 - 1) << 10), Source: "rusage"}
		}
	case 9:
		ok = addFile(files, value)
	case 15:
		ok = addFile(before, value)
	case 14:
		r.Waiter, ok = parseWaiter(value)
	case 16:
		if ok = len(value) == 24; ok {
			r.Left = &Left{Files: positive(le.Uint64(value)), Bytes: positive(le.Uint64(value[8:])), Complete: le.Uint32(value[16:]) != 0}
		}
	case 17: // behind 16
		if ok = r.Left != nil && len(r.Left.Names) < 5 && len(value) > 0 && len(value) <= 512; ok {
			r.Left.Names = append(r.Left.Names, string(value))
		}
	case 18:
		if ok = len(value) == 32; ok {
			r.Share.Known = true
			r.Share.Ran, r.Share.Waited = nanoseconds(value), nanoseconds(value[8:])
			r.Share.Lacked, r.Share.Available = nanoseconds(value[16:]), nanoseconds(value[24:])
		}
	case 19:
		if ok = len(value) == 8; ok {
			r.Share.Gap = nanoseconds(value)
		}
	case 10:
		if ok = len(value) == 16; ok {
			r.Started, r.Finished = instant(le.Uint64(value)), instant(le.Uint64(value[8:]))
		}
	default:
		return true
	}
	return ok
}

// addFile adds the content of a file by its path.
func addFile(files map[string]string, value []byte) bool {
	name, content, ok := strings.Cut(string(value), "\x00")
	files[name] = strings.TrimSpace(content)
	return ok
}

// positive is a number that is at most the largest int64.
func positive(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// nanoseconds reads a duration.
func nanoseconds(value []byte) time.Duration {
	return time.Duration(positive(binary.LittleEndian.Uint64(value)))
}

// instant converts nanoseconds since 1970.
func instant(ns uint64) time.Time { return time.Unix(0, int64(ns&(1<<63-1))).UTC() }

// Errno returns the error of a program that was not started.
func (r Report) Errno() syscall.Errno { return syscall.Errno(r.Value) }

// cgroupRoot is where a container has its control group.
const cgroupRoot = "/sys/fs/cgroup/"

// counterOf returns a number in the lines of a file; 0 if it is not there, or not a number.
func counterOf(files map[string]string, name, field string) int64 {
	for line := range strings.Lines(files[cgroupRoot+name]) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == field {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

// throttled returns how long the CPU limit has held a container back.
func throttled(files map[string]string) time.Duration {
	ns := max(counterOf(files, "cpu/cpu.stat", "throttled_time"), counterOf(files, "cpu,cpuacct/cpu.stat", "throttled_time"))
	return time.Duration(ns) + time.Duration(counterOf(files, "cpu.stat", "throttled_usec"))*time.Microsecond
}

// pressure returns for how long at least one thread has waited for a processor:
// "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS".
func pressure(files map[string]string) time.Duration {
	for line := range strings.Lines(files[cgroupRoot+"cpu.pressure"]) {
		if _, total, ok := strings.Cut(strings.TrimSpace(line), " total="); ok && strings.HasPrefix(line, "some ") {
			us, _ := strconv.ParseInt(total, 10, 64) // 0 if it is not a number
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}

// counters parses the cgroup counters, of either version.
func counters(files map[string]string) (Usage, bool) {
	number := func(name string) (int64, bool) {
		n, err := strconv.ParseInt(files[cgroupRoot+name], 10, 64)
		return n, err == nil
	}
	line := func(name, field string) int64 { return counterOf(files, name, field) }
	if peak, v1 := number("memory/memory.max_usage_in_bytes"); v1 {
		cpu, ok := number("cpuacct/cpuacct.usage")
		if !ok {
			cpu, ok = number("cpu,cpuacct/cpuacct.usage")
		}
		return Usage{CPU: time.Duration(cpu), PeakMemory: peak, OOMKills: line("memory/memory.oom_control", "oom_kill"), Source: "cgroup v1"}, ok
	}
	if _, v2 := files[cgroupRoot+"cpu.stat"]; v2 {
		peak, ok := number("memory.peak")
		if !ok { // before Linux 5.19
			peak, ok = number("memory.current")
		}
		return Usage{CPU: time.Duration(line("cpu.stat", "usage_usec")) * time.Microsecond, PeakMemory: peak,
			OOMKills: line("memory.events", "oom_kill"), Source: "cgroup v2"}, ok
	}
	return Usage{}, false
}
