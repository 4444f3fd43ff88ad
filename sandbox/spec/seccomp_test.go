//go:build linux

package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the profiles anew")

// ours is moby's profile without the socket options that bind a socket to a device: with them
// a program could send to any address through the loopback device, which the kernel does not
// count as an attempt at the network. It also has no requests that change the attributes of a
// file: with them the owner of a file takes it out of the project that bounds it.
func ours(t *testing.T) *seccomp.Seccomp {
	t.Helper()
	profile := seccomp.DefaultProfile()
	everywhere := profile.Syscalls[0]
	for _, name := range []string{"setsockopt", "ioctl"} {
		at := slices.Index(everywhere.Names, name)
		require.GreaterOrEqual(t, at, 0)
		everywhere.Names = slices.Delete(slices.Clone(everywhere.Names), at, at+1)
	}
	for _, rule := range profile.Syscalls {
		require.NotContains(t, rule.Names, "file_setattr")
	}
	refused := map[uint64]uint64{unix.SOL_SOCKET: unix.SO_BINDTODEVICE, unix.IPPROTO_IP: unix.IP_UNICAST_IF, unix.IPPROTO_IPV6: unix.IPV6_UNICAST_IF}
	name := "setsockopt"
	allow := func(args ...*specs.LinuxSeccompArg) {
		profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
			Names: []string{name}, Action: specs.ActAllow, Args: deref(args)}})
	}
	for _, b := range blocks(0, 512, slices.Collect(maps.Keys(refused))) {
		allow(b.is(1))
	}
	for _, level := range slices.Sorted(maps.Keys(refused)) {
		for _, b := range blocks(0, 256, []uint64{refused[level]}) {
			allow(block{level, 1}.is(1), b.is(2))
		}
	}
	name = "ioctl"
	for _, b := range blocks(0, 1<<32, []uint64{setAttributes, unix.FS_IOC_SETFLAGS, setFlags32}) {
		allow(b.lowIs(1))
	}
	return profile
}

func deref(args []*specs.LinuxSeccompArg) (all []specs.LinuxSeccompArg) {
	for _, arg := range args {
		all = append(all, *arg)
	}
	return all
}

// block is the numbers from first on, as many as size, a power of two that divides first.
type block struct{ first, size uint64 }

// is matches an argument, all 64 bits of it: the kernel ignores the upper half of an int, and
// a filter that ignored it as well could be evaded.
func (b block) is(index uint) *specs.LinuxSeccompArg {
	return &specs.LinuxSeccompArg{Index: index, Op: specs.OpMaskedEqual, Value: ^(b.size - 1), ValueTwo: b.first}
}

// FS_IOC_FSSETXATTR, and FS_IOC32_SETFLAGS of a 32-bit program; linux/fs.h.
const (
	setAttributes = 0x401c5820
	setFlags32    = 0x40046602
)

// lowIs matches the lower half of an argument. The blocks have all but some values, so that these
// match with no upper half; a C library may extend the sign of all others.
func (b block) lowIs(index uint) *specs.LinuxSeccompArg {
	return &specs.LinuxSeccompArg{Index: index, Op: specs.OpMaskedEqual, Value: uint64(^uint32(b.size - 1)), ValueTwo: b.first}
}

// blocks are the numbers of a block without some of them.
func blocks(first, size uint64, without []uint64) []block {
	switch {
	case !slices.ContainsFunc(without, func(n uint64) bool { return first <= n && n < first+size }):
		return []block{{first, size}}
	case size == 1:
		return nil
	}
	return append(blocks(first, size/2, without), blocks(first+size/2, size/2, without)...)
}

func TestBlocks(t *testing.T) {
	for _, without := range [][]uint64{nil, {0}, {255}, {25}, {0, 1, 41}} {
		var all []uint64
		for _, b := range blocks(0, 256, without) {
			require.Zero(t, b.first%b.size)
			for n := range b.size {
				all = append(all, b.first+n)
			}
		}
		require.Len(t, all, 256-len(without))
		require.True(t, slices.IsSorted(all))
		for _, n := range without {
			require.NotContains(t, all, n)
		}
	}
}

func TestSeccompIsMobysCurrentProfile(t *testing.T) {
	monitor := seccomp.DefaultProfile()
	monitor.Syscalls = slices.DeleteFunc(monitor.Syscalls, func(rule *seccomp.Syscall) bool {
		return rule.Includes != nil && slices.Contains(rule.Includes.Caps, "CAP_DAC_READ_SEARCH")
	})
	require.Len(t, monitor.Syscalls, len(seccomp.DefaultProfile().Syscalls)-1)
	require.Contains(t, SeccompProfile, `"open_by_handle_at"`)
	require.NotContains(t, SeccompMonitor, "open_by_handle_at")
	for name, c := range map[string]struct {
		profile *seccomp.Seccomp
		text    string
	}{"seccomp.json": {ours(t), SeccompProfile}, "seccomp_monitor.json": {monitor, SeccompMonitor}} {
		want, err := json.Marshal(c.profile)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		} else {
			require.True(t, c.text == string(want), "%s is not the module's profile with our changes; run: go generate ./sandbox/spec", name)
		}
	}

	sum := sha256.Sum256([]byte(SeccompProfile))
	require.Equal(t, seccompHash, hex.EncodeToString(sum[:]))

	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`github\.com/moby/profiles/seccomp (v\S+)`).FindStringSubmatch(string(mod))
	require.Len(t, version, 2)
	require.Equal(t, seccompName, "moby/profiles "+version[1]+"+evalbox.2")
}
