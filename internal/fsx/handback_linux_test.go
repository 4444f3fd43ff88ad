package fsx_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

// everybody is a POSIX ACL that gives everybody all rights: version 2, then owner, group, mask
// and others.
var everybody = func() []byte {
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, tag := range []uint16{0x01, 0x02, 0x04, 0x10, 0x20} {
		id := uint32(0xffffffff)
		if tag == 0x02 {
			id = treetest.OtherUser // a named user
		}
		acl = binary.LittleEndian.AppendUint16(acl, tag)
		acl = binary.LittleEndian.AppendUint16(acl, 7)
		acl = binary.LittleEndian.AppendUint32(acl, id)
	}
	return acl
}()

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// program is the user of the program in these tests.
func program() int {
	if treetest.IsRoot() {
		return 64646
	}
	return os.Geteuid()
}

// programs makes a tree the program's.
func programs(t *testing.T, dir string) {
	t.Helper()
	if !treetest.IsRoot() {
		return // it is
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, program(), program()))
	}))
}

// back hands a tree back to this user.
func back(t *testing.T, root *os.Root) (fsx.HandedBack, error) {
	t.Helper()
	o := fsx.Handback{From: program(), UID: -1, GID: -1, Most: 100_000}
	if treetest.IsRoot() {
		o.UID, o.GID = os.Geteuid(), os.Getegid()
	}
	return fsx.HandBack(root, o)
}

// attributes lists what a program may have set on a path.
func attributes(t *testing.T, path string) []string {
	t.Helper()
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, list)
	require.NoError(t, err)
	var names []string
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if name != "" && !strings.HasPrefix(name, "security.selinux") {
			names = append(names, name)
		}
	}
	return names
}

func modeOf(t *testing.T, path string) uint32 {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Lstat(path, &stat))
	return stat.Mode & 0o7777
}

