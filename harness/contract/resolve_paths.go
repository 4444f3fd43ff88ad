package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// literal is a path of a contract as an absolute one, links not resolved. /repo is the
// root, as it is for the program: so a contract can be moved from machine to machine.
func (r *resolver) literal(asked, base string) string {
	if clean := filepath.Clean(asked); fsx.Within(clean, rootTarget) {
		return filepath.Join(r.root, strings.TrimPrefix(clean, rootTarget))
	}
	if filepath.IsAbs(asked) {
		return filepath.Clean(asked)
	}
	return filepath.Join(base, asked)
}

// at resolves a path of a contract. If nothing is there, the place has the path that
// it would have, and the rule says so.
func (r *resolver) at(field, asked, base string) (place, string) {
	p, rule := look(r.literal(asked, base))
	p.field, p.asked = field, asked
	return p, rule
}

// look resolves an absolute or relative host path.
func look(asked string) (place, string) {
	p := place{asked: asked}
	if strings.ContainsRune(asked, 0) || !utf8.ValidString(asked) {
		return p, "is not a path"
	}
	abs, err := filepath.Abs(asked)
	if err != nil {
		return p, "cannot be used: " + fsx.Cause(err).Error()
	}
	p.real = fsx.RealPath(abs)
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return p, unusable(err)
	}
	if !utf8.ValidString(real) {
		return place{asked: asked}, "leads to a name that is not UTF-8"
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

func lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

// realPath follows the links in as much of a path as is there.

func realPaths(paths []string) []string {
	var all []string
	for _, p := range paths {
		if abs, err := filepath.Abs(p); err == nil && p != "" {
			all = append(all, fsx.RealPath(abs))
		}
	}
	return all
}

// sameFile reports whether two places are one file under two names.
func sameFile(a, b place) bool { return a.info != nil && b.info != nil && os.SameFile(a.info, b.info) }

// inside is where a host path is in the container.
func inside(root, real string) string {
	if real == root {
		return rootTarget
	}
	if fsx.Within(real, root) {
		return path.Join(rootTarget, strings.TrimPrefix(real, root))
	}
	return path.Join(hostTarget, real)
}

// kernelFolders are no files of the host at all.
var kernelFolders = []string{"/proc", "/sys", "/dev"}

// systemFolders are those of the Filesystem Hierarchy Standard that belong to the
// machine and not to a project.
var systemFolders = []string{
	"/etc", "/var", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/dev", "/proc", "/run", "/sys", "/root",
}

func isSystem(real string) bool {
	for _, dir := range systemFolders {
		if fsx.Within(real, dir) {
			return true
		}
	}
	return false
}

// touches is the rule that a path breaks which no level opens.
func (r *resolver) touches(real string) string {
	if real == filepath.Dir(real) {
		return "is the root of the file system, which no level opens"
	}
	for _, dir := range kernelFolders {
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

// hashFile reads an input file, which may have as many bytes as there is room.
func hashFile(p place, room *int64) (InputFile, string) {
	file, err := os.Open(p.real)
	if err != nil {
		return InputFile{}, unusable(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !os.SameFile(info, p.info) {
		return InputFile{}, "is being replaced"
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(file, *room+1))
	if err != nil {
		return InputFile{}, "cannot be read: " + fsx.Cause(err).Error()
	}
	if *room -= n; *room < 0 {
		*room = 0
		return InputFile{}, fmt.Sprintf("with it the input files have more than %v in all", policy.Size(MaxInputFiles))
	}
	return InputFile{SizeBytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, ""
}
