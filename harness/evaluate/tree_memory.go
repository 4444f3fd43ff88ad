package evaluate

import (
	"encoding/json"
	"io/fs"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
)

// treeMemory remembers the hashes of files by what changes when they do.
type treeMemory struct {
	began time.Time
	known map[string]rememberedFile
	mu    sync.Mutex
	seen  map[string]rememberedFile
	fresh bool // something was read
}

// rememberedFile is a file as it was when it was hashed.
type rememberedFile struct {
	Size  int64    `json:"size"`
	Stamp [4]int64 `json:"stamp"`
	Hash  string   `json:"hash"`
}

// maxTreeMemory bounds a memory that is read: some million files.
const maxTreeMemory = 1 << 30

// treeMemorySchema names the wire form of the memory.
const treeMemorySchema = "evalbox/tree-memory/v2"

type treeMemoryFile struct {
	Schema string                    `json:"schema"`
	Files  map[string]rememberedFile `json:"files"`
}

// loadTreeMemory reads a memory. It is only a saving: what cannot be read is not
// there.
func loadTreeMemory(path string) *treeMemory {
	m := &treeMemory{began: time.Now(), seen: map[string]rememberedFile{}}
	if path == "" {
		return m
	}
	var file treeMemoryFile
	if text, err := fsx.Read(path, maxTreeMemory); err == nil && json.Unmarshal(text, &file) == nil && file.Schema == treeMemorySchema {
		m.known = file.Files
	}
	return m
}

// recall returns the hash of a file that did not change since it was remembered.
func (m *treeMemory) recall(rel string, info fs.FileInfo) (string, bool) {
	stamp, _, ok := stampOf(info)
	known, there := m.known[rel]
	if !ok || !there || known.Size != info.Size() || known.Stamp != stamp || known.Hash == "" {
		return "", false
	}
	return known.Hash, true
}

// settled is how long a file must have been left alone to be remembered: a change
// within the resolution of its times would not be seen.
const settled = 2 * time.Second

// remember notes the hash of a file, and whether it was read for it.
func (m *treeMemory) remember(rel string, info fs.FileInfo, sum string, read bool) {
	stamp, changed, ok := stampOf(info)
	if !ok || m.began.Sub(changed) < settled {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh = m.fresh || read
	m.seen[rel] = rememberedFile{Size: info.Size(), Stamp: stamp, Hash: sum}
}

// save writes the memory of this walk, if it is another than before. That it cannot be
// written costs time only.
func (m *treeMemory) save(path string) {
	if path == "" || !m.fresh && len(m.seen) == len(m.known) {
		return
	}
	text, err := json.Marshal(treeMemoryFile{Schema: treeMemorySchema, Files: m.seen})
	if err == nil {
		_ = fsx.WriteFile(path, text, 0o644, false)
	}
}
