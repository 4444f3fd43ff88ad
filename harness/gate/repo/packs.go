package repo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

const (
	// maxChain bounds how many differences an object is made of, one upon another: git
	// writes 50, and 4095 at most.
	maxChain = 4096
	// maxDelta bounds an object that is made so, and each one on the way to it: the
	// library holds them in memory. Git stores larger files as they are.
	maxDelta = 512 << 20
	// maxPacks bounds the packs of a repository.
	maxPacks = 2000
)

// packs looks at how an object is stored before the library reads it. The library
// follows references from object to object without end, and believes every size.
type packs struct {
	loaded bool
	list   []*pack
}

type pack struct {
	index   *idxfile.MemoryIndex
	scanner *packfile.Scanner
	// checked are objects that may be read.
	checked map[int64]bool
}

// load opens all packs.
func (p *packs) load(s *store) error {
	if p.loaded {
		return nil
	}
	dir := path.Join("objects", "pack")
	entries, err := s.loose.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".idx")
		if !ok || !strings.HasPrefix(name, "pack-") {
			continue
		}
		if len(p.list) == maxPacks {
			return fmt.Errorf("has more than %d packs", maxPacks)
		}
		one, err := openPack(s.loose, path.Join(dir, name))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.list = append(p.list, one)
	}
	p.loaded = true
	return nil
}

func openPack(files billy.Filesystem, name string) (*pack, error) {
	idx, err := files.Open(name + ".idx")
	if err != nil {
		return nil, err
	}
	defer idx.Close()
	if err := checkNames(idx); err != nil {
		return nil, err
	}
	index := idxfile.NewMemoryIndex()
	if err := idxfile.NewDecoder(idx).Decode(index); err != nil {
		return nil, err
	}
	file, err := files.Open(name + ".pack")
	if err != nil {
		return nil, err
	}
	return &pack{index: index, scanner: packfile.NewScanner(file), checked: map[int64]bool{}}, nil
}

// checkNames compares the number of names of an index with its size: the library makes
// room for as many as the index says.
func checkNames(idx billy.File) error {
	const header, each, trailer = 8, 20 + 4 + 4, 2 * 20
	var counts [256]uint32
	if err := binary.Read(io.NewSectionReader(idx, header, 4*256), binary.BigEndian, &counts); err != nil {
		return err
	}
	size, err := idx.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if least := header + 4*256 + int64(counts[255])*each + trailer; !slices.IsSorted(counts[:]) || size < least {
		return errors.New("its index is shorter than what it says")
	}
	_, err = idx.Seek(0, io.SeekStart)
	return err
}

func (p *packs) close() error {
	var errs []error
	for _, one := range p.list {
		errs = append(errs, one.scanner.Close())
	}
	p.list = nil
	return errors.Join(errs...)
}

// check refuses an object that cannot be read within bounds. size tells that of an
// object, and is asked only when that is harmless.
func (p *packs) check(h plumbing.Hash, size func(plumbing.Hash) (int64, error)) error {
	for _, one := range p.list {
		if offset, err := one.index.FindOffset(h); err == nil {
			if err := one.check(offset, size); err != nil {
				return damaged(h, err)
			}
		}
	}
	return nil
}

// check walks from an object to what it is made of, and back.
func (p *pack) check(offset int64, size func(plumbing.Hash) (int64, error)) error {
	var chain []int64
	for !p.checked[offset] {
		if len(chain) == maxChain {
			return fmt.Errorf("it is made of more than %d others", maxChain)
		}
		header, err := p.scanner.SeekObjectHeader(offset)
		if err != nil {
			return err
		}
		isDelta := header.Type.IsDelta()
		if (isDelta || len(chain) > 0) && header.Length > maxDelta {
			return fmt.Errorf("it is made of one with %d bytes; at most %d are read", header.Length, maxDelta)
		}
		chain = append(chain, offset)
		if !isDelta {
			break
		}
		if header.Type == plumbing.REFDeltaObject {
			if offset, err = p.index.FindOffset(header.Reference); err != nil {
				return fmt.Errorf("it is made of %s, which is not in its pack", header.Reference)
			}
			continue
		}
		offset = header.OffsetReference
	}
	// From the ground up: what is asked for its size stands on what was checked.
	for i := len(chain) - 1; i >= 0; i-- {
		h, err := p.index.FindHash(chain[i])
		if err != nil {
			return fmt.Errorf("it is made of something without a name: %w", err)
		}
		n, err := size(h)
		if err != nil {
			return err
		}
		if n > maxDelta && len(chain) > 1 || n < 0 {
			return fmt.Errorf("it is made of one with %d bytes; at most %d are read", n, maxDelta)
		}
		p.checked[chain[i]] = true
	}
	return nil
}
