package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Unknown is a limit that init could not read; [Unlimited] means that there is no limit.
const (
	Unknown   int64 = 0
	Unlimited int64 = -1
)

// Ready describes the container as init saw it before any program existed.
type Ready struct {
	// Build is the hash of init's sources; empty in a Ready that was not received.
	Build    string
	UID, GID int
	// Capabilities, as bit sets.
	CapEffective, CapPermitted, CapBounding uint64
	NoNewPrivs                              bool
	// Seccomp is the mode of prctl(2): 2 is a filter.
	Seccomp int
	// Rlimits are those of /proc/self/limits, by the name there; -1 means unlimited.
	Rlimits    map[string]Limits
	Mounts     []Mount
	Interfaces []string
	// BootID identifies the running kernel. It is empty where a runtime has its own kernel.
	BootID string
	// Machine is the architecture as uname(2) names it.
	Machine string
	Cgroup  Cgroup
	// Stats has the paths that init was asked to stat.
	Stats map[string]Stat
	// Witness is 0 if the file that init was asked to open could be opened.
	Witness syscall.Errno
}

// Limits are a soft and a hard limit; -1 means unlimited.
type Limits struct{ Soft, Hard int64 }

// Mount is one line of /proc/self/mountinfo. Later mounts cover earlier ones.
type Mount struct {
	Target, FSType, Root string
	// Device is major:minor.
	Device   string
	ReadOnly bool
	// Options are the options of the mount, Super those of its file system.
	Options, Super string
}

// Cgroup has the limits of the container, as its cgroup files show them.
type Cgroup struct {
	// Version is 1 or 2, or 0 if there are no files.
	Version                      int
	MemoryBytes, SwapBytes, PIDs int64
	// CPUs is the quota in processors; 0 is unknown, -1 unlimited.
	CPUs float64
}

// Stat is the result of lstat(2) for a path inside the container.
type Stat struct {
	Errno    syscall.Errno
	Mode     uint32
	Dev, Ino uint64
	Ctime    time.Time
}

// MountAt returns the topmost mount at a path.
func (r Ready) MountAt(target string) (Mount, bool) {
	for _, m := range slices.Backward(r.Mounts) {
		if m.Target == target {
			return m, true
		}
	}
	return Mount{}, false
}

// parseReady parses the payload of a ready frame.
func parseReady(payload []byte) (Ready, error) {
	r := Ready{Rlimits: map[string]Limits{}, Stats: map[string]Stat{}}
	files := map[string]string{}
	seen := map[uint16]bool{}
	for tag, value := range fields(payload) {
		text := string(value)
		if tag != 8 && tag != 9 && seen[tag] {
			return Ready{}, fmt.Errorf("%w: field %d of the ready frame twice", errFormat, tag)
		}
		seen[tag] = true
		ok := true
		switch tag {
		case 0:
			ok = false
		case 1:
			r.Build = text
		case 2:
			ok = r.parseStatus(text)
		case 3:
			r.parseLimits(text)
		case 4:
			r.parseMounts(text)
		case 5:
			r.Interfaces = parseInterfaces(text)
		case 6:
			r.BootID = strings.TrimSpace(text)
		case 7:
			r.Machine = text
		case 8:
			name, content, found := strings.Cut(text, "\x00")
			files[name], ok = strings.TrimSpace(content), found
		case 9:
			ok = r.parseStat(value)
		case 10:
			var errno uint32
			errno, ok = word(value)
			r.Witness = syscall.Errno(errno)
		}
		if !ok {
			return Ready{}, fmt.Errorf("%w: field %d of the ready frame", errFormat, tag)
		}
	}
	if r.Build == "" || !seen[2] {
		return Ready{}, fmt.Errorf("%w: a ready frame without build or status", errFormat)
	}
	r.Cgroup = parseCgroup(files)
	return r, nil
}

// parseStatus parses /proc/self/status, see proc(5).
func (r *Ready) parseStatus(text string) bool {
	var err error
	read := func(err2 error) {
		if err == nil {
			err = err2
		}
	}
	bits := func(to *uint64, value string) {
		n, err := strconv.ParseUint(value, 16, 64)
		*to = n
		read(err)
	}
	id := func(to *int, value string) {
		n, err := strconv.Atoi(strings.Fields(value + " x")[0])
		*to = n
		read(err)
	}
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		found++
		switch name {
		case "Uid":
			id(&r.UID, value)
		case "Gid":
			id(&r.GID, value)
		case "CapPrm":
			bits(&r.CapPermitted, value)
		case "CapEff":
			bits(&r.CapEffective, value)
		case "CapBnd":
			bits(&r.CapBounding, value)
		case "NoNewPrivs":
			r.NoNewPrivs = value == "1"
		case "Seccomp":
			id(&r.Seccomp, value)
		default:
			found--
		}
	}
	return err == nil && found >= 2
}

