package git

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// maxChain is how many differences an object may consist of: git writes at most 4095.
	maxChain = 4096
	maxPacks = 2000
	// maxBases bounds the objects of a pack that are kept because others differ from them.
	maxBases = 64 << 20
)

// objects reads the objects of a repository. go-git's own storage has no limits: it follows
// circles of differences, and inflates without end.
type objects struct {
	dir    *os.Root
	packs  []*pack
	loaded bool
	// indexed is how many bytes the indexes of the packs have.
	indexed int64
}

type pack struct {
	index   *idxfile.MemoryIndex
	scanner *packfile.Scanner
	bases   map[int64]content
	kept    int
}

type content struct {
	kind plumbing.ObjectType
	data []byte
}

var errLarge = fmt.Errorf("it has, or consists of, more than %d bytes", maxObject)

// EncodedObject implements the reading of objects for go-git.
func (o *objects) EncodedObject(kind plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	c, err := o.find(h)
	switch {
	case err == nil && c.kind != plumbing.BlobObject && len(c.data) > maxSmall:
		err = fmt.Errorf("it is a %s of more than %d bytes", c.kind, maxSmall)
	case err == nil && plumbing.ComputeHash(c.kind, c.data) != h:
		err = errors.New("its content does not have that hash")
	}
	switch {
	case errors.Is(err, plumbing.ErrObjectNotFound), err == nil && kind != plumbing.AnyObject && kind != c.kind:
		return nil, plumbing.ErrObjectNotFound
	case err != nil:
		return nil, fmt.Errorf("the object %s is damaged: %w", h, err)
	}
	object := &plumbing.MemoryObject{}
	object.SetType(c.kind)
	_, _ = object.Write(c.data) // memory never fails
	return object, nil
}

func (o *objects) find(h plumbing.Hash) (content, error) {
	name := h.String()
	file, _, err := fsx.OpenIn(o.dir, filepath.Join(name[:2], name[2:]))
	if err == nil {
		defer file.Close()
		return loose(file)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return content{}, err
	}
	if err := o.load(); err != nil {
		return content{}, err
	}
	for _, p := range o.packs {
		if offset, err := p.index.FindOffset(h); err == nil {
			return p.object(offset, maxObject, 0)
		}
	}
	return content{}, plumbing.ErrObjectNotFound
}

// loose reads an object that has a file of its own.
func loose(file io.Reader) (content, error) {
	inflated, err := zlib.NewReader(file)
	if err != nil {
		return content{}, err
	}
	const header = 32
	text, err := io.ReadAll(io.LimitReader(inflated, maxObject+header))
	if err != nil {
		return content{}, err
	}
	before, data, ok := bytes.Cut(text, []byte{0})
	kind, size, _ := strings.Cut(string(before[:min(len(before), header)]), " ")
	n, err := strconv.ParseInt(size, 10, 64)
	switch {
	case n > maxObject || len(data) > maxObject:
		return content{}, errLarge
	case !ok || err != nil || n != int64(len(data)):
		return content{}, errors.New("its header is not that of its content")
	}
	parsed, err := plumbing.ParseObjectType(kind)
	return content{parsed, data}, err
}

// load opens all packs, once.
func (o *objects) load() error {
	if o.loaded {
		return nil
	}
	names, err := fs.Glob(o.dir.FS(), "pack/*.idx")
	if err == nil && len(names) > maxPacks {
		err = fmt.Errorf("there are more than %d packs", maxPacks)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := o.openPack(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	o.loaded = true
	return nil
}

func (o *objects) openPack(name string) error {
	idx, info, err := fsx.OpenIn(o.dir, name)
	if err != nil {
		return err
	}
	defer idx.Close()
	if o.indexed += info.Size(); o.indexed > maxIndex {
		return fmt.Errorf("has more than %d bytes, with the indexes before it", maxIndex)
	}
	p := &pack{index: idxfile.NewMemoryIndex(), bases: map[int64]content{}}
	if err := idxfile.NewDecoder(idx).Decode(p.index); err != nil {
		return err
	}
	file, _, err := fsx.OpenIn(o.dir, strings.TrimSuffix(name, ".idx")+".pack")
	if err == nil {
		p.scanner = packfile.NewScanner(file)
		o.packs = append(o.packs, p)
	}
	return err
}

// object reads the object at an offset. room is how many bytes there may be, with those of
// the differences that lead here, and chain counts these.
func (p *pack) object(offset, room int64, chain int) (content, error) {
	if c, ok := p.bases[offset]; ok {
		return c, nil
	}
	header, err := p.scanner.SeekObjectHeader(offset)
	if err != nil {
		return content{}, err
	}
	if room -= header.Length; room < 0 || header.Length < 0 {
		return content{}, errLarge
	}
	var data bytes.Buffer
	if _, _, err := p.scanner.NextObject(&data); err != nil { // bounded by the length
		return content{}, err
	}
	base := header.OffsetReference
	switch {
	case !header.Type.IsDelta():
		return p.keep(offset, content{header.Type, data.Bytes()}), nil
	case chain == maxChain:
		return content{}, fmt.Errorf("it consists of more than %d differences", maxChain)
	case header.Type == plumbing.REFDeltaObject:
		if base, err = p.index.FindOffset(header.Reference); err != nil {
			return content{}, fmt.Errorf("it differs from %s, which is not in its pack", header.Reference)
		}
	}
	from, err := p.object(base, room, chain+1)
	if err != nil {
		return content{}, err
	}
	_, n := binary.Uvarint(data.Bytes()) // the size of the other one
	size, m := binary.Uvarint(data.Bytes()[max(n, 0):])
	if n <= 0 || m <= 0 || size > maxObject {
		return content{}, errLarge
	}
	text, err := packfile.PatchDelta(from.data, data.Bytes())
	if err != nil {
		return content{}, err
	}
	return p.keep(offset, content{from.kind, text}), nil
}

// keep remembers an object that others may differ from.
func (p *pack) keep(offset int64, c content) content {
	if p.kept += len(c.data); p.kept > maxBases {
		clear(p.bases)
		p.kept = len(c.data)
	}
	p.bases[offset] = c
	return c
}