// TestHandBackOfHostileTrees: whatever a program leaves, nothing of it serves others later, and
// all of it belongs to the owner.
func TestHandBackOfHostileTrees(t *testing.T) {
	set := func(path, name string, value []byte) error { return unix.Lsetxattr(path, name, value, 0) }
	for name, c := range map[string]struct {
		// make makes entry, a path.
		make func(entry string) error
		mode uint32
		// rootOnly needs rights that only a test of root has.
		rootOnly bool
	}{
		"a file for everybody": {func(e string) error { return touch(e, 0o666) }, 0o644, false},
		"a program with set-user-ID": {func(e string) error {
			return touch(e, 0o777|os.ModeSetuid|os.ModeSetgid|os.ModeSticky)
		}, 0o755, false},
		"a file without permissions": {func(e string) error { return touch(e, 0) }, 0o400, false},
		"a read-only file":           {func(e string) error { return touch(e, 0o444) }, 0o444, false},
		"a directory for everybody": {func(e string) error {
			return errors.Join(os.Mkdir(e, 0o700), os.Chmod(e, 0o777|os.ModeSticky|os.ModeSetgid))
		}, 0o755, false},
		"a read-only directory with content": {func(e string) error {
			return errors.Join(os.MkdirAll(filepath.Join(e, "sub"), 0o777), touch(filepath.Join(e, "sub/file"), 0o666), os.Chmod(filepath.Join(e, "sub"), 0o111), os.Chmod(e, 0o555))
		}, 0o755, false},
		"a closed directory with content": {func(e string) error {
			return errors.Join(os.MkdirAll(filepath.Join(e, "sub"), 0o777), touch(filepath.Join(e, "sub/file"), 0o666), os.Chmod(filepath.Join(e, "sub"), 0), os.Chmod(e, 0))
		}, 0o700, false},
		"an ACL of a file": {func(e string) error { return errors.Join(touch(e, 0o600), set(e, accessACL, everybody)) }, 0o755, false},
		"ACLs of a directory": {func(e string) error {
			return errors.Join(os.Mkdir(e, 0o700), set(e, accessACL, everybody), set(e, defaultACL, everybody))
		}, 0o755, false},
		"an ACL of a pipe": {func(e string) error { return errors.Join(unix.Mkfifo(e, 0o600), set(e, accessACL, everybody)) }, 0o755, false},
		"attributes of a file": {func(e string) error {
			return errors.Join(touch(e, 0o644), set(e, "user.x", []byte("y")), set(e, "user.overlay.whiteout", []byte("y")))
		}, 0o644, false},
		"attributes of a directory": {func(e string) error {
			return errors.Join(os.Mkdir(e, 0o755), set(e, "user.overlay.opaque", []byte("y")), set(e, "user.DOSATTRIB", []byte("y")))
		}, 0o755, false},
		"file capabilities": {func(e string) error {
			return errors.Join(touch(e, 0o755), set(e, "security.capability", []byte("\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00")))
		}, 0o755, true},
		"attributes of an overlay": {func(e string) error {
			return errors.Join(os.Mkdir(e, 0o755), set(e, "trusted.overlay.opaque", []byte("y")))
		}, 0o755, true},
		"a link to a file for everybody": {func(e string) error {
			return errors.Join(touch(e+".target", 0o600), os.Symlink(filepath.Base(e)+".target", e))
		}, 0o777, false},
		"a whiteout":         {func(e string) error { return unix.Mknod(e, unix.S_IFCHR|0o666, 0) }, 0o644, false},
		"a socket":           {func(e string) error { return unix.Mknod(e, unix.S_IFSOCK|0o777, 0) }, 0o755, false},
		"an odd name\n\x1b[": {func(e string) error { return touch(e, 0o666) }, 0o644, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rootOnly && !treetest.IsRoot() {
				return // nobody else can make it
			}
			dir := t.TempDir()
			require.NoError(t, os.Chmod(dir, 0o755))
			root := treetest.Root(t, dir)
			outside := t.TempDir()
			require.NoError(t, touch(filepath.Join(outside, "canary"), 0o666))
			require.NoError(t, os.Symlink(filepath.Join(outside, "canary"), filepath.Join(dir, "away")))
			entry := filepath.Join(dir, strings.TrimSpace(name[strings.LastIndex(name, " ")+1:]))
			before := unix.Umask(0)
			err := c.make(entry)
			unix.Umask(before)
			require.NoError(t, err)
			require.NoError(t, unix.Setxattr(dir, accessACL, everybody, 0))
			require.NoError(t, unix.Setxattr(dir, defaultACL, everybody, 0))
			require.NoError(t, unix.Setxattr(dir, "user.x", []byte("y"), 0))
			programs(t, dir)
			require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))

			handed, err := back(t, root)
			require.NoError(t, err)
			require.NotNil(t, handed.Identity)
			require.Zero(t, handed.Unlisted)
			require.Equal(t, *handed.Identity, identify(t, dir), "it is the identity of what is there now")
			require.Equal(t, c.mode, modeOf(t, entry))
			require.Equal(t, uint32(0o755), modeOf(t, dir), "so does the directory itself")
			require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
				require.Empty(t, attributes(t, path), path)
				require.Equal(t, []uint32{uint32(os.Geteuid())}, treetest.Owners(t, path), path)
				return err
			}))
			require.Equal(t, uint32(0o666), modeOf(t, filepath.Join(outside, "canary")), "nothing is followed")

			// What the owner makes later is the owner's alone.
			require.NoError(t, os.WriteFile(filepath.Join(dir, "later"), nil, 0o644))
			require.Equal(t, uint32(0o644), modeOf(t, filepath.Join(dir, "later")))
			require.Empty(t, attributes(t, filepath.Join(dir, "later")))

			if info, err := os.Lstat(entry); err == nil && info.Mode().IsRegular() {
				id, _ := fsx.IDOf(info)
				_, changed := handed.Modes[id]
				require.Equal(t, c.mode != 0o444 && name != "attributes of a file" && name != "file capabilities", changed)
			}
			require.NoError(t, fsx.Empty(root), "and it can be deleted")
		})
	}
}

// touch makes an empty file with exactly this mode.
func touch(path string, mode os.FileMode) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode))
}

