//go:build linux

package sandbox_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestEngineFileLargerThanTheDiskLimit: one call can make a file of any size before a
// measurement sees it, so the kernel refuses it. A program that ignores SIGXFSZ, as Python does,
// gets EFBIG, and its own end stands.
func TestEngineFileLargerThanTheDiskLimit(t *testing.T) {
	t.Parallel()
	const limit = 8 * policy.MiB
	own := []spec.Ulimit{{Name: "fsize", Soft: int64(policy.MiB), Hard: -1}}
	for name, test := range map[string]struct {
		program string
		command []string
		ulimits []spec.Ulimit
		status  result.Status
		code    int
		said    string
		// cut says that a warning names the file final/x.
		cut bool
	}{
		"written":           {command: []string{"dd", "if=/dev/zero", "of=final/x", "bs=1M", "count=9"}, status: result.StatusDiskLimit, code: 153, cut: true},
		"allocated":         {command: []string{"fallocate", "-l", "1800M", "final/x"}, status: result.StatusDiskLimit, code: 153},
		"sparse":            {command: []string{"truncate", "-s", "1T", "final/x"}, status: result.StatusDiskLimit, code: 153},
		"in memory":         {command: []string{"truncate", "-s", "9M", "/tmp/x"}, status: result.StatusDiskLimit, code: 153},
		"as large as it is": {command: []string{"dd", "if=/dev/zero", "of=final/x", "bs=1M", "count=8"}, status: result.StatusExited, cut: true},
		"by a child": {command: []string{"sh", "-c", "truncate -s 9M final/x; echo $?; exit 3"}, status: result.StatusExited, code: 3,
			said: "153\n"},
		"python": {program: "open('final/x', 'wb').write(bytes(9 << 20))", status: result.StatusExited, code: 1,
			said: "OSError: [Errno 27] File too large", cut: true},
		"python, allocated": {program: "import os\nos.posix_fallocate(os.open('final/x', os.O_CREAT | os.O_RDWR), 0, 1800 << 20)", status: result.StatusExited,
			code: 1, said: "OSError: [Errno 27] File too large"},
		"python, handled": {program: "try: open('final/x', 'w').truncate(1 << 40)\nexcept OSError as e: print(e.errno)", status: result.StatusExited, said: "27\n"},
		"raised again":    {program: "import resource as r\ntry: r.setrlimit(r.RLIMIT_FSIZE, (1 << 40, 1 << 40))\nexcept ValueError as e: print(e)", status: result.StatusExited, said: "not allowed"},
		"its own limit":   {command: []string{"truncate", "-s", "2M", "final/x"}, ulimits: own, status: result.StatusSignaled, code: 153},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways(t, func(t *testing.T, way string) {
				req := sandbox.Request{Image: "debian", Command: test.command, Ulimits: test.ulimits}
				if test.program != "" {
					req = python(t, test.program)
				}
				req.Transfer, req.Limits.Disk = way, limit
				res := run(t, newRunner(t), req)
				require.Equal(t, test.status, res.Status, res.Explanation)
				require.Equal(t, test.code, res.ExitCode, res.Stderr)
				require.Contains(t, res.Stdout+res.Stderr, test.said)
				require.Equal(t, test.cut, strings.Contains(strings.Join(res.Warnings, "\n"), "final/x is exactly as large as a file may be"), res.Warnings)
				for _, out := range res.Outputs {
					require.LessOrEqual(t, out.SizeBytes, int64(limit))
				}
				require.Equal(t, result.DiskByFileSize, res.Enforced.Disk)
			})
		})
	}
}

// hardDisk is a runner whose policy demands a disk limit that the kernel enforces.
func hardDisk(t *testing.T) *sandbox.Runner {
	t.Helper()
	return newRunner(t, sandbox.WithPolicy(policy.Policy{HardDisk: true}))
}

