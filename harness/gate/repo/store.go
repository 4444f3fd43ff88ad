package repo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// store reads objects within bounds, and none that is not what its hash says. Objects in
// files of their own are read here: the library reads them as long as they go on,
// whatever size they say they have.
type store struct {
	*filesystem.Storage
	loose *guardFS
	packs packs
	// borrowed are the objects of other repositories.
	borrowed []*store
}

// HashesWithPrefix are the objects whose hashes begin so.
func (s *store) HashesWithPrefix(prefix []byte) ([]plumbing.Hash, error) {
	if err := s.packs.load(s); err != nil {
		return nil, err
	}
	all, err := s.Storage.HashesWithPrefix(prefix)
	for _, other := range s.borrowed {
		more, otherErr := other.HashesWithPrefix(prefix)
		all, err = append(all, more...), errors.Join(err, otherErr)
	}
	return all, err
}

// EncodedObject reads a commit, a tag or a tree into memory. Files are read by
// [store.blob].
func (s *store) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	r, kind, size, err := s.object(h)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if t != plumbing.AnyObject && t != kind {
		return nil, plumbing.ErrObjectNotFound
	}
	if size > maxMeta {
		return nil, fmt.Errorf("the object %s has %d bytes; at most %d are read", h, size, maxMeta)
	}
	content, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return nil, damaged(h, err)
	}
	if int64(len(content)) != size || plumbing.ComputeHash(kind, content) != h {
		return nil, damaged(h, errors.New("its content is not what its name says"))
	}
	o := &plumbing.MemoryObject{}
	o.SetType(kind)
	if _, err := o.Write(content); err != nil {
		return nil, err
	}
	return o, nil
}

func damaged(h plumbing.Hash, err error) error {
	return fmt.Errorf("the object %s is damaged: %w", h, err)
}

// blob writes a file of at most limit bytes, and returns its size.
func (s *store) blob(h plumbing.Hash, to io.Writer, limit int64) (int64, error) {
	r, kind, size, err := s.object(h)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	switch {
	case kind != plumbing.BlobObject:
		return 0, fmt.Errorf("the object %s is a %s, not a file", h, kind)
	case size > limit:
		return 0, fmt.Errorf("has %d bytes; there is room for %d", size, limit)
	}
	sum := plumbing.NewHasher(plumbing.BlobObject, size)
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(r, size+1))
	if err != nil {
		return n, damaged(h, err)
	}
	if n != size || sum.Sum() != h {
		return n, damaged(h, errors.New("its content is not what its name says"))
	}
	return n, nil
}

// object opens an object, wherever it is.
func (s *store) object(h plumbing.Hash) (io.ReadCloser, plumbing.ObjectType, int64, error) {
	r, kind, size, err := s.own(h)
	for i := 0; errors.Is(err, plumbing.ErrObjectNotFound) && i < len(s.borrowed); i++ {
		r, kind, size, err = s.borrowed[i].object(h)
	}
	return r, kind, size, err
}

// own opens an object of this folder.
func (s *store) own(h plumbing.Hash) (io.ReadCloser, plumbing.ObjectType, int64, error) {
	name := h.String()
	file, _, err := fsx.OpenIn(s.loose.root, path.Join("objects", name[:2], name[2:]))
	switch {
	case err == nil:
		r, kind, size, err := looseObject(file)
		if err != nil {
			return nil, 0, 0, errors.Join(damaged(h, err), file.Close())
		}
		return r, kind, size, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, 0, 0, err
	}
	if err := s.packs.load(s); err != nil {
		return nil, 0, 0, err
	}
	if err := s.packs.check(h, s.Storage.EncodedObjectSize); err != nil {
		return nil, 0, 0, err
	}
	size, err := s.Storage.EncodedObjectSize(h)
	if err != nil {
		return nil, 0, 0, err
	}
	if size > maxBlob {
		return nil, 0, 0, fmt.Errorf("the object %s has %d bytes; at most %d are read", h, size, int64(maxBlob))
	}
	o, err := s.Storage.EncodedObject(plumbing.AnyObject, h)
	if err != nil {
		return nil, 0, 0, err
	}
	r, err := o.Reader()
	return r, o.Type(), o.Size(), err
}

// maxHeader bounds "commit 123\x00" in front of an object.
const maxHeader = 32

type looseReader struct {
	io.Reader
	close func() error
}

func (r looseReader) Close() error { return r.close() }

func looseObject(file io.ReadCloser) (io.ReadCloser, plumbing.ObjectType, int64, error) {
	inflated, err := zlib.NewReader(file)
	if err != nil {
		return nil, 0, 0, err
	}
	r := bufio.NewReader(inflated)
	header, err := r.Peek(maxHeader)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, 0, err
	}
	end := bytes.IndexByte(header, 0)
	if end < 0 {
		return nil, 0, 0, errors.New("it has no header")
	}
	word, digits, _ := bytes.Cut(header[:end], []byte(" "))
	kind, err := plumbing.ParseObjectType(string(word))
	if err != nil {
		return nil, 0, 0, err
	}
	size, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || size < 0 || size > maxBlob {
		return nil, 0, 0, fmt.Errorf("it says that it has %q bytes", digits)
	}
	_, err = r.Discard(end + 1)
	return looseReader{r, func() error { return errors.Join(inflated.Close(), file.Close()) }}, kind, size, err
}