// parseLimits parses /proc/self/limits: aligned columns, with spaces in the names.
func (r *Ready) parseLimits(text string) {
	for line := range strings.Lines(text) {
		if len(line) < 26 || !strings.HasPrefix(line, "Max ") {
			continue
		}
		values := strings.Fields(line[26:])
		if len(values) < 2 {
			continue
		}
		soft, softOK := limit(values[0])
		hard, hardOK := limit(values[1])
		if softOK && hardOK {
			r.Rlimits[strings.TrimSpace(line[:26])] = Limits{soft, hard}
		}
	}
}

// limit parses a number, or one of the words for unlimited.
func limit(text string) (int64, bool) {
	if text == "unlimited" || text == "max" {
		return Unlimited, true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return Unknown, false
	}
	if n >= 1<<62 { // cgroup v1 writes the largest multiple of a page
		return Unlimited, true
	}
	return int64(n), true
}

// parseMounts parses /proc/self/mountinfo, see proc(5). It skips a truncated last line.
func (r *Ready) parseMounts(text string) {
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			return
		}
		before, after, ok := strings.Cut(line, " - ")
		own, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(own) < 6 || len(super) < 3 {
			continue
		}
		m := Mount{Target: unescape(own[4]), Root: unescape(own[3]), Device: own[2], Options: own[5], FSType: super[0], Super: super[2]}
		m.ReadOnly = hasOption(m.Options, "ro") || hasOption(m.Super, "ro")
		r.Mounts = append(r.Mounts, m)
	}
}

func hasOption(options, name string) bool {
	return slices.Contains(strings.Split(options, ","), name)
}

// unescape replaces the octal escapes that the kernel writes for white space and backslashes.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// parseInterfaces returns the names in /proc/net/dev.
func parseInterfaces(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func (r *Ready) parseStat(value []byte) bool {
	const size = 40
	if len(value) <= size || bytes.IndexByte(value[size:], 0) >= 0 {
		return false
	}
	le := binary.LittleEndian
	r.Stats[string(value[size:])] = Stat{
		Errno: syscall.Errno(le.Uint32(value)), Mode: le.Uint32(value[4:]), Dev: le.Uint64(value[8:]), Ino: le.Uint64(value[16:]),
		Ctime: time.Unix(int64(le.Uint64(value[24:])), int64(le.Uint32(value[32:]))),
	}
	return true
}

// parseCgroup parses the cgroup files with limits, of either version.
func parseCgroup(files map[string]string) Cgroup {
	var c Cgroup
	number := func(name string) int64 {
		n, _ := limit(files["/sys/fs/cgroup/"+name])
		return n
	}
	if _, v1 := files["/sys/fs/cgroup/memory/memory.limit_in_bytes"]; v1 {
		c.Version, c.MemoryBytes, c.PIDs = 1, number("memory/memory.limit_in_bytes"), number("pids/pids.max")
		switch both := number("memory/memory.memsw.limit_in_bytes"); {
		case both == Unlimited:
			c.SwapBytes = Unlimited
		case both > 0 && c.MemoryBytes > 0:
			c.SwapBytes = both - c.MemoryBytes
		}
		for _, dir := range []string{"cpu", "cpu,cpuacct"} {
			quota, known := files[path.Join("/sys/fs/cgroup", dir, "cpu.cfs_quota_us")]
			if known {
				c.CPUs = processors(quota, files[path.Join("/sys/fs/cgroup", dir, "cpu.cfs_period_us")])
			}
		}
		return c
	}
	if _, v2 := files["/sys/fs/cgroup/memory.max"]; v2 {
		c.Version, c.MemoryBytes, c.SwapBytes, c.PIDs = 2, number("memory.max"), number("memory.swap.max"), number("pids.max")
		quota, period, _ := strings.Cut(files["/sys/fs/cgroup/cpu.max"], " ")
		c.CPUs = processors(quota, period)
	}
	return c
}

func processors(quota, period string) float64 {
	if quota == "max" || quota == "-1" {
		return -1
	}
	q, err := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err != nil || err2 != nil || p <= 0 {
		return 0
	}
	return float64(q) / float64(p)
}