// TestEngineHardDiskLimit: nothing that a program does exceeds the limit, it learns of it, and its
// neighbor has all of its own.
func TestEngineHardDiskLimit(t *testing.T) {
	t.Parallel()
	const limit = 16 * policy.MiB
	for name, test := range map[string]struct {
		program string
		command []string
		status  result.Status
		code    int
		said    string
	}{
		"allocated in many files": {command: []string{"sh", "-c", "for i in 1 2 3 4; do fallocate -l 10M final/$i || exit 7; done"}, status: result.StatusDiskLimit, code: 7,
			said: "No space left on device"},
		// Nothing of it is left at the end, so the disk monitor has to see it before.
		"deleted and open": {program: "import os, time\ntry:\n    for i in range(9):\n" +
			"        f = open(f'final/{i}', 'wb', 0); os.remove(f.name); f.write(bytes(3 << 20)); globals()[f'f{i}'] = f\n" +
			"except OSError:\n    time.sleep(4)\n    raise\n",
			status: result.StatusDiskLimit, code: 1, said: "OSError: [Errno 28] No space left on device"},
		"many small files": {program: "for i in range(30000): open(f'final/{i}', 'w').write('x')", status: result.StatusDiskLimit, code: 1, said: "No space left on device"},
		"many directories": {program: "import os\nfor i in range(30000): os.mkdir(f'final/{i}')", status: result.StatusDiskLimit, code: 1, said: "No space left on device"},
		"handled":          {program: "try: [open(f'final/{i}', 'wb', 0).write(bytes(4 << 20)) for i in range(9)]\nexcept OSError as e: print(e.errno)", status: result.StatusExited, said: "28\n"},
		"sparse":           {program: "[open(f'final/{i}', 'wb').truncate(16 << 20) for i in range(9)]", status: result.StatusExited},
		"less than that":   {program: "open('final/x', 'wb').write(bytes(15 << 20)); print('done')", status: result.StatusExited, said: "done"},
		"through a map":    {program: "import mmap\nf = open('final/0', 'wb+'); open('final/1', 'wb').write(bytes(15 << 20)); f.truncate(16 << 20); m = mmap.mmap(f.fileno(), 16 << 20)\nfor i in range(0, 16 << 20, 4096): m[i] = 1", status: result.StatusDiskLimit, code: 135},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := sandbox.Request{Image: "debian", Command: test.command}
			if test.program != "" {
				req = python(t, test.program)
			}
			req.Limits.Disk, req.Limits.OutputFiles = limit, 100_000
			req.Final = filepath.Join(t.TempDir(), "out")
			res := run(t, hardDisk(t), req)
			require.Equal(t, result.DiskByLoop, res.Enforced.Disk)
			require.Contains(t, res.Stdout+res.Stderr, test.said)
			require.Equal(t, test.status, res.Status, "%s\n%s", res.Explanation, res.Stderr)
			require.Equal(t, test.code, res.ExitCode, res.Stderr)
			for _, w := range res.Warnings {
				require.NotContains(t, w, "incomplete:")
			}
		})
	}
}

// TestEngineFileAttributesCannotBeChanged: the owner of a file could take it out of a quota of the
// machine. Other requests of ioctl work, also those that a C library extends the sign of.
func TestEngineFileAttributesCannotBeChanged(t *testing.T) {
	t.Parallel()
	res := run(t, newRunner(t), python(t, `
import ctypes, errno, fcntl, os, termios
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("final/x", os.O_CREAT | os.O_RDWR)
def ask(request):
    buffer = ctypes.create_string_buffer(256)
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long({"x86_64": 16, "aarch64": 29}[os.uname().machine]), fd, ctypes.c_ulong(request), buffer)
    return errno.errorcode.get(ctypes.get_errno(), "ok")
for request in 0x401c5820, 0x40086602, 0x40046602, 0xffffffff401c5820, 0x1_40086602: assert ask(request) == "EPERM", hex(request)
for request in 0x401c5821, 0x401c5824, 0x40086603, 0x5401, 0x5413, 0x541B, 0x80045430, 0xffffffff80045430, 0xffffffff: assert ask(request) != "EPERM", hex(request)
assert ask(0x80086601) in ("ok", "ENOTTY", "EOPNOTSUPP"), ask(0x80086601)
print("held")
`))
	require.Equal(t, "held\n", res.Stdout, res.Stderr)
}
