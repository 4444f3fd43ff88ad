package fsx

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestIdentityIsTheHashOfTheSortedHashes: the identity is what its documentation says, whatever the order
// of the entries. An entry that comes twice counts twice.
func TestIdentityIsTheHashOfTheSortedHashes(t *testing.T) {
	top, below := ID{1, 2}, ID{1, 3}
	type entry struct {
		in   ID
		name string
		stat unix.Stat_t
	}
	identity := func(entries ...entry) *Identity {
		i := newIdentifier(top, 10)
		for _, e := range entries {
			i.add(e.in, e.name, &e.stat)
		}
		return i.identity()
	}
	changed := unix.Timespec{Sec: 7}
	a := entry{top, "a", unix.Stat_t{Ino: 3, Mode: unix.S_IFDIR | 0o755, Ctim: changed}}
	b := entry{below, "b", unix.Stat_t{Ino: 4, Size: 5, Ctim: changed}}
	c := entry{below, "c", unix.Stat_t{Ino: 5, Nlink: 2, Ctim: changed}}
	is := identity(a, b, c)
	require.Equal(t, is, identity(c, a, b))
	for _, other := range []*Identity{identity(a, b, c, c), identity(a, b, b), identity(a, c, c)} {
		require.NotEqual(t, is.Tree, other.Tree)
		require.NotEqual(t, is.Moved, other.Moved)
	}

	sum := func(text string) string {
		hash := sha256.Sum256([]byte(text))
		return string(hash[:])
	}
	want := func(texts ...string) string {
		var all []string
		for _, text := range texts {
			all = append(all, sum(text))
		}
		slices.Sort(all)
		return hex.EncodeToString([]byte(sum(strings.Join(all, ""))))
	}
	text := func(e entry, in ID, changed unix.Timespec) string {
		return string(entryText(in, e.name, &e.stat, changed))
	}
	own := string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 1), 2))
	require.Equal(t, &Identity{
		Entries: 3,
		Tree:    want(own, text(a, ID{}, changed), text(b, below, changed), text(c, below, changed)),
		Moved:   want(text(a, ID{}, unix.Timespec{}), text(b, below, changed), text(c, below, unix.Timespec{})),
	}, is)
}

// TestHashesOfOneSum: hashes that add up to the same number have another identity.
func TestHashesOfOneSum(t *testing.T) {
	require.NotEqual(t, hashes{{31: 1}, {31: 4}}.sum(), hashes{{31: 2}, {31: 3}}.sum())
	require.NotEqual(t, hashes{{0: 0x80}, {0: 0x80}}.sum(), hashes{{}, {}}.sum())
	require.NotEqual(t, hashes{{}}.sum(), hashes{}.sum())
}
