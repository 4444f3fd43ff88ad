package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Commands and structures of quotactl(2) for project quotas; linux/quota.h, linux/dqblk_xfs.h.
const (
	projectQuota = 2
	getQuota     = 0x800007<<8 | projectQuota
	setQuota     = 0x800008<<8 | projectQuota
	getState     = ('X'<<8|8)<<8 | projectQuota // Q_XGETQSTATV, also of ext4
	// enforced is FS_QUOTA_PDQ_ENFD: the limits of projects are enforced, not only counted.
	enforced = 1 << 5
	// quotaBlock is the unit of the limits, in bytes.
	quotaBlock = 1 << 10
	// quotaLimits says that a record sets the limits of bytes and entries.
	quotaLimits = 1 | 4
)

// quotaRecord is struct if_dqblk.
type quotaRecord struct {
	blocksHard, blocksSoft, bytes  uint64
	entriesHard, entriesSoft, used uint64
	blocksTime, entriesTime        uint64
	valid                          uint32
	_                              uint32
}

// quotaState is struct fs_quota_statv.
type quotaState struct {
	version int8
	_       uint8
	flags   uint16
	_       [156]byte
}

// Attributes of a file: ioctl_fsxattr of linux/fs.h.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	// inherit is FS_XFLAG_PROJINHERIT: new entries of the directory belong to its project.
	inherit = 0x200
)

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

func attributesOf(fd int) (a attributes, err error) {
	return a, ioctl(fd, getAttributes, unsafe.Pointer(&a))
}

func (a attributes) set(fd int) error { return ioctl(fd, setAttributes, unsafe.Pointer(&a)) }

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// quotactl calls quotactl_fd(2) for the file system of an open file.
func quotactl(fd int, command uintptr, id uint32, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), command, uintptr(id), uintptr(arg), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// CanQuota returns an [ErrImpossible] with the reason if a directory cannot be bounded by a project
// quota. It changes nothing.
func CanQuota(dir string) error {
	if os.Geteuid() != 0 {
		return impossible("a quota takes root")
	}
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return canQuota(root)
}

func canQuota(root *os.File) error {
	a, err := attributesOf(int(root.Fd()))
	if err != nil {
		return impossible("the file system of %s has no projects", root.Name())
	}
	if a.project != 0 || a.flags&inherit != 0 {
		return impossible("%s belongs to project %d of somebody else", root.Name(), a.project)
	}
	state := quotaState{version: 1}
	switch err := quotactl(int(root.Fd()), getState, 0, unsafe.Pointer(&state)); {
	case errors.Is(err, unix.EPERM):
		return impossible("a quota takes CAP_SYS_ADMIN")
	case err != nil || state.flags&enforced == 0:
		return impossible("the file system of %s does not enforce project quotas (mount option prjquota)", root.Name())
	}
	return nil
}

// Numbers of projects: few that anybody would choose by hand, and none that Docker or Kubernetes
// count up to.
const (
	firstProject = 0x45420000
	projects     = 0x10000
)

// Project is a project with a quota on one file system: the directories in it are bounded
// together. Its number is free for nobody else as long as it has a limit.
type Project struct {
	// Dir is a directory of the file system.
	Dir string `json:"path"`
	ID  uint32 `json:"id"`
}

// lockDir has the lock under which numbers of projects are taken, for all controllers of this
// machine. Only root has anything to do there.
const lockDir = "/run/evalbox"

// Claim takes the number of a project that nobody uses on the file system of a directory, and
// limits it. The kernel keeps the limit, and with it the number, until [Project.Release].
func Claim(dir string, limit Limit) (Project, error) {
	root, err := os.Open(dir)
	if err != nil {
		return Project{}, err
	}
	defer root.Close()
	unlock, err := lockProjects()
	if err != nil {
		return Project{}, err
	}
	defer unlock()
	listed := listedProjects("/etc/projects", "/etc/projid")
	start := rand.Uint32N(projects) //nolint:gosec // spreads the numbers, and is not a secret
	for i := range uint32(projects) {
		p := Project{Dir: dir, ID: firstProject + (start+i)%projects}
		if listed[p.ID] {
			continue
		}
		found, err := p.get(root)
		if err != nil {
			return Project{}, fmt.Errorf("quota of %s: %w", dir, err)
		}
		if found.bytes|found.used|found.blocksHard|found.blocksSoft|found.entriesHard|found.entriesSoft != 0 {
			continue
		}
		return p, p.set(root, limit)
	}
	return Project{}, fmt.Errorf("quota of %s: all %d numbers of projects are in use", dir, projects)
}

