package repo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Compare tells what a folder has that another one had not (RO-04): the hashes of every
// file before and after, and a patch in the form of git, which git apply takes if it has
// all texts. Baseline of the result is left to the caller. exclude are paths relative to
// both folders that do not count; nothing named .git does.
//
// The hash of a file is the SHA-256 of its content, that of a link the one of the text
// "link to TARGET". A file of which only the permission to be executed has changed has
// the same hash twice, and its modes in the patch. Pipes, sockets and folders do not
// count. The result is the same each time.
func Compare(ctx context.Context, before, after string, exclude []string) (evidence.Changes, []byte, error) {
	excluded := map[string]bool{}
	for _, name := range exclude {
		excluded[path.Clean(filepath.ToSlash(name))] = true
	}
	was, err := takeStock(ctx, before, excluded)
	if err != nil {
		return evidence.Changes{}, nil, fmt.Errorf("compare %s: %w", before, err)
	}
	defer was.root.Close()
	is, err := takeStock(ctx, after, excluded)
	if err != nil {
		return evidence.Changes{}, nil, fmt.Errorf("compare %s: %w", after, err)
	}
	defer is.root.Close()

	changes := evidence.Changes{Files: []evidence.Change{}}
	p := patch{}
	names := maps.Clone(was.files)
	maps.Copy(names, is.files)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, now := was.files[name], is.files[name]
		if old == now {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return evidence.Changes{}, nil, err
		}
		changes.Files = append(changes.Files, evidence.Change{Path: shown(name), Before: old.sum, After: now.sum})
		if err := p.add(name, side{was.root, old}, side{is.root, now}); err != nil {
			return evidence.Changes{}, nil, fmt.Errorf("compare %.200q: %w", name, err)
		}
	}
	return changes, p.bytes(), nil
}

// shown is a path as it is written: as it is, or quoted as git does if it is not UTF-8 or
// has characters that would end a line or look like quotes.
func shown(name string) string {
	if utf8.ValidString(name) && strconv.CanBackquote(name) && name[0] != '"' {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// modes of git.
const (
	modeNone    = ""
	modeFile    = "100644"
	modeProgram = "100755"
	modeLink    = "120000"
)

// compared is what is known of a file; the zero value is no file.
type compared struct {
	mode, sum string
	size      int64
	// target is that of a link.
	target string
}

// stock is what there is in a folder.
type stock struct {
	root  *os.Root
	mu    sync.Mutex
	files map[string]compared
}

func takeStock(ctx context.Context, dir string, exclude map[string]bool) (*stock, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &stock{root: root, files: map[string]compared{}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	walkErr := s.walk(ctx, group, exclude)
	if err := cmp.Or(group.Wait(), walkErr); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

func (s *stock) walk(ctx context.Context, group *errgroup.Group, exclude map[string]bool) error {
	left := maxFiles
	return fs.WalkDir(s.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		if left--; left < 0 {
			return fmt.Errorf("has more than %d files and folders", maxFiles)
		}
		skip := entry.Name() == ".git" || exclude[name]
		switch kind := entry.Type(); {
		case kind.IsDir():
			if skip && name != "." {
				return fs.SkipDir
			}
		case skip:
		case kind.IsRegular():
			group.Go(func() error { return s.file(ctx, name) })
		case kind&fs.ModeSymlink != 0:
			target, err := s.root.Readlink(name)
			if err != nil {
				return err
			}
			s.set(name, compared{mode: modeLink, sum: sumOf([]byte("link to " + target)), target: target})
		}
		return nil
	})
}

func (s *stock) set(name string, c compared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = c
}

func sumOf(text []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

func (s *stock) file(ctx context.Context, name string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	file, info, err := fsx.OpenIn(s.root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum, err := fsx.Sum(ctx, sha256.New(), file, info)
	if err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	c := compared{mode: modeFile, sum: sum, size: info.Size()}
	if info.Mode()&0o100 != 0 {
		c.mode = modeProgram
	}
	s.set(name, c)
	return nil
}
