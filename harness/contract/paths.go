package contract

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A hostPath is one path of a contract on this host.
type hostPath struct {
	// field and asked are the field and the text of the contract.
	field, asked string
	// real is the absolute path with links resolved.
	real string
	// info is nil for a missing file.
	info fs.FileInfo
}

func (p hostPath) missing() bool { return p.info == nil }

// sameFile reports whether two paths are one file under two names.
func sameFile(a, b hostPath) bool {
	return a.info != nil && b.info != nil && os.SameFile(a.info, b.info)
}

// absolute is a path of a contract with links not resolved. /repo is the root, as it is for
// the program, so that a contract can be moved from machine to machine.
func (r *resolver) absolute(asked, base string) string {
	clean := filepath.Clean(asked)
	switch {
	case fsx.Within(clean, spec.RepoDir):
		return filepath.Join(r.Root, strings.TrimPrefix(clean, spec.RepoDir))
	case filepath.IsAbs(asked):
		return clean
	}
	return filepath.Join(base, asked)
}

// at resolves a path of a contract. A missing file still has its path.
func (r *resolver) at(field, asked, base string) (p hostPath, rule string) {
	p, rule = lookUp(r.absolute(asked, base))
	p.field, p.asked = field, asked
	return p, rule
}

// lookUp resolves a host path. The rule says why it cannot be used.
func lookUp(asked string) (p hostPath, rule string) {
	p.asked = asked
	if strings.ContainsRune(asked, 0) || !utf8.ValidString(asked) {
		return p, "is not a path"
	}
	abs, err := filepath.Abs(asked)
	if err != nil {
		return p, unusable(err)
	}
	p.real = fsx.RealPath(abs)
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return p, unusable(err)
	}
	if !utf8.ValidString(real) {
		return hostPath{asked: asked}, "leads to a name that is not UTF-8"
	}
	p.real = real
	if p.info, err = os.Stat(real); err != nil {
		return p, unusable(err)
	}
	return p, ""
}

func unusable(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist"
	}
	return "cannot be used: " + fsx.Cause(err).Error()
}

func realPaths(paths []string) (all []string) {
	for _, p := range paths {
		if abs, err := filepath.Abs(p); err == nil && p != "" {
			all = append(all, fsx.RealPath(abs))
		}
	}
	return all
}

// inside is the path in the container of a host path.
func (r *resolver) inside(real string) string {
	if fsx.Within(real, r.Root) {
		return path.Join(spec.RepoDir, strings.TrimPrefix(real, r.Root))
	}
	return path.Join(spec.HostDir, real)
}

// kernelDirs hold no files of the host.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// systemDirs are the directories of the Filesystem Hierarchy Standard that belong to the
// machine, not to a project.
var systemDirs = []string{
	"/etc", "/var", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/dev", "/proc", "/run", "/sys", "/root",
}

func isSystem(real string) bool {
	return slices.ContainsFunc(systemDirs, func(dir string) bool { return fsx.Within(real, dir) })
}

// closed says why no level opens a path; empty if one does.
func (r *resolver) closed(real string) string {
	if real == filepath.Dir(real) {
		return "is the root of the file system, which no level opens"
	}
	for _, dir := range kernelDirs {
		if fsx.Within(real, dir) {
			return fmt.Sprintf("lies in %s, which no level opens", dir)
		}
	}
	for _, secret := range r.forbidden {
		if fsx.Within(secret, real) || fsx.Within(real, secret) {
			return fmt.Sprintf("is, holds or lies in %s, which no level opens", secret)
		}
	}
	return ""
}

// hashFile hashes an input file of at most room bytes, which it takes from room.
func hashFile(p hostPath, room *int64) (file trial.File, rule string) {
	f, err := fsx.Open(p.real)
	if err != nil {
		return file, unusable(err)
	}
	defer f.Close()
	if *room -= p.info.Size(); *room < 0 {
		*room = 0
		return file, fmt.Sprintf("with it the input files have more than %v in all", policy.Size(MaxInputFiles))
	}
	file.Size = p.info.Size()
	if file.SHA256, err = fsx.Sum(context.Background(), sha256.New(), f, p.info); err != nil {
		return file, "cannot be read: " + fsx.Cause(err).Error()
	}
	return file, ""
}

// outermost returns the paths that lie in no other of them, and in none of covered.
func outermost(paths, covered []string) (kept []string) {
	for _, p := range slices.Sorted(slices.Values(paths)) { // a directory precedes all that lies in it
		in := func(q string) bool { return fsx.Within(p, q) }
		if !slices.ContainsFunc(kept, in) && !slices.ContainsFunc(covered, in) {
			kept = append(kept, p)
		}
	}
	return kept
}

// sees reports whether the program sees a host path.
func (r *resolver) sees(real string) bool {
	in := func(p string) bool { return fsx.Within(real, p) }
	return slices.ContainsFunc(r.reads, in) || slices.ContainsFunc(r.writes, in)
}
