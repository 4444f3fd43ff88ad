package wire

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const statusText = "Name:\tsandbox-init\nUid:\t64646\t64646\t64646\t64646\nGid:\t7\t7\t7\t7\nCapInh:\t0\nCapPrm:\t0000000000000001\n" +
	"CapEff:\t0000000000000002\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"

const limitsText = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max open files            1024                 524288               files     
Max core file size        0                    unlimited            bytes     
Max nice priority         0                    0                    
nonsense
Max address space         x                    y                    bytes     
`

const mountsText = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 ro,errors=remount-ro
23 22 0:5 /dir\040with\134blank /mnt/a\040b ro,nosuid master:3 shared:4 - tmpfs tmp\040fs rw,size=10k
24 22 0:6 / /proc rw - proc proc rw
a line of nonsense - x
25 22 0:7 / /proc ro - tmpfs tmpfs rw
26 22 0:8 / /cut rw - tmpfs tmp`

const netText = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  eth0: 1 2 3
`

func readyWith(more ...[]byte) []byte {
	p := appendField(nil, 1, []byte("build"))
	p = appendField(p, 2, []byte(statusText))
	for _, f := range more {
		p = append(p, f...)
	}
	return p
}

func cgroupFile(name, content string) []byte {
	return appendField(nil, 8, []byte("/sys/fs/cgroup/"+name+"\x00"+content))
}

func TestParseReady(t *testing.T) {
	stat := append([]byte{0, 0, 0, 0, 0xed, 0x41, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}, "/final"...)
	r, err := parseReady(readyWith(
		appendField(nil, 3, []byte(limitsText)), appendField(nil, 4, []byte(mountsText)), appendField(nil, 5, []byte(netText)),
		appendField(nil, 6, []byte("boot\n")), appendField(nil, 7, []byte("x86_64")), appendField(nil, 9, stat), appendField(nil, 10, []byte{2, 0, 0, 0}),
		appendField(nil, 999, []byte("of a later version"))))
	require.NoError(t, err)
	assert.Equal(t, "build", r.Build)
	assert.Equal(t, 64646, r.UID)
	assert.Equal(t, 7, r.GID)
	assert.Equal(t, uint64(1), r.CapPermitted)
	assert.Equal(t, uint64(2), r.CapEffective)
	assert.Equal(t, uint64(1)<<41-1, r.CapBounding)
	assert.True(t, r.NoNewPrivs)
	assert.Equal(t, 2, r.Seccomp)
	assert.Equal(t, map[string]Limits{"Max cpu time": {-1, -1}, "Max open files": {1024, 524288}, "Max core file size": {0, -1}, "Max nice priority": {0, 0}}, r.Rlimits)
	require.Len(t, r.Mounts, 4)
	assert.Equal(t, Mount{Target: "/", Root: "/", Device: "8:1", FSType: "ext4", Options: "rw,relatime", Super: "ro,errors=remount-ro", ReadOnly: true}, r.Mounts[0])
	assert.Equal(t, Mount{Target: "/mnt/a b", Root: `/dir with\blank`, Device: "0:5", FSType: "tmpfs", Options: "ro,nosuid", Super: "rw,size=10k", ReadOnly: true}, r.Mounts[1])
	top, found := r.MountAt("/proc")
	require.True(t, found)
	assert.Equal(t, "tmpfs", top.FSType)
	_, found = r.MountAt("/cut")
	assert.False(t, found)
	assert.Equal(t, []string{"lo", "eth0"}, r.Interfaces)
	assert.Equal(t, "boot", r.BootID)
	assert.Equal(t, "x86_64", r.Machine)
	assert.Equal(t, Stat{Mode: syscall.S_IFDIR | 0o755, Dev: 0x801, Ino: 99, Ctime: time.Unix(5, 6)}, r.Stats["/final"])
	assert.Equal(t, syscall.Errno(2), r.Witness)
	assert.Equal(t, Cgroup{}, r.Cgroup)
}

func TestParseReadyErrors(t *testing.T) {
	for name, payload := range map[string][]byte{
		"empty":              {},
		"no status":          appendField(nil, 1, []byte("build")),
		"no build":           appendField(nil, 2, []byte(statusText)),
		"a status of others": appendField(appendField(nil, 1, []byte("b")), 2, []byte("Name:\tx\n")),
		"a uid of letters":   appendField(appendField(nil, 1, []byte("b")), 2, []byte("Uid:\tx\nGid:\t1\n")),
		"status twice":       readyWith(appendField(nil, 2, []byte(statusText))),
		"a cut field":        readyWith([]byte{3, 0, 0, 0, 9, 0, 0, 0}),
		"a cut header":       readyWith([]byte{3, 0, 0}),
		"a short stat":       readyWith(appendField(nil, 9, make([]byte, 40))),
		"a path with zero":   readyWith(appendField(nil, 9, make([]byte, 41))),
		"a nameless cgroup":  readyWith(appendField(nil, 8, []byte("no zero"))),
		"a long witness":     readyWith(appendField(nil, 10, make([]byte, 8))),
		"tag 0":              readyWith(appendField(nil, 0, nil)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseReady(payload)
			require.ErrorIs(t, err, errFormat)
		})
	}
}

func TestCgroupLimits(t *testing.T) {
	for name, test := range map[string]struct {
		files [][]byte
		want  Cgroup
	}{
		"version 1": {[][]byte{
			cgroupFile("memory/memory.limit_in_bytes", "268435456\n"), cgroupFile("memory/memory.memsw.limit_in_bytes", "268435456\n"),
			cgroupFile("pids/pids.max", "65\n"), cgroupFile("cpu/cpu.cfs_quota_us", "150000\n"), cgroupFile("cpu/cpu.cfs_period_us", "100000\n"),
		}, Cgroup{Version: 1, MemoryBytes: 256 << 20, PIDs: 65, CPUs: 1.5}},
		"version 1 without limits": {[][]byte{
			cgroupFile("memory/memory.limit_in_bytes", "9223372036854771712\n"), cgroupFile("pids/pids.max", "max\n"),
			cgroupFile("memory/memory.memsw.limit_in_bytes", "9223372036854771712\n"),
			cgroupFile("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"), cgroupFile("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
		}, Cgroup{Version: 1, MemoryBytes: Unlimited, SwapBytes: Unlimited, PIDs: Unlimited, CPUs: -1}},
		"version 1 that counts no swap": {[][]byte{cgroupFile("memory/memory.limit_in_bytes", "268435456\n")},
			Cgroup{Version: 1, MemoryBytes: 256 << 20}},
		"version 2": {[][]byte{
			cgroupFile("memory.max", "268435456\n"), cgroupFile("memory.swap.max", "1024\n"), cgroupFile("pids.max", "65\n"), cgroupFile("cpu.max", "50000 100000\n"),
		}, Cgroup{Version: 2, MemoryBytes: 256 << 20, SwapBytes: 1024, PIDs: 65, CPUs: 0.5}},
		"version 2 without limits": {[][]byte{
			cgroupFile("memory.max", "max\n"), cgroupFile("memory.swap.max", "max\n"), cgroupFile("pids.max", "max\n"), cgroupFile("cpu.max", "max 100000\n"),
		}, Cgroup{Version: 2, MemoryBytes: Unlimited, SwapBytes: Unlimited, PIDs: Unlimited, CPUs: -1}},
		"nonsense": {[][]byte{cgroupFile("memory.max", "lots"), cgroupFile("cpu.max", "1 0")}, Cgroup{Version: 2}},
		"nothing":  {nil, Cgroup{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseReady(readyWith(test.files...))
			require.NoError(t, err)
			assert.Equal(t, test.want, r.Cgroup)
		})
	}
}

func FuzzReady(f *testing.F) {
	f.Add(readyWith())
	f.Add(readyWith(appendField(nil, 3, []byte(limitsText)), appendField(nil, 4, []byte(mountsText)), appendField(nil, 5, []byte(netText)),
		cgroupFile("memory.max", "1"), cgroupFile("cpu.max", "1 2"), appendField(nil, 9, append(make([]byte, 40), '/'))))
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := parseReady(payload)
		if err != nil {
			return
		}
		if r.Build == "" || len(r.Mounts) > strings.Count(string(payload), "\n") || r.Cgroup.MemoryBytes < -1 || r.Cgroup.PIDs < -1 {
			t.Fatalf("%+v", r)
		}
	})
}