// TestHandBackOfTheDirectory: it loses what its entries lose, also if the program has closed it.
func TestHandBackOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	root := treetest.Root(t, dir)
	require.NoError(t, unix.Setxattr(dir, defaultACL, everybody, 0))
	require.NoError(t, unix.Setxattr(dir, "user.label", []byte("theirs"), 0))
	programs(t, dir)
	require.NoError(t, os.Chmod(dir, 0o077|os.ModeSetgid))
	require.NoError(t, fsx.LetIn(dir))
	_, err := back(t, root)
	require.NoError(t, err)
	require.Equal(t, uint32(0o755), modeOf(t, dir))
	require.Empty(t, attributes(t, dir))

	for name, place := range map[string]func(path string) error{
		"a file": func(path string) error { return touch(path, 0) },
		"a link": func(path string) error { return os.Symlink(dir, path) },
	} {
		path := filepath.Join(t.TempDir(), "taken")
		require.NoError(t, place(path))
		require.ErrorIs(t, fsx.LetIn(path), fsx.ErrReplaced, name)
	}
}

// TestHandBackLeavesOthersAlone: what is not the program's keeps owner and permissions, and then
// nothing is taken for what the program left.
func TestHandBackLeavesOthersAlone(t *testing.T) {
	if !treetest.IsRoot() {
		return // one user cannot make files of others
	}
	for name, foreign := range map[string]func(dir string) error{
		"a file":                  func(dir string) error { return touch(filepath.Join(dir, "foreign"), 0o666) },
		"a file in its directory": func(dir string) error { return touch(filepath.Join(dir, "a/foreign"), 0o666) },
		"a file in place of its own": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "a/file")), touch(filepath.Join(dir, "a/file"), 0o666))
		},
		"a mount point": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "mnt"), 0o777), os.Chown(filepath.Join(dir, "mnt"), 64646, 64646),
				unix.Mount("evalbox-test", filepath.Join(dir, "mnt"), "tmpfs", 0, "size=1m"),
				touch(filepath.Join(dir, "mnt/file"), 0o666), os.Chown(filepath.Join(dir, "mnt/file"), 64646, 64646))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			treetest.Write(t, dir, map[string]string{"a/file": "x"})
			root := treetest.Root(t, dir)
			programs(t, dir)
			require.NoError(t, foreign(dir))
			t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "mnt"), unix.MNT_DETACH) }) // most have none
			handed, err := back(t, root)
			require.NoError(t, err)
			require.Nil(t, handed.Identity)
			for _, path := range []string{"foreign", "a/foreign", "mnt/file"} {
				if info, err := os.Lstat(filepath.Join(dir, path)); err == nil {
					require.Equal(t, os.FileMode(0o666), info.Mode(), "%s is as it was", path)
				}
			}
			require.Equal(t, []uint32{0, 0}, treetest.Owners(t, dir, filepath.Join(dir, "a")))
		})
	}
}

// TestHandBackOfSeveralNames: a file of several names is handed back once, and all its names
// belong to the tree.
func TestHandBackOfSeveralNames(t *testing.T) {
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{"a/file": "x", "b/": ""})
	require.NoError(t, os.Chmod(filepath.Join(dir, "a/file"), 0o666))
	require.NoError(t, os.Link(filepath.Join(dir, "a/file"), filepath.Join(dir, "b/file")))
	require.NoError(t, os.Link(filepath.Join(dir, "a/file"), filepath.Join(dir, "file")))
	root := treetest.Root(t, dir)
	programs(t, dir)
	handed, err := back(t, root)
	require.NoError(t, err)
	require.NotNil(t, handed.Identity)
	require.Equal(t, identify(t, dir), *handed.Identity)
	require.Len(t, handed.Modes, 1)
	require.Equal(t, uint32(0o644), modeOf(t, filepath.Join(dir, "file")))
}

