//go:build linux

package sandbox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// leaver leaves everything that could serve it, or another user, after its end.
const leaver = `
import os, socket, stat, struct
acl = struct.pack('<I', 2)
for tag, id in (1, -1), (2, 12345), (4, -1), (16, -1), (32, -1):
    acl += struct.pack('<HHi', tag, 7, id)
os.umask(0)
def each(call, *args):
    try: call(*args)
    except OSError as e: print(args[0], e)
f = '/work/final/'
open(f + 'open', 'w').close(); os.chmod(f + 'open', 0o666)
open(f + 'suid', 'w').close(); os.chmod(f + 'suid', 0o6777)
open(f + 'closed', 'w').write('kept'); os.chmod(f + 'closed', 0)
os.mkdir(f + 'dir', 0o777); open(f + 'dir/file', 'w').close(); os.chmod(f + 'dir', 0o1777)
os.mkdir(f + 'shut'); open(f + 'shut/file', 'w').write('kept too'); os.chmod(f + 'shut', 0)
os.mkdir(f + 'read-only'); open(f + 'read-only/file', 'w').close(); os.chmod(f + 'read-only', 0o555)
os.mkfifo(f + 'pipe', 0o666)
os.link(f + 'open', f + 'dir/name')
os.symlink('/etc/passwd', f + 'link')
each(os.mknod, f + 'gone', stat.S_IFCHR | 0o666, os.makedev(0, 0))
open(f + '.wh.open', 'w').close()
s = socket.socket(socket.AF_UNIX); s.bind(f + 'socket')
for name in 'open', 'dir', 'dir/file', 'pipe', '.':
    each(os.setxattr, f + name, 'system.posix_acl_access', acl)
for name in 'dir', '.':
    each(os.setxattr, f + name, 'system.posix_acl_default', acl)
for name in 'open', 'dir', 'dir/file', '.':
    each(os.setxattr, f + name, 'user.overlay.opaque', b'y')
each(os.setxattr, f + 'open', 'security.capability', b'\1\0\0\2' + b'\377' * 16)
each(os.setxattr, f + 'open', 'trusted.overlay.whiteout', b'y')
os.chmod('/work/final', 0o700)
`

// TestEngineNothingServesOthersAfterTheEnd: what a program leaves belongs to the owner of
// ./final alone, and nothing of the program acts on what the owner makes there later.
func TestEngineNothingServesOthersAfterTheEnd(t *testing.T) {
	t.Parallel()
	final := filepath.Join(t.TempDir(), "final")
	require.NoError(t, os.Mkdir(final, 0o755))
	r := newRunner(t)
	req := python(t, leaver)
	req.Final = final
	res := run(t, r, req)
	require.Zero(t, res.ExitCode, res.Stderr)
	modes := map[string]string{}
	for _, out := range res.Outputs {
		modes[out.Path] = out.Mode
	}
	require.Equal(t, map[string]string{
		"open": "0777", "suid": "6777", "closed": "0000", "dir/file": "0777", "dir/name": "0777", "shut/file": "0666", "read-only/file": "0666",
	}, modes, "as the program left them")
	reasons := map[string]string{}
	for _, skipped := range res.OutputsSkipped {
		reasons[skipped.Path] = skipped.Kind + ": " + skipped.Reason
	}
	want := map[string]string{
		".wh.open": "file: " + collect.Whiteout, "link": "symlink: " + collect.NotRegular,
		"pipe": "fifo: " + collect.NotRegular, "socket": "socket: " + collect.NotRegular,
	}
	if !strings.Contains(res.Stdout, "gone") {
		want["gone"] = "device: " + collect.Whiteout // the kernel is new enough
	}
	require.Equal(t, want, reasons)

	list := make([]byte, 64<<10)
	require.NoError(t, filepath.WalkDir(final, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.Equal(t, []uint32{uint32(os.Getuid())}, treetest.Owners(t, path), path)
		n, err := unix.Llistxattr(path, list)
		require.NoError(t, err)
		for name := range strings.SplitSeq(string(list[:n]), "\x00") {
			require.True(t, name == "" || name == "security.selinux", "%s has %s", path, name)
		}
		if info, err := entry.Info(); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			require.Zero(t, info.Mode()&(0o022|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky), "%s: %v", path, info.Mode())
		}
		return nil
	}))
	info, err := os.Stat(final)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
	require.NoError(t, os.WriteFile(filepath.Join(final, "later"), nil, 0o644))
	info, err = os.Stat(filepath.Join(final, "later"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o644), info.Mode())
	require.NoError(t, os.Remove(filepath.Join(final, "later")))

	// The removal of that file changed nothing else, so the next run may delete the rest.
	require.Equal(t, res.ID, r.LeftBy(t.Context(), final))
	req = python(t, "import os; print(os.listdir('/work/final'))")
	req.Final = final
	res = run(t, r, req)
	require.Equal(t, "[]\n", res.Stdout)
	require.NotContains(t, strings.Join(res.Warnings, "\n"), "before")
}