// lockProjects makes Claim the only one on this machine.
func lockProjects() (unlock func(), err error) {
	if err := os.MkdirAll(lockDir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(lockDir, "projects.lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // nothing was written
}

// listedProjects are the numbers in the files that other tools keep: "number:directory" and
// "name:number".
func listedProjects(files ...string) map[uint32]bool {
	listed := map[uint32]bool{}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			continue // there need not be one
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			for field := range strings.SplitSeq(lines.Text(), ":") {
				if id, err := strconv.ParseUint(strings.TrimSpace(field), 10, 32); err == nil {
					listed[uint32(id)] = true
				}
			}
		}
		_ = file.Close() // was only read
	}
	return listed
}

func (p Project) get(root *os.File) (found quotaRecord, err error) {
	err = quotactl(int(root.Fd()), getQuota, p.ID, unsafe.Pointer(&found))
	if errors.Is(err, unix.ENOENT) { // XFS, of a number without use or limit
		return quotaRecord{}, nil
	}
	return found, err
}

func (p Project) set(root *os.File, limit Limit) error {
	record := quotaRecord{blocksHard: uint64((limit.Bytes + quotaBlock - 1) / quotaBlock), entriesHard: uint64(limit.Entries), valid: quotaLimits}
	if err := quotactl(int(root.Fd()), setQuota, p.ID, unsafe.Pointer(&record)); err != nil {
		return fmt.Errorf("quota of %s: %w", p.Dir, err)
	}
	return nil
}

// Add puts an empty directory into the project, and raises the limit by what the directory
// itself takes. Whatever is made in it from then on belongs to the project.
func (p Project) Add(dir *os.Root) error {
	file, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer file.Close()
	before, err := p.get(file)
	if err == nil {
		err = p.mark(int(file.Fd()), func(a *attributes) bool {
			a.project, a.flags = p.ID, a.flags|inherit
			return true
		})
	}
	if err != nil {
		return fmt.Errorf("quota of %s: %w", dir.Name(), err)
	}
	after, err := p.get(file)
	if err != nil {
		return fmt.Errorf("quota of %s: %w", dir.Name(), err)
	}
	return p.set(file, Limit{
		Bytes:   int64(after.blocksHard)*quotaBlock + int64(after.bytes-min(before.bytes, after.bytes)),
		Entries: int64(after.entriesHard) + int64(after.used-min(before.used, after.used)),
	})
}

// mark changes the attributes of an open file or directory, if change says so.
func (p Project) mark(fd int, change func(*attributes) bool) error {
	a, err := attributesOf(fd)
	if err != nil || !change(&a) {
		return err
	}
	return a.set(fd)
}

// Usage is what the directories of the project hold.
func (p Project) Usage() (Usage, error) {
	root, err := os.Open(p.Dir)
	if err != nil {
		return Usage{}, err
	}
	defer root.Close()
	found, err := p.get(root)
	if err != nil {
		return Usage{}, fmt.Errorf("quota of %s: %w", p.Dir, err)
	}
	limit := int64(found.blocksHard) * quotaBlock
	return Usage{
		Bytes: int64(found.bytes), Entries: int64(found.used),
		Full: full(limit-int64(found.bytes), limit, int64(found.entriesHard)-int64(found.used)),
	}, nil
}

// Remove takes a directory and all files and directories in it out of the project. It follows
// nothing, and leaves what belongs to no project or to another one. Links, pipes and sockets
// cannot be opened, so that they keep the number, which then stays unused.
func (p Project) Remove(dir *os.Root) error {
	clear := func(fd int) error {
		return p.mark(fd, func(a *attributes) bool {
			ours := a.project == p.ID
			if ours {
				a.project, a.flags = 0, a.flags&^inherit
			}
			return ours
		})
	}
	file, err := dir.Open(".")
	if err != nil {
		return err
	}
	// The directory first: what is renamed meanwhile must not be refused.
	err = errors.Join(clear(int(file.Fd())), file.Close())
	return errors.Join(err, fsx.Visit(dir, func() bool { return true }, func(v fsx.Visited) error {
		if kind := v.Stat.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
			return nil
		}
		fd, err := unix.Openat(v.Dir, v.Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(clear(fd), unix.Close(fd))
	}))
}

// Release gives the number of the project back. Its directories must have been removed from it. A
// file system that is gone is not an error.
func (p Project) Release() error {
	root, err := os.Open(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(p.set(root, Limit{}), root.Close())
}
