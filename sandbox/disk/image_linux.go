package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CanLoop returns an [ErrImpossible] with the reason if this process cannot make and mount an
// [Image]. It changes nothing.
func CanLoop() error {
	if os.Geteuid() != 0 {
		return impossible("a file system in a file takes root")
	}
	if !hasSysAdmin() {
		return impossible("mounts take CAP_SYS_ADMIN")
	}
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return impossible("there are no loop devices (%v)", err)
	}
	_ = control.Close() // nothing was written
	if _, err := tool(mkfs); err != nil {
		return err
	}
	return nil
}

const loopControl = "/dev/loop-control"

// hasSysAdmin reports whether this process has CAP_SYS_ADMIN.
func hasSysAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[unix.CAP_SYS_ADMIN/32].Effective&(1<<(unix.CAP_SYS_ADMIN%32)) != 0
}

// Programs of e2fsprogs.
const (
	mkfs = "mkfs.ext4"
	fsck = "e2fsck"
)

// tool finds a program of e2fsprogs, also where only root's PATH has it.
func tool(name string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if path := filepath.Join(dir, name); filepath.IsAbs(path) {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", impossible("there is no %s; install e2fsprogs", name)
}

// Image is an ext4 file system in a sparse file, and the directory on which it is mounted. A
// program may write anywhere below the directory, but gets neither the file nor the root of the
// file system.
type Image struct {
	// File is the file, Dir the directory. Both lie in a directory of their owner alone.
	File, Dir string
}

const (
	// inodeBytes is the size of an inode, and inodeSpare how many more there are than blocks.
	inodeBytes, inodeSpare = 256, 128
	// smallImage is the largest image with the smallest blocks.
	smallImage = 32 << 20
	// reserve is a file in the root of the file system, which takes what is more than the
	// limit.
	reserve = "reserve"
)

// Create makes the file and the directory, and mounts the file system with exactly as much free
// space as the limit has. After an error nothing is left.
func (i Image) Create(ctx context.Context, limit Limit) (err error) {
	if err := CanLoop(); err != nil {
		return err
	}
	block := int64(4096)
	if limit.Bytes <= smallImage {
		block = 1024
	}
	inodes := min(limit.Bytes/block, limit.Entries) + inodeSpare
	file, err := os.OpenFile(i.File, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.Remove())
		}
	}()
	// Beside the content there are inodes, bitmaps and descriptors.
	size := limit.Bytes + inodes*inodeBytes + limit.Bytes/32 + 4<<20
	if err := errors.Join(file.Truncate(size), file.Close(), os.Mkdir(i.Dir, 0o700)); err != nil {
		return err
	}
	if err := run(ctx, mkfs, "-q", "-F", "-b", fmt.Sprint(block), "-I", fmt.Sprint(inodeBytes), "-N", fmt.Sprint(inodes), "-m", "0",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", i.File); err != nil {
		return err
	}
	if err := i.attach(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(i.Dir, "lost+found")); err != nil {
		return err
	}
	return i.fit(limit.Bytes)
}

// fit takes the free space beyond the limit away.
func (i Image) fit(limit int64) error {
	file, err := os.OpenFile(filepath.Join(i.Dir, reserve), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	var held int64
	for range 4 { // the file may take blocks for itself
		free, err := i.free()
		held += free - limit
		switch {
		case err != nil:
			return err
		case free == limit:
			return nil
		case held < 0:
			return fmt.Errorf("%s: %d bytes are free, and %d are needed", i.Dir, free, limit)
		case free > limit:
			err = unix.Fallocate(int(file.Fd()), 0, 0, held)
		default:
			err = file.Truncate(held)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", i.Dir, err)
		}
	}
	return nil
}

// free is the free space in bytes.
func (i Image) free() (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(i.Dir, &stat); err != nil {
		return 0, fmt.Errorf("%s: %w", i.Dir, err)
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

// mountOptions free the space of deleted files in the image, and keep the kernel from writing all
// inodes of a large one.
const mountOptions = "discard,noinit_itable"

// loopTries bounds the attempts to get a free loop device, which others want, too.
const loopTries = 100

// attach connects the file with a loop device and mounts it. The device is freed by itself when
// the last mount of it is gone, in any namespace.
func (i Image) attach() error {
	file, err := os.OpenFile(i.File, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return impossible("there are no loop devices (%v)", err)
	}
	defer control.Close()
	for range loopTries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return impossible("no loop device is free (%v)", err)
		}
		name := fmt.Sprintf("/dev/loop%d", number)
		device, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return impossible("%v", err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			err = unix.Mount(name, i.Dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, mountOptions)
			_ = device.Close() // frees a device that is not mounted
			if err != nil {
				return fmt.Errorf("mounting %s on %s: %w", i.File, i.Dir, err)
			}
			return nil
		}
		_ = device.Close() // is another's
		if !errors.Is(err, unix.EBUSY) {
			return impossible("%s cannot be a loop device of %s (%v)", name, i.File, err)
		}
	}
	return impossible("no loop device is free")
}

// Mounted reports whether something is mounted on the directory.
func (i Image) Mounted() (bool, error) {
	var dir, parent unix.Stat_t
	err := errors.Join(unix.Lstat(i.Dir, &dir), unix.Lstat(filepath.Dir(i.Dir), &parent))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && dir.Dev != parent.Dev, err
}

// Open mounts a file system that [Image.Create] has made, for a process that continues the work of
// another one. One that is still mounted stays as it is. Without its file, it is fs.ErrNotExist.
func (i Image) Open(ctx context.Context) error {
	if _, err := os.Lstat(i.File); err != nil {
		return err
	}
	if mounted, err := i.Mounted(); mounted || err != nil {
		return err
	}
	// It has no journal, and may not have been unmounted.
	var exit *exec.ExitError
	if err := run(ctx, fsck, "-fy", i.File); err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 2) {
		return err
	}
	if err := os.Mkdir(i.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return i.attach()
}

// Usage is what the file system holds, without what is its own.
func (i Image) Usage() (Usage, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(i.Dir, &stat); err != nil {
		return Usage{}, fmt.Errorf("%s: %w", i.Dir, err)
	}
	size, free := int64(stat.Blocks)*stat.Bsize, int64(stat.Bavail)*stat.Bsize
	return Usage{Bytes: size - free, Entries: int64(stat.Files - stat.Ffree), Full: full(free, size, int64(stat.Ffree))}, nil
}

// Unmount unmounts the file system and keeps its file. It may be called again.
func (i Image) Unmount() error {
	mounted, err := i.Mounted()
	if err == nil && mounted {
		err = unix.Unmount(i.Dir, unix.MNT_DETACH)
	}
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", i.Dir, err)
	}
	if err := os.Remove(i.Dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Remove unmounts the file system and deletes its file and the directory. It may be called again,
// and after a failed [Image.Create]. A container that still has a part of it mounted keeps it,
// and the space of its file, until it is gone.
func (i Image) Remove() error {
	err := i.Unmount()
	if err != nil {
		return err
	}
	if err = os.Remove(i.File); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// maxComplaint bounds what is kept of the messages of a tool, in bytes.
const maxComplaint = 500

// run runs a tool.
func run(ctx context.Context, name string, args ...string) error {
	path, err := tool(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		said := strings.TrimSpace(string(bytes.ToValidUTF8(out[:min(len(out), maxComplaint)], []byte("?"))))
		return fmt.Errorf("%s %s: %w: %.500q", name, args[len(args)-1], err, said)
	}
	return nil
}
