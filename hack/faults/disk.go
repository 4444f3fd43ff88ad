//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// smallDisk is the size of a small file system: more than a run wants to have free.
const smallDisk = 160 << 20

// mountSmall mounts a new small file system, in a file beside the directory, there.
func mountSmall(dir string) (device string, err error) {
	file := dir + ".img"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(file, smallDisk); err != nil {
		return "", err
	}
	// Blocks of 4 KiB: what is written to the first one of a file later needs no other.
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", file).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("losetup: %w: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	if err := mountExt4(device, dir); err != nil {
		return "", errors.Join(err, exec.Command("losetup", "-d", device).Run())
	}
	return device, nil
}

func mountExt4(device, dir string) error {
	return unix.Mount(device, dir, "ext4", 0, "errors=remount-ro")
}

func unmountSmall(dir, device string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	return errors.Join(err, exec.Command("losetup", "-d", device).Run())
}

// fill leaves no free block on the small file system.
func fill(_ context.Context, c *cell) error {
	file, err := os.Create(c.filler())
	if err != nil {
		return err
	}
	defer file.Close()
	for at, piece := int64(0), int64(smallDisk); piece >= 4096; {
		switch err := unix.Fallocate(int(file.Fd()), 0, at, piece); {
		case err == nil:
			at += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		default:
			return err
		}
	}
	return nil
}

// readOnly makes the small file system refuse every change, as after an error of its disk.
func readOnly(_ context.Context, c *cell) error {
	if unix.Mount("", c.disk(), "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil {
		return nil
	}
	// It is being written to. The kernel makes it read-only behind an error of the file system, and forgets
	// what is not on the disk yet.
	dir, err := os.Open(c.disk())
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
		return err
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(c.device), "trigger_fs_error")
	return os.WriteFile(trigger, []byte("evalbox"), 0)
}

// releaseDisk gives the space back, or the right to write: what cleans up comes when the
// machine works again.
func (c *cell) releaseDisk(ctx context.Context) error {
	if err := os.Remove(c.filler()); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EROFS) {
		return err
	}
	if c.device == "" {
		return nil
	}
	writable := func() bool { return os.WriteFile(c.filler(), nil, 0o600) == nil }
	if unix.Mount("", c.disk(), "", unix.MS_REMOUNT, "") != nil || !writable() {
		// The kernel has given it up until nobody has it mounted; containers that end may hold it a moment longer.
		if err := unix.Unmount(c.disk(), unix.MNT_DETACH); err != nil {
			return err
		}
		err := until(ctx, deathPatience, "the small file system", func() bool {
			if mountExt4(c.device, c.disk()) != nil {
				return false
			}
			if writable() {
				return true
			}
			_ = unix.Unmount(c.disk(), unix.MNT_DETACH) // the next attempt shows an error
			return false
		})
		if err != nil {
			return err
		}
	}
	if err := os.Remove(c.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// disk is where the small file system of the cell is, or that of its engine.
func (c *cell) disk() string {
	if c.fault.disk == "engine" {
		return c.lab.engine.path("disk")
	}
	return filepath.Join(c.dir, "disk")
}

func (c *cell) filler() string { return filepath.Join(c.disk(), "filler") }
