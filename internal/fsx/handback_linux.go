package fsx

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func letIn(path string) error {
	// This takes no rights on the directory itself.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return openError(path, ErrReplaced) // by a file or a link, or a directory above it was
	}
	if err != nil {
		return openError(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return openError(path, err)
	}
	if stat.Mode&0o700 == 0o700 {
		return nil
	}
	if err := unix.Chmod(procPath(fd), stat.Mode&0o7777|0o700); err != nil {
		return openError(path, err)
	}
	return nil
}

// entryFile is an entry that was opened without following or reading it.
type entryFile struct {
	fd int
	// path names what was opened, for calls that take no such descriptor.
	path string
}

func openEntry(v Visited) (entryFile, unix.Stat_t, error) {
	var stat unix.Stat_t
	fd, err := unix.Openat(v.Dir, v.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return entryFile{}, stat, err
	}
	entry := entryFile{fd, procPath(fd)}
	if err := unix.Fstat(fd, &stat); err != nil {
		entry.close()
		return entryFile{}, stat, err
	}
	return entry, stat, nil
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func (e entryFile) close() { _ = unix.Close(e.fd) } // nothing was written

// handBack gives the entry to a user, -1 for nobody, without what would serve others. stat has
// its state before and after. An [errUnlisted] means that the rest was done.
func (e entryFile) handBack(stat *unix.Stat_t, uid, gid int) (err error) {
	unlisted := false
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK { // a link has no permissions, and no attributes of a user
		err := e.strip()
		unlisted = errors.Is(err, errUnlisted)
		if err != nil && !unlisted {
			return stepError("removing its attributes", err)
		}
		if mode := safeMode(stat.Mode); mode != stat.Mode {
			if err := unix.Chmod(e.path, mode&0o7777); err != nil {
				return stepError("restricting it", err)
			}
		}
	}
	if uid >= 0 {
		if err := unix.Fchownat(e.fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return stepError("changing its owner", err)
		}
	}
	err = unix.Fstat(e.fd, stat)
	if err == nil && unlisted {
		err = errUnlisted
	}
	return err
}

// strip removes the attributes that a program can set. If they cannot be listed, it removes
// those that give rights.
func (e entryFile) strip() error {
	names, err := listAttributes(e.path)
	unlisted := errors.Is(err, unix.E2BIG)
	if unlisted {
		names, err = grants, nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeAttribute(e.path, name); err != nil {
			return err
		}
	}
	if unlisted {
		return errUnlisted
	}
	return nil
}

// grants are attributes that give rights.
var grants = []string{"system.posix_acl_access", "system.posix_acl_default", "security.capability"}

// settable reports whether a program may have set an attribute: ACLs and attributes of users;
// and those that it cannot set where it has no capabilities, but which would act later.
// Labels of the host's security module stay.
func settable(name string) bool {
	return slices.Contains(grants, name) || strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.overlay.")
}

func removeAttribute(path, name string) error {
	err := unix.Removexattr(path, name)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// listAttributes lists the attributes that a program may have set.
func listAttributes(path string) ([]string, error) {
	const most = 64 << 10 // the kernel lists no more
	size, err := unix.Listxattr(path, nil)
	if err != nil || size == 0 {
		return nil, withoutAttributes(err)
	}
	list := make([]byte, most)
	if size, err = unix.Listxattr(path, list); err != nil {
		return nil, withoutAttributes(err)
	}
	var names []string
	for name := range bytes.SplitSeq(list[:size], []byte{0}) {
		if settable(string(name)) {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// withoutAttributes takes a file system that has no attributes for one without any.
func withoutAttributes(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// removeAttributes removes the attributes that a program may have set.
func removeAttributes(fd int) error {
	err := entryFile{fd, procPath(fd)}.strip()
	if errors.Is(err, errUnlisted) { // those that give rights are gone
		return nil
	}
	return err
}
