package fsx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// unsafeBits are the permissions that nothing has any more after it was handed back: a program
// of its new owner's rights, and the right of others to change it.
const unsafeBits = unix.S_ISUID | unix.S_ISGID | unix.S_ISVTX | 0o022

// LetIn gives the owner of a directory all rights on it, which a program may have taken away: without
// them, not even an open directory can be read or opened up. Anything else at this path is
// [ErrReplaced].
func LetIn(path string) error { return letIn(path) }

// Handback says what is handed back.
type Handback struct {
	// From is the user of the program. What belongs to anybody else stays as it is.
	From int
	// UID and GID are those of the new owner; -1 leaves the owner as it is.
	UID, GID int
	// Most bounds the entries that have an identity.
	Most int
}

// HandedBack is what [HandBack] came to.
type HandedBack struct {
	// Identity stands for the tree as it was handed back. It is nil if anything in it was not
	// the program's, if something could not be handed back, or if there were too many
	// entries.
	Identity *Identity
	// Modes has the permission bits that regular files had before, where they changed.
	Modes map[ID]uint32
	// Unlisted counts entries with more extended attributes than the kernel lists. Those that
	// give rights were removed.
	Unlisted int
}

// HandBack takes a tree back that an untrusted program could write. Everything of the program's
// is given to its new owner, and loses what would serve others later: ACLs, extended
// attributes, set-user-ID, set-group-ID and sticky bits, and the right of group and others
// to write. A default ACL would otherwise make later files of the owner writable for
// everybody. The owner may read all of it, and change the directories.
//
// The directory itself loses what its entries lose; [LetIn] comes first, if the program may have
// closed it. Its own owner comes last, and only if everything else was handed back: as long as it is
// the program's user, this can be repeated.
//
// Each entry is opened without being read and without following anything, and all is done
// to what was opened. So a process that renames or links meanwhile does not lead it elsewhere. It
// goes on after an error and joins the first ones.
func HandBack(root *os.Root, o Handback) (HandedBack, error) {
	info, err := root.Stat(".")
	if err != nil {
		return HandedBack{}, err
	}
	top, err := rootID(root)
	if err != nil {
		return HandedBack{}, err
	}
	h := &handback{Handback: o, root: root, identifier: newIdentifier(top, o.Most), modes: map[ID]uint32{}, done: map[ID]unix.Timespec{}}
	err = Visit(root, func() bool { return true }, h.entry)
	if owner, _, known := OwnerOf(info); known && owner == o.From { // else the program could not change it
		err = errors.Join(err, h.restrict())
		if err == nil && o.UID >= 0 {
			err = root.Lchown(".", o.UID, o.GID)
		}
	}
	handed := HandedBack{Modes: h.modes, Unlisted: h.unlisted}
	if err == nil {
		handed.Identity = h.identity()
	}
	return handed, err
}

type handback struct {
	Handback
	*identifier
	root  *os.Root
	modes map[ID]uint32
	// done are the files of several names that were handed back, with their ctime.
	done map[ID]unix.Timespec
	// names counts the names in the tree of files of several names; nil until it is needed.
	names    map[ID]uint64
	unlisted int
}

// entry hands one entry back.
func (h *handback) entry(v Visited) error {
	entry, stat, err := openEntry(v)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.unknown = true // somebody else is at work here
		return nil
	case err != nil:
		h.unknown = true
		return err
	}
	defer entry.close()
	id := idOf(&stat)
	if id.device != h.top.device {
		h.unknown = true // a mount point
		return fs.SkipDir
	}
	if changed, second := h.done[id]; second && changed == stat.Ctim {
		h.add(v.In, v.Name, &stat)
		return nil
	}
	// Not every file of this process's own user is the program's.
	if int(stat.Uid) != h.From || (h.UID < 0 || h.From == os.Geteuid()) && h.elsewhere(id, &stat) {
		h.unknown = true
		return nil
	}
	before := uint32(stat.Mode) //nolint:unconvert // uint16 on some platforms
	err = entry.handBack(&stat, h.UID, h.GID)
	switch {
	case errors.Is(err, errUnlisted):
		h.unlisted++
	case err != nil:
		h.unknown = true
		return err
	}
	kind := before & unix.S_IFMT
	if kind == unix.S_IFREG && before != uint32(stat.Mode) && len(h.modes) < h.most { //nolint:unconvert // as above
		h.modes[id] = before & 0o7777
	}
	if kind != unix.S_IFDIR && stat.Nlink > 1 {
		h.done[id] = stat.Ctim
	}
	h.add(v.In, v.Name, &stat)
	return nil
}

// elsewhere reports whether a file has a name outside of the tree. A program cannot make one,
// because its directory is a mount of its own. So a user of this machine did, whose file it
// may be.
func (h *handback) elsewhere(id ID, stat *unix.Stat_t) bool {
	if stat.Nlink < 2 || stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return false
	}
	if h.names == nil {
		h.names = map[ID]uint64{}
		err := Visit(h.root, func() bool { return true }, func(v Visited) error {
			if v.Stat.Nlink > 1 && v.Stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				h.names[idOf(v.Stat)]++
			}
			return nil
		})
		if err != nil {
			h.unknown = true // and what was not counted stays as it is
		}
	}
	return h.names[id] < uint64(stat.Nlink) //nolint:unconvert // uint16 on some platforms
}

// restrict takes from the directory itself what its entries lose.
func (h *handback) restrict() error {
	dir, err := h.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return err
	}
	err = removeAttributes(int(dir.Fd()))
	if err == nil {
		err = unix.Fchmod(int(dir.Fd()), safeMode(uint32(stat.Mode))&0o7777) //nolint:unconvert // uint16 on some platforms
	}
	if err != nil {
		return &fs.PathError{Op: "restrict", Path: ".", Err: err}
	}
	return nil
}

// safeMode is the mode of an entry that is handed back.
func safeMode(mode uint32) uint32 {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return mode&^unsafeBits | 0o700
	case unix.S_IFREG:
		return mode&^unsafeBits | 0o400
	}
	return mode &^ unsafeBits
}

// errUnlisted is an entry whose extended attributes cannot all be listed.
var errUnlisted = errors.New("has more extended attributes than can be listed")

// stepError is a failed step of a handback. The name stands before it.
func stepError(step string, err error) error { return fmt.Errorf("%s: %w", step, err) }
