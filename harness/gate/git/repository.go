// Package git reports what git knows of a workspace, writes the files of a commit to a
// directory, and compares two directories.
//
// A repository is untrusted. No program is started, so no hook, filter, monitor or text
// conversion runs. Nothing is written to the repository, no symbolic link in it is followed,
// and only regular files below its own directory are opened. Every file, object and list has
// a limit, and every object must have the hash by which it was found. go-git decodes the
// formats.
//
// A filter changes files on their way out of a repository (large files that are stored
// elsewhere, converted line ends). Filters do not run here, so such files count as changed.
package git

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/config"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Limits of what is read. Sizes are bytes.
const (
	maxSmall  = 64 << 20  // the configuration, the packed references, one commit, tag or tree
	maxObject = 256 << 20 // one object, and each one that it is a difference of
	maxIndex  = 1 << 30   // the indexes of all packs
	maxFiles  = 500_000   // the entries of a workspace or of a commit
	maxDepth  = 200       // nested directories
	maxPath   = 4096
)

// repository is an open repository, as go-git reads it. It is not safe for concurrent use.
type repository struct {
	memory.Storage // what go-git asks for beside objects and references: empty
	objects
	// root is the directory with the files, and prefix the directory that was asked for
	// relative to root, with forward slashes: empty for root itself.
	root, prefix string
	// git is the directory .git, and common the one that it shares with other work trees.
	git, common *os.Root
}

// open opens the repository that a directory belongs to, as git does: the nearest .git
// above. The result is nil if there is none.
func open(dir string) (*repository, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	for root := dir; ; root = filepath.Dir(root) {
		info, err := os.Stat(filepath.Join(root, ".git"))
		switch {
		case err == nil:
			r := &repository{root: root}
			if rel, _ := filepath.Rel(root, dir); rel != "." {
				r.prefix = filepath.ToSlash(rel)
			}
			if err := r.open(info.IsDir()); err != nil {
				r.close()
				return nil, fmt.Errorf("git: %s: %w", root, err)
			}
			return r, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("git: %w", err)
		case root == filepath.Dir(root):
			return nil, nil
		}
	}
}

// open opens the directories of a repository. A work tree of several has a file .git,
// which names the directory.
func (r *repository) open(isDir bool) (err error) {
	dir := filepath.Join(r.root, ".git")
	if !isDir {
		if dir, err = pointer(dir, "gitdir: "); err != nil {
			return err
		}
	}
	if r.git, err = os.OpenRoot(dir); err != nil {
		return err
	}
	if _, err := r.git.Lstat("commondir"); err == nil {
		if dir, err = pointer(filepath.Join(dir, "commondir"), ""); err != nil {
			return err
		}
	}
	if r.common, err = os.OpenRoot(dir); err != nil {
		return err
	}
	if r.dir, err = r.common.OpenRoot("objects"); err != nil {
		return err
	}
	if _, err := r.dir.Lstat("info/alternates"); err == nil {
		return errors.New("it borrows objects from another repository, which is not read: run git repack -ad and remove objects/info/alternates")
	}
	return r.checkFormat()
}

func (r *repository) close() {
	for _, p := range r.packs {
		_ = p.scanner.Close() // nothing was written
	}
	for _, root := range []*os.Root{r.git, r.common, r.dir} {
		if root != nil {
			_ = root.Close()
		}
	}
}

// pointer reads a file that holds a path, relative to its own directory.
func pointer(file, prefix string) (string, error) {
	text, err := fsx.Read(file, 2*maxPath)
	if err != nil {
		return "", err
	}
	line, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), prefix)
	if !ok || line == "" || strings.ContainsAny(line, "\n\x00") {
		return "", fmt.Errorf("%s: does not say where the repository is", file)
	}
	if !filepath.IsAbs(line) {
		line = filepath.Join(filepath.Dir(file), line)
	}
	return line, nil
}

// checkFormat refuses formats that are not read here.
func (r *repository) checkFormat() error {
	text, err := fsx.ReadIn(r.common, "config", maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cfg := config.New()
	if err := config.NewDecoder(bytes.NewReader(text)).Decode(cfg); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	for _, known := range [][]string{
		{"core", "repositoryformatversion", "", "0", "1"}, {"extensions", "objectformat", "", "sha1"}, {"extensions", "refstorage", "", "files"},
	} {
		if value := cfg.Section(known[0]).Option(known[1]); !slices.Contains(known[2:], value) {
			return fmt.Errorf("config: %s.%s %.20q is not supported", known[0], known[1], value)
		}
	}
	return nil
}

// Reference implements the reading of references for go-git.
func (r *repository) Reference(name plumbing.ReferenceName) (*plumbing.Reference, error) {
	if !filepath.IsLocal(name.String()) {
		return nil, plumbing.ErrReferenceNotFound
	}
	var special *fsx.NotRegularError // such as a directory of references
	for _, root := range []*os.Root{r.git, r.common} {
		text, err := fsx.ReadIn(root, filepath.FromSlash(name.String()), maxPath)
		switch {
		case err == nil:
			return plumbing.NewReferenceFromStrings(name.String(), strings.TrimSpace(string(text))), nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &special):
			return nil, fmt.Errorf("%s: %w", name, fsx.Cause(err))
		}
	}
	text, err := fsx.ReadIn(r.common, "packed-refs", maxSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if hash, rest, _ := strings.Cut(strings.TrimSpace(line), " "); rest == name.String() {
			return plumbing.NewReferenceFromStrings(rest, hash), nil
		}
	}
	return nil, plumbing.ErrReferenceNotFound
}

// head is the commit of the work tree; zero before the first one.
func (r *repository) head() (plumbing.Hash, error) {
	if info, err := r.git.Lstat("HEAD"); err != nil || !info.Mode().IsRegular() {
		return plumbing.ZeroHash, errors.New("is not a repository: it has no HEAD")
	}
	ref, err := storer.ResolveReference(r, plumbing.HEAD)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return ref.Hash(), nil
}
