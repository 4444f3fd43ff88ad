package tree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// line is one entry in a file: one JSON array per line, so that a base of any size is
// written and read in one pass. Names are bytes, which JSON has in base64.
type line struct {
	Path   []byte      `json:"path"`
	Kind   string      `json:"kind"`
	Size   int64       `json:"size_bytes"`
	SHA256 string      `json:"sha256,omitempty"`
	Mode   fs.FileMode `json:"mode"`
	Target []byte      `json:"target,omitempty"`
	Ours   bool        `json:"ours,omitempty"`
}

// Write writes a base.
func (b Base) Write(to io.Writer) error {
	out := bufio.NewWriter(to)
	enc := json.NewEncoder(out)
	for _, name := range sortedKeys(b) {
		e := b[name]
		if err := enc.Encode(line{[]byte(name), e.Kind, e.Size, e.SHA256, e.Mode, []byte(e.Target), e.Ours}); err != nil {
			return err
		}
	}
	return out.Flush()
}

// ReadBase reads what [Base.Write] wrote.
func readBase(from io.Reader) (Base, error) {
	dec, base := json.NewDecoder(bufio.NewReader(from)), Base{}
	for {
		var l line
		err := dec.Decode(&l)
		if errors.Is(err, io.EOF) {
			return base, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading what a copy began with: %w", err)
		}
		name := string(l.Path)
		base[name] = Entry{name, l.Kind, l.Size, l.SHA256, l.Mode, string(l.Target), l.Ours}
	}
}
