//go:build linux

package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
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

// ours is moby's profile for programs of the machine's own architecture, without the socket options
// that bind a socket to a device: with them a program could send to any address through the loopback
// device, which the kernel does not count as an attempt at the network. It also has no requests that
// change the attributes of a file: with them the owner of a file takes it out of the project whose
// quota the machine's administrator has set.
//
// Every start of a container compiles the profile, and the engine stores and reads it several times.
// The rules of two more architectures took most of that, a tenth of the processor time of a short run.
func ours(t *testing.T) *seccomp.Seccomp {
	t.Helper()
	profile := native()
	everywhere := profile.Syscalls[0]
	for _, name := range []string{"setsockopt", "ioctl"} {
		at := slices.Index(everywhere.Names, name)
		require.GreaterOrEqual(t, at, 0)
		everywhere.Names = slices.Delete(slices.Clone(everywhere.Names), at, at+1)
	}
	for _, rule := range profile.Syscalls {
		require.NotContains(t, rule.Names, "file_setattr")
	}
	for _, refused := range []struct {
		name string
		bits []bit
		all  []arguments
	}{{"setsockopt", optionBits(), refusedOptions()}, {"ioctl", requestBits(), refusedRequests()}} {
		for _, condition := range except(refused.all, refused.bits, condition{}) {
			profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
				Names: []string{refused.name}, Action: specs.ActAllow, Args: condition.args()}})
		}
	}
	return profile
}

// native is moby's profile without the system calls of other architectures, such as those of 32-bit
// programs: a program that makes one is killed. No image of such an architecture can be run anyway.
func native() *seccomp.Seccomp {
	profile := seccomp.DefaultProfile()
	for i := range profile.ArchMap {
		profile.ArchMap[i].SubArches = nil
	}
	return profile
}

// arguments are the second and the third argument of a system call, as the kernel reads them: it
// ignores the upper half of each.
type arguments [2]uint64

// bit is a bit of one of the arguments.
type bit struct{ arg, n uint }

func (a arguments) has(b bit) bool { return a[b.arg]>>b.n&1 == 1 }

// condition fixes bits of arguments.
type condition struct{ mask, value arguments }

func (c condition) and(b bit, set bool) condition {
	c.mask[b.arg] |= 1 << b.n
	if set {
		c.value[b.arg] |= 1 << b.n
	}
	return c
}

func (c condition) args() (all []specs.LinuxSeccompArg) {
	for i, mask := range c.mask {
		if mask != 0 {
			all = append(all, specs.LinuxSeccompArg{Index: uint(i) + 1, Op: specs.OpMaskedEqual, Value: mask, ValueTwo: c.value[i]})
		}
	}
	return all
}

// except returns conditions of which one at least holds for all arguments that differ in the given
// bits from each refused one, and none holds for a refused one. A filter that compared whole
// arguments could be evaded with an upper half.
func except(refused []arguments, bits []bit, given condition) (all []condition) {
	var some []bit // in which the refused differ
	for _, b := range bits {
		set := refused[0].has(b)
		if slices.ContainsFunc(refused, func(a arguments) bool { return a.has(b) != set }) {
			some = append(some, b)
			continue
		}
		all = append(all, given.and(b, !set))
	}
	if len(some) == 0 {
		return all
	}
	for _, set := range []bool{false, true} {
		rest := slices.DeleteFunc(slices.Clone(refused), func(a arguments) bool { return a.has(some[0]) != set })
		all = append(all, except(rest, some[1:], given.and(some[0], set))...)
	}
	return all
}

// bitsOf are the bits of an argument from one to another one.
func bitsOf(arg, from, to uint) (all []bit) {
	for n := from; n <= to; n++ {
		all = append(all, bit{arg, n})
	}
	return all
}

// refusedOptions are levels and options of sockets. There are less than 512 and 256 of them.
func refusedOptions() []arguments {
	return []arguments{{unix.SOL_SOCKET, unix.SO_BINDTODEVICE}, {unix.IPPROTO_IP, unix.IP_UNICAST_IF}, {unix.IPPROTO_IPV6, unix.IPV6_UNICAST_IF}}
}

func optionBits() []bit { return append(bitsOf(0, 0, 8), bitsOf(1, 0, 7)...) }

// setAttributes is FS_IOC_FSSETXATTR; linux/fs.h.
const setAttributes = 0x401c5820

func refusedRequests() []arguments { return []arguments{{setAttributes}, {unix.FS_IOC_SETFLAGS}} }

// requestBits are those of the type, the number and the direction of a request. The size of its
// argument is left out: it is another one for a 32-bit program.
func requestBits() []bit { return append(bitsOf(0, 0, 15), bitsOf(0, 30, 31)...) }

func TestExcept(t *testing.T) {
	for name, c := range map[string]struct {
		refused []arguments
		bits    []bit
	}{"options": {refusedOptions(), optionBits()}, "requests": {refusedRequests(), requestBits()}} {
		t.Run(name, func(t *testing.T) {
			conditions := except(c.refused, c.bits, condition{})
			permits := func(a arguments) bool {
				return slices.ContainsFunc(conditions, func(c condition) bool { return a[0]&c.mask[0] == c.value[0] && a[1]&c.mask[1] == c.value[1] })
			}
			refused := 0
			for n := range 1 << len(c.bits) {
				var a arguments
				for i, b := range c.bits {
					a[b.arg] |= uint64(n>>i&1) << b.n
				}
				if !permits(a) {
					refused++
				}
			}
			require.Len(t, c.refused, refused)
			for _, a := range c.refused {
				require.False(t, permits(a))
				require.False(t, permits(arguments{a[0] | 1<<32, a[1]}), "the kernel ignores the upper half")
				require.False(t, permits(arguments{a[0], a[1] | 1<<63}))
			}
		})
	}
}

func TestSeccompIsMobysCurrentProfile(t *testing.T) {
	monitor := native()
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
	require.Equal(t, seccompName, "moby/profiles "+version[1]+"+evalbox.3")
}
