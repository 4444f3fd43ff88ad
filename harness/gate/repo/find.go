package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// place is where a repository is.
type place struct {
	// root is the folder with the files, git that of the repository, and common what it
	// shares with other work trees, if it is one of several. All are absolute.
	root, git, common string
	// prefix is the folder that was asked for, relative to root, with forward slashes;
	// empty for root itself.
	prefix string
}

// maxPointer bounds a file that says where a repository is.
const maxPointer = 2 * maxPath

// find looks for the repository that a folder belongs to, as git does: the nearest .git
// above. There may be none.
func find(dir string) (place, bool, error) {
	real, err := realDir(dir)
	if err != nil {
		return place{}, false, err
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Stat(filepath.Join(at, ".git"))
		switch {
		case err == nil:
			p := place{root: at, git: filepath.Join(at, ".git")}
			rel, err := filepath.Rel(at, real)
			if err != nil {
				return place{}, false, err
			}
			if rel != "." {
				p.prefix = filepath.ToSlash(rel)
			}
			return p, true, p.locate(info)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return place{}, false, fmt.Errorf("%s: %w", at, err)
		case at == filepath.Dir(at):
			return place{}, false, nil
		}
	}
}

func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", errors.Join(err, fmt.Errorf("%s: is not a folder", dir))
	}
	return real, nil
}

// locate follows the files that say where a repository and its shared part are.
func (p *place) locate(info fs.FileInfo) error {
	if !info.IsDir() {
		target, err := pointer(p.git, "gitdir: ")
		if err != nil {
			return err
		}
		p.git = target
	}
	shared := filepath.Join(p.git, "commondir")
	if _, err := os.Lstat(shared); err == nil {
		if p.common, err = pointer(shared, ""); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(p.git, "HEAD")); err != nil {
		return fmt.Errorf("%s: is no repository: it has no HEAD", p.git)
	}
	return nil
}

// pointer reads a file that holds a path, relative to its own folder.
func pointer(file, prefix string) (string, error) {
	text, err := fsx.Read(file, maxPointer)
	if err != nil {
		return "", err
	}
	line, ok := strings.CutPrefix(string(text), prefix)
	line, rest, _ := strings.Cut(line, "\n")
	line = strings.TrimSuffix(line, "\r")
	if !ok || line == "" || strings.TrimSpace(rest) != "" || strings.ContainsRune(line, 0) {
		return "", fmt.Errorf("%s: does not say where the repository is", file)
	}
	if !filepath.IsAbs(line) {
		line = filepath.Join(filepath.Dir(file), line)
	}
	return filepath.Clean(line), nil
}

// isBare reports whether a folder is a repository without files.
func isBare(dir string) bool {
	for name, folder := range map[string]bool{"HEAD": false, "objects": true, "refs": true} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() != folder {
			return false
		}
	}
	return true
}
