package normalize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/evalbox/evalbox/internal/hostfile"
)

// writeJSON writes one document of a gate directory.
func writeJSON(root *os.Root, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(tree); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return root.WriteFile(name, out.Bytes(), 0o644)
}

// readJSON reads one document of a gate directory of at most limit bytes.
func readJSON(root *os.Root, name string, limit int64, v any) error {
	file, _, err := hostfile.OpenIn(root, name)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}
