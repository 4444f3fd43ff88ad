//go:build unix

package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"
)

// packed is an object of a pack that is made by hand.
type packed struct {
	hash plumbing.Hash
	kind plumbing.ObjectType
	// size is what it says, base what it refers to.
	size int64
	base []byte
	data []byte
}

func varint(kind plumbing.ObjectType, size int64) []byte {
	first := byte(kind)<<4 | byte(size&15)
	size >>= 4
	var out []byte
	for size > 0 {
		out = append(out, first|0x80)
		first, size = byte(size&0x7f), size>>7
	}
	return append(out, first)
}

// delta says how large the base and the object are.
func delta(from, to uint64, more ...byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, from), to), more...)
}

func (f *fixture) pack(objects ...packed) {
	f.t.Helper()
	var file bytes.Buffer
	file.WriteString("PACK")
	require.NoError(f.t, binary.Write(&file, binary.BigEndian, []uint32{2, uint32(len(objects))}))
	var index idxfile.Writer
	require.NoError(f.t, index.OnHeader(uint32(len(objects))))
	for _, o := range objects {
		index.Add(o.hash, uint64(file.Len()), 0)
		file.Write(varint(o.kind, o.size))
		file.Write(o.base)
		z := zlib.NewWriter(&file)
		_, err := z.Write(o.data)
		require.NoError(f.t, err)
		require.NoError(f.t, z.Close())
	}
	sum := sha1.Sum(file.Bytes())
	file.Write(sum[:])
	require.NoError(f.t, index.OnFooter(sum))
	idx, err := index.Index()
	require.NoError(f.t, err)
	var names bytes.Buffer
	_, err = idxfile.NewEncoder(&names).Encode(idx)
	require.NoError(f.t, err)
	name := ".git/objects/pack/pack-" + plumbing.Hash(sum).String()
	f.write(name+".pack", file.String())
	f.write(name+".idx", names.String())
}

// TestPacksHostile: references in a circle would never end in the library, and small
// differences can stand for any size.
func TestPacksHostile(t *testing.T) {
	a := plumbing.NewHash("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	b := plumbing.NewHash("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")
	small := delta(3, 3, 0x90, 3)
	huge := delta(3, maxObject+1, 0x90, 3)
	for name, c := range map[string]struct {
		objects []packed
		want    string
	}{
		"itself":   {[]packed{{a, plumbing.REFDeltaObject, int64(len(small)), a[:], small}}, "it consists of more than 4096 differences"},
		"a circle": {[]packed{{a, plumbing.REFDeltaObject, int64(len(small)), b[:], small}, {b, plumbing.REFDeltaObject, int64(len(small)), a[:], small}}, "it consists of more than 4096 differences"},
		"nowhere":  {[]packed{{a, plumbing.REFDeltaObject, int64(len(small)), b[:], small}}, "which is not in its pack"},
		"backward": {[]packed{{a, plumbing.OFSDeltaObject, int64(len(small)), []byte{0}, small}}, "is damaged"},
		"before":   {[]packed{{a, plumbing.OFSDeltaObject, int64(len(small)), []byte{0x7f}, small}}, "is damaged"},
		"grows": {
			[]packed{{a, plumbing.REFDeltaObject, int64(len(huge)), b[:], huge}, {b, plumbing.BlobObject, 3, nil, []byte("abc")}},
			"more than 268435456 bytes",
		},
		"large base": {
			[]packed{{a, plumbing.REFDeltaObject, int64(len(small)), b[:], small}, {b, plumbing.BlobObject, maxObject + 1, nil, []byte("abc")}},
			"more than 268435456 bytes",
		},
		"large difference": {[]packed{{a, plumbing.REFDeltaObject, maxObject + 1, b[:], small}}, "more than 268435456 bytes"},
		"other content":    {[]packed{{a, plumbing.BlobObject, 3, nil, []byte("abc")}}, "its content does not have that hash"},
		"longer":           {[]packed{{a, plumbing.BlobObject, 3, nil, make([]byte, 1<<20)}}, "is damaged"},
		"huge":             {[]packed{{a, plumbing.BlobObject, maxObject + 1, nil, []byte("abc")}}, "more than 268435456 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.pack(c.objects...)
			f.commitTree("evil", f.tree(object.TreeEntry{Name: "x", Mode: filemode.Regular, Hash: a}))
			_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestPacksDelta: an honest pack of that form is read.
func TestPacksDelta(t *testing.T) {
	base := plumbing.ComputeHash(plumbing.BlobObject, []byte("abc"))
	text := plumbing.ComputeHash(plumbing.BlobObject, []byte("abcabc"))
	d := delta(3, 6, 0x90, 3, 0x90, 3)
	f := newFixture(t)
	f.pack(packed{text, plumbing.REFDeltaObject, int64(len(d)), base[:], d}, packed{base, plumbing.BlobObject, 3, nil, []byte("abc")})
	f.commitTree("honest", f.tree(object.TreeEntry{Name: "x", Mode: filemode.Regular, Hash: text}))
	into := filepath.Join(t.TempDir(), "into")
	_, err := Checkout(t.Context(), f.dir, "honest", into, nil, 1<<20)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(into, "x"))
	require.NoError(t, err)
	require.Equal(t, "abcabc", string(got))
}

// TestPackIndexHostile: an index that says it has more than there is.
func TestPackIndexHostile(t *testing.T) {
	for name, count := range map[string]uint32{"many": 0xffffffff, "not in order": 1} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("a", "1")
			f.commit()
			text := binary.BigEndian.AppendUint32([]byte{0xff, 't', 'O', 'c'}, 2)
			for i := range 256 {
				if i == 100 && name == "not in order" {
					text = binary.BigEndian.AppendUint32(text, 9)
					continue
				}
				text = binary.BigEndian.AppendUint32(text, count)
			}
			f.write(".git/objects/pack/pack-0000000000000000000000000000000000000000.idx", string(text)+string(make([]byte, 100)))
			f.commitTree("evil", plumbing.NewHash("1234567890123456789012345678901234567890"))
			_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
			require.ErrorContains(t, err, "pack-0000")
		})
	}
}

// TestPackIndexesTogether: the indexes of all packs are in memory at once.
func TestPackIndexesTogether(t *testing.T) {
	f := newFixture(t)
	f.pack(packed{plumbing.ComputeHash(plumbing.BlobObject, []byte("abc")), plumbing.BlobObject, 3, nil, []byte("abc")})
	large := ".git/objects/pack/pack-ffffffffffffffffffffffffffffffffffffffff.idx"
	f.write(large, "")
	require.NoError(t, os.Truncate(f.path(large), maxIndex)) // needs no room on the disk
	f.commitTree("evil", plumbing.NewHash("1234567890123456789012345678901234567890"))
	_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
	require.ErrorContains(t, err, "more than 1073741824 bytes")
}
