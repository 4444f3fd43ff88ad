package enginetest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// findSources refuses a bind whose source the engine does not have.
func (f *Fake) findSources(class spec.Class, meta engine.Meta) error {
	f.mu.Lock()
	unseen := f.Unseen
	f.mu.Unlock()
	for _, bind := range class.Binds {
		source := meta.Sources[bind.Role]
		_, err := os.Lstat(source)
		if err != nil || unseen && !f.inVolume(source) {
			return fmt.Errorf("%w: %s", engine.ErrNoSource, source)
		}
	}
	return nil
}

// lookAround returns what init would see in a container that matches its class.
func (f *Fake) lookAround(class spec.Class, meta engine.Meta) wire.Ready {
	f.mu.Lock()
	version, bootID, change := class.Cgroup.Version, f.BootID, f.Ready
	if version == 0 {
		version = f.Facts.Host.CgroupVersion
	}
	f.mu.Unlock()
	if bootID == "" {
		text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			text = []byte("00000000-0000-0000-0000-000000000000") // a system without one
		}
		bootID = strings.TrimSpace(string(text))
	}
	ready := wire.Ready{
		Build: wire.BuildID(), NoNewPrivs: class.NoNewPrivileges, Rlimits: rlimits(class), Mounts: mounts(class),
		Interfaces: []string{"lo"}, BootID: bootID, Machine: machineName(), Stats: map[string]wire.Stat{},
		Cgroup: wire.Cgroup{Version: version, MemoryBytes: class.Cgroup.MemoryBytes, SwapBytes: class.Cgroup.SwapBytes,
			PIDs: class.Cgroup.PIDs + wire.InitTasks(class.Cgroup.PIDs), CPUs: float64(class.Cgroup.NanoCPUs) / 1e9},
	}
	user, group, _ := strings.Cut(class.User, ":")
	ready.UID, _ = strconv.Atoi(user) // a name is 0, root's: there is no /etc/passwd
	ready.GID, _ = strconv.Atoi(group)
	if !slices.Contains(class.CapDrop, "ALL") {
		ready.CapBounding = usualCaps
		if ready.UID == 0 {
			ready.CapEffective, ready.CapPermitted = usualCaps, usualCaps
		}
	}
	if class.Seccomp.Name != "" {
		ready.Seccomp = 2
	}
	if class.Network != "none" {
		ready.Interfaces = append(ready.Interfaces, "eth0")
	}
	for _, inside := range meta.Stat {
		ready.Stats[inside] = identify(statPath(class, meta, inside))
	}
	if meta.Witness != "" {
		ready.Witness = openWitness(hostPath(class, meta, meta.Witness))
	}
	if change != nil {
		change(class, meta, &ready)
	}
	return ready
}

// usualCaps are the capabilities that engines give a container by default.
const usualCaps = 0xa80425fb

// statPath returns the host path of a mount point. A mask covers what it hides.
func statPath(class spec.Class, meta engine.Meta, inside string) string {
	for _, mask := range class.Masks {
		if mask.Target != inside {
			continue
		}
		switch {
		case mask.Role != "":
			return meta.Sources[mask.Role]
		case !mask.Dir:
			return meta.Sources[spec.RoleEmpty]
		}
		return ""
	}
	return hostPath(class, meta, inside)
}

func machineName() string {
	if name, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; ok {
		return name
	}
	return runtime.GOARCH
}

// rlimitNames are the names in /proc/self/limits.
var rlimitNames = map[string]string{
	"cpu": "Max cpu time", "fsize": "Max file size", "data": "Max data size", "stack": "Max stack size",
	"core": "Max core file size", "rss": "Max resident set", "nproc": "Max processes", "nofile": "Max open files",
	"memlock": "Max locked memory", "as": "Max address space", "locks": "Max file locks", "sigpending": "Max pending signals",
	"msgqueue": "Max msgqueue size", "nice": "Max nice priority", "rtprio": "Max realtime priority", "rttime": "Max realtime timeout",
}

func rlimits(class spec.Class) map[string]wire.Limits {
	all := map[string]wire.Limits{}
	for _, name := range rlimitNames {
		all[name] = wire.Limits{Soft: wire.Unlimited, Hard: wire.Unlimited}
	}
	all["Max open files"] = wire.Limits{Soft: 1 << 20, Hard: 1 << 20}
	for _, u := range class.Ulimits {
		all[rlimitNames[u.Name]] = wire.Limits{Soft: u.Soft, Hard: u.Hard}
	}
	return all
}

func mounts(class spec.Class) []wire.Mount {
	access := func(readOnly bool) string {
		if readOnly {
			return "ro"
		}
		return "rw"
	}
	var all []wire.Mount
	add := func(target, kind, root, options, super string) {
		all = append(all, wire.Mount{Target: target, FSType: kind, Root: root, Device: fmt.Sprint("0:", 50+len(all)),
			ReadOnly: strings.HasPrefix(options, "ro"), Options: options, Super: super})
	}
	add("/", "overlay", "/", access(class.ReadOnlyRoot)+",relatime", "rw,lowerdir=/l,upperdir=/u,workdir=/w")
	add("/proc", "proc", "/", "rw,nosuid,nodev,noexec,relatime", "rw")
	add("/dev", "tmpfs", "/", "rw,nosuid", "rw,size=65536k,mode=755")
	add(spec.TerminalsDir, "devpts", "/", "rw,nosuid,noexec,relatime", fmt.Sprintf("rw,gid=5,mode=620,ptmxmode=666,max=%d", spec.Terminals))
	add("/sys", "sysfs", "/", "ro,nosuid,nodev,noexec,relatime", "ro")
	add("/dev/shm", "tmpfs", "/", "rw,nosuid,nodev,noexec,relatime", fmt.Sprintf("rw,size=%dk", class.Cgroup.ShmBytes/1024))
	for _, tmpfs := range class.Tmpfs {
		super := fmt.Sprintf("rw,size=%dk", tmpfs.SizeBytes/1024)
		if tmpfs.Inodes > 0 {
			super += fmt.Sprintf(",nr_inodes=%d", tmpfs.Inodes)
		}
		add(tmpfs.Target, "tmpfs", "/", "rw,nosuid,nodev,relatime", super)
	}
	for _, bind := range class.Binds {
		add(bind.Target, "ext4", "/fake/"+bind.Role, access(bind.ReadOnly)+",relatime", "rw")
	}
	for _, mask := range class.Masks {
		if mask.Dir && mask.Role == "" {
			add(mask.Target, "tmpfs", "/", "ro,relatime", "ro,size=4k")
		} else {
			add(mask.Target, "ext4", "/fake/"+mask.Role, "ro,relatime", "rw")
		}
	}
	return all
}

// openWitness opens a file as init does.
func openWitness(name string) syscall.Errno {
	file, err := os.Open(name)
	if err != nil {
		return errnoOf(err)
	}
	_, err = io.Copy(io.Discard, file)
	_ = file.Close() // it was only read
	if err != nil {
		return errnoOf(err)
	}
	return 0
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