// TestNamesElsewhere: a file with a name outside of the tree was linked by a user of this
// machine. Where the program runs as that user, it may be the user's own.
func TestNamesElsewhere(t *testing.T) {
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"mine": "x", "final/theirs": "x"})
	require.NoError(t, os.Chmod(filepath.Join(base, "mine"), 0o664))
	require.NoError(t, os.Chmod(filepath.Join(base, "final/theirs"), 0o664))
	require.NoError(t, os.Link(filepath.Join(base, "mine"), filepath.Join(base, "final/mine")))
	root := treetest.Root(t, filepath.Join(base, "final"))
	handed, err := fsx.HandBack(root, fsx.Handback{From: os.Geteuid(), UID: -1, GID: -1, Most: 10})
	require.NoError(t, err)
	require.Nil(t, handed.Identity)
	require.Equal(t, uint32(0o664), modeOf(t, filepath.Join(base, "mine")), "is as it was")
	require.Equal(t, uint32(0o644), modeOf(t, filepath.Join(base, "final/theirs")))
}

// TestOwnFilesWithNamesElsewhere: where root copied what the program left, another user of this
// machine may have linked a file of root's there. It is not given away.
func TestOwnFilesWithNamesElsewhere(t *testing.T) {
	to := os.Geteuid()
	if treetest.IsRoot() { // nobody else gives files away
		to = treetest.OtherUser
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "final")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(parent, "secret"), nil, 0o600))
	require.NoError(t, os.Link(filepath.Join(parent, "secret"), filepath.Join(dir, "linked")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "copied"), nil, 0o600))
	require.NoError(t, os.Link(filepath.Join(dir, "copied"), filepath.Join(dir, "twice")))
	handed, err := fsx.HandBack(treetest.Root(t, dir), fsx.Handback{From: os.Geteuid(), UID: to, GID: -1, Most: 100})
	require.NoError(t, err)
	require.Nil(t, handed.Identity)
	for name, owner := range map[string]int{"linked": os.Geteuid(), "copied": to, "twice": to} {
		info, err := os.Lstat(filepath.Join(dir, name))
		require.NoError(t, err)
		uid, _, _ := fsx.OwnerOf(info)
		require.Equal(t, owner, uid, name)
	}
}

func TestHandBackOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { require.NoError(t, fsx.Remove(dir)) })
	treetest.Nest(t, dir, 5000)
	root := treetest.Root(t, dir)
	treetest.WithFewDescriptors(t, func() {
		handed, err := fsx.HandBack(root, fsx.Handback{From: os.Geteuid(), UID: -1, GID: -1, Most: 100_000})
		require.NoError(t, err)
		require.Equal(t, 5150, handed.Identity.Entries)
	})
	if treetest.IsRoot() {
		_, err := fsx.HandBack(root, fsx.Handback{From: os.Geteuid(), UID: treetest.OtherUser, GID: treetest.OtherUser, Most: 10})
		require.NoError(t, err)
		info, err := root.Lstat(strings.Repeat("deep/", 4999) + "deep")
		require.NoError(t, err)
		uid, _, _ := fsx.OwnerOf(info)
		require.Equal(t, treetest.OtherUser, uid)
	}
}

// TestHandBackThatFails: as long as anything is not handed back, the directory itself stays the
// program's, so that it can be repeated. The errors are bounded.
func TestHandBackThatFails(t *testing.T) {
	if !treetest.IsRoot() {
		return // needs a mount
	}
	dir := filepath.Join(t.TempDir(), "final")
	treetest.MountTmpfs(t, dir, "size=1m")
	for i := range 50 {
		treetest.Write(t, dir, map[string]string{fmt.Sprint(i): "x"})
	}
	root := treetest.Root(t, dir)
	programs(t, dir)
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	handed, err := back(t, root)
	require.ErrorIs(t, err, unix.EROFS)
	require.Nil(t, handed.Identity)
	require.Less(t, strings.Count(err.Error(), "\n"), 12)
	require.Equal(t, []uint32{64646}, treetest.Owners(t, dir))
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT, ""))
	handed, err = back(t, root)
	require.NoError(t, err)
	require.Equal(t, 50, handed.Identity.Entries)
	require.Equal(t, []uint32{0, 0}, treetest.Owners(t, dir, filepath.Join(dir, "7")))
}

