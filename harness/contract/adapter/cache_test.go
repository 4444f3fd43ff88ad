package adapter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
)

// Level L0 is kept for a day, and for as long as its document is the same.
func TestCache(t *testing.T) {
	dir := treetest.Dir(t, map[string]string{"a.yaml": adapterText("A", "")})
	file, state := filepath.Join(dir, "a.yaml"), t.TempDir()
	now := time.Now()
	open := func(refresh bool) (*Registry, *Cache) {
		t.Helper()
		c := OpenCache(state, refresh)
		c.now = func() time.Time { return now }
		r, err := Open(dir, nil, c)
		require.NoError(t, err)
		return r, c
	}
	known := func() bool {
		c := OpenCache(state, false)
		c.now = func() time.Time { return now }
		_, ok := c.get(file)
		return ok
	}
	require.False(t, known())
	open(false)
	require.True(t, known())
	info, err := os.Stat(file)
	require.NoError(t, err)

	// What is in the cache is used without reading the document.
	require.NoError(t, os.WriteFile(file, []byte(adapterText("B", "")), 0o600))
	require.NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	r, _ := open(false)
	require.Equal(t, "A", r.List("")[0].ID)
	_, err = r.Resolve("A", "T")
	require.ErrorContains(t, err, "was changed meanwhile")
	r, _ = open(true)
	require.Equal(t, "B", r.List("")[0].ID)

	// Another version, another time and another day are not.
	require.NoError(t, os.WriteFile(file, []byte(adapterText("C", "# longer")), 0o600))
	require.False(t, known())
	r, _ = open(false)
	require.Equal(t, "C", r.List("")[0].ID)
	require.True(t, known())
	now = now.Add(schemaAge - time.Second)
	require.True(t, known())
	now = now.Add(time.Second)
	require.False(t, known())
	open(false)
	require.True(t, known())
	now = now.Add(-time.Hour)
	require.False(t, known(), "it is of the future")
	now = now.Add(time.Hour)

	require.NoError(t, os.Chtimes(file, now, now.Add(-time.Hour)))
	require.False(t, known())
	open(false)
	require.NoError(t, os.Remove(file))
	require.False(t, known())
}

// A cache that cannot be read or written is empty.
func TestCacheIsBroken(t *testing.T) {
	dir := treetest.Dir(t, map[string]string{"a.yaml": adapterText("A", "")})
	for _, text := range []string{"{", `{"schema": "other/v1", "files": {}}`, `{"schema": "evalbox/adapter-cache/v1"}`, "null"} {
		state := treetest.Dir(t, map[string]string{"adapters.json": text})
		r, err := Open(dir, nil, OpenCache(state, false))
		require.NoError(t, err)
		require.Len(t, r.List(""), 1)
		_, ok := OpenCache(state, false).get(filepath.Join(dir, "a.yaml"))
		require.True(t, ok, "it is written again")
	}
	r, err := Open(dir, nil, OpenCache("/dev/null/cache", false))
	require.NoError(t, err)
	require.Len(t, r.List(""), 1)

	var none *Cache
	none.put(filepath.Join(dir, "a.yaml"), nil, entry{})
	_, ok := none.get(filepath.Join(dir, "a.yaml"))
	require.False(t, ok)
	_, ok = none.tools(&Adapter{})
	require.False(t, ok)
}

// The tools of a server are kept for an hour, for one document.
func TestCachedTools(t *testing.T) {
	state := t.TempDir()
	c := OpenCache(state, false)
	now := time.Now()
	c.now = func() time.Time { return now }
	a := &Adapter{digest: "aa"}
	_, ok := c.tools(a)
	require.False(t, ok)
	want := []Tool{{Name: "read", Description: "d", InputSchema: []byte(`{"type":"object"}`)}}
	c.keepTools(a, want)
	got, ok := c.tools(a)
	require.True(t, ok)
	require.Equal(t, want, got)
	_, ok = c.tools(&Adapter{digest: "bb"})
	require.False(t, ok)
	now = now.Add(toolAge - time.Second)
	_, ok = c.tools(a)
	require.True(t, ok)
	now = now.Add(time.Second)
	_, ok = c.tools(a)
	require.False(t, ok)
	now = now.Add(-toolAge)
	_, ok = c.tools(a)
	require.True(t, ok)
	OpenCache(state, true)
	_, ok = c.tools(a)
	require.False(t, ok, "refresh forgets them")
}
