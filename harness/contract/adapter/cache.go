package adapter

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// schemaAge is how long level L0 of an adapter is kept, and toolAge how long the description of
	// the tools of a server is (DT-02).
	schemaAge = 24 * time.Hour
	toolAge   = time.Hour
	// maxCache bounds a file of the cache, in bytes.
	maxCache = 64 << 20
)

// Cache keeps level L0 of adapters, and the tools that servers described, in a directory (DT-02).
// What is too old, or is of another version of a document, is not used. A cache that cannot be
// read or written is empty: what it has can be found out again. A nil Cache is empty.
type Cache struct {
	dir     string
	now     func() time.Time
	files   map[string]cachedFile
	changed bool
}

// cachedFile is one document. It is used while its file is the same.
type cachedFile struct {
	Kept     time.Time `json:"kept"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Entry    entry     `json:"entry"`
}

const cacheSchema = "evalbox/adapter-cache/v1"

type cacheDocument struct {
	Schema string                `json:"schema"`
	Files  map[string]cachedFile `json:"files"`
}

// OpenCache opens the cache in a directory, which need not exist. refresh forgets what it has.
func OpenCache(dir string, refresh bool) *Cache {
	c := &Cache{dir: dir, now: time.Now, files: map[string]cachedFile{}}
	var d cacheDocument
	text, err := fsx.Read(c.index(), maxCache)
	if err == nil && !refresh && json.Unmarshal(text, &d) == nil && d.Schema == cacheSchema && d.Files != nil {
		c.files = d.Files
	}
	if refresh {
		_ = os.RemoveAll(filepath.Join(dir, "tools")) // what is left is overwritten, or too old soon
	}
	return c
}

func (c *Cache) index() string { return filepath.Join(c.dir, "adapters.json") }

// get returns level L0 of the document in a file.
func (c *Cache) get(file string) (entry, bool) {
	if c == nil {
		return entry{}, false
	}
	have, ok := c.files[file]
	info, err := os.Lstat(file)
	age := c.now().Sub(have.Kept)
	return have.Entry, ok && err == nil && age >= 0 && age < schemaAge && info.Size() == have.Size && info.ModTime().Equal(have.Modified)
}

// put keeps level L0 of a document. info is that of its file before it was read; nil keeps nothing.
func (c *Cache) put(file string, info os.FileInfo, e entry) {
	if c == nil || info == nil {
		return
	}
	c.files[file] = cachedFile{Kept: c.now(), Size: info.Size(), Modified: info.ModTime(), Entry: e}
	c.changed = true
}

// write keeps the cache, if it has changed.
func (c *Cache) write() {
	if !c.changed {
		return
	}
	for file, each := range c.files {
		if c.now().Sub(each.Kept) >= schemaAge {
			delete(c.files, file)
		}
	}
	c.store(c.index(), cacheDocument{cacheSchema, c.files})
	c.changed = false
}

// store writes a file of the cache. Without it the next process finds the same out again.
func (c *Cache) store(file string, value any) {
	text, err := json.Marshal(value)
	if err == nil && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = fsx.WriteFile(file, text, 0o600, false)
	}
}

// cachedTools are the tools of one server.
type cachedTools struct {
	Kept  time.Time `json:"kept"`
	Tools []Tool    `json:"tools"`
}

// tools returns the tools that the server of an adapter described within the last hour.
func (c *Cache) tools(a *Adapter) ([]Tool, bool) {
	if c == nil {
		return nil, false
	}
	var t cachedTools
	text, err := fsx.Read(c.toolFile(a), maxCache)
	if err != nil || json.Unmarshal(text, &t) != nil {
		return nil, false
	}
	age := c.now().Sub(t.Kept)
	return t.Tools, age >= 0 && age < toolAge
}

func (c *Cache) keepTools(a *Adapter, tools []Tool) {
	c.store(c.toolFile(a), cachedTools{c.now(), tools})
}

// toolFile is named after the content of the adapter: another version has another file.
func (c *Cache) toolFile(a *Adapter) string { return filepath.Join(c.dir, "tools", a.digest+".json") }