// TestHandBackThatFailsForOneFile: the others are handed back, and the directory is not.
func TestHandBackThatFailsForOneFile(t *testing.T) {
	if !treetest.IsRoot() {
		return // nobody else can make a file that cannot be changed
	}
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{"a": "x", "fixed": "x", "z": "x"})
	root := treetest.Root(t, dir)
	programs(t, dir)
	fixed, err := os.Open(filepath.Join(dir, "fixed"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fixed.Close()) })
	set := func(flags int) {
		t.Helper()
		require.NoError(t, unix.IoctlSetPointerInt(int(fixed.Fd()), unix.FS_IOC_SETFLAGS, flags))
	}
	set(unix.STATX_ATTR_IMMUTABLE) // the same bit
	t.Cleanup(func() { set(0) })
	handed, err := back(t, root)
	require.ErrorIs(t, err, unix.EPERM)
	require.Nil(t, handed.Identity)
	require.Equal(t, []uint32{64646, 0, 64646, 0},
		treetest.Owners(t, dir, filepath.Join(dir, "a"), filepath.Join(dir, "fixed"), filepath.Join(dir, "z")))
	set(0)
	handed, err = back(t, root)
	require.NoError(t, err)
	require.Nil(t, handed.Identity, "what was handed back before is not known to be the program's")
	require.Equal(t, []uint32{0, 0}, treetest.Owners(t, dir, filepath.Join(dir, "fixed")))
}

// TestHandBackWhileOthersWrite: a process of another user that creates, renames and links in the
// tree meanwhile loses nothing, and leads nothing elsewhere.
func TestHandBackWhileOthersWrite(t *testing.T) {
	if !treetest.IsRoot() {
		return // one user cannot make files of others
	}
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"outside/canary": "x"})
	require.NoError(t, os.Chmod(filepath.Join(base, "outside/canary"), 0o666))
	dir := filepath.Join(base, "final")
	for i := range 300 {
		treetest.Write(t, dir, map[string]string{fmt.Sprintf("d%d/file", i): "x"})
	}
	root := treetest.Root(t, dir)
	programs(t, dir)
	stop, stopped, begun := make(chan struct{}), make(chan int), make(chan struct{})
	go func() {
		made := 0
		defer func() { stopped <- made }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			at := filepath.Join(dir, fmt.Sprintf("d%d", i%300))
			own := filepath.Join(at, fmt.Sprintf("own-%d", made))
			if os.WriteFile(own, []byte("mine"), 0o666) == nil && os.Chmod(own, 0o666) == nil {
				if made++; made == 1 {
					close(begun)
				}
			}
			// Whichever is possible now.
			_ = os.Rename(filepath.Join(at, "file"), filepath.Join(at, "file2"))
			_ = os.Symlink(filepath.Join(base, "outside/canary"), filepath.Join(at, "file"))
			_ = os.Rename(at, filepath.Join(base, "moved"))
			_ = os.Symlink(filepath.Join(base, "outside"), at)
			_ = os.Remove(at)
			_ = os.Rename(filepath.Join(base, "moved"), at)
		}
	}()
	<-begun
	handed, _ := back(t, root)
	close(stop)
	made := <-stopped
	require.Equal(t, uint32(0o666), modeOf(t, filepath.Join(base, "outside/canary")))
	require.NotZero(t, made)
	found := 0
	require.NoError(t, filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "own-") {
			found++
			require.Equal(t, uint32(0o666), modeOf(t, path), "was not touched")
		}
		return err
	}))
	require.Equal(t, made, found, "nothing is lost")
	if handed.Identity != nil {
		require.NotEqual(t, *handed.Identity, identify(t, dir), "what was added since is not the program's")
	}
}

func TestIdentityOfWhatCannotBeRead(t *testing.T) {
	dir := treetest.OtherUsersDir(t)
	treetest.Write(t, dir, map[string]string{"shut/file": ""})
	require.NoError(t, os.Chmod(filepath.Join(dir, "shut"), 0))
	t.Cleanup(func() { require.NoError(t, os.Chmod(filepath.Join(dir, "shut"), 0o755)) })
	root := treetest.Root(t, dir)
	treetest.AsOtherUser(t, func() {
		if _, err := fsx.Identify(context.Background(), root, 10); err == nil {
			t.Error("a part of a tree has no identity")
		}
	})
}
