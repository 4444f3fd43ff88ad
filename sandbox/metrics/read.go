package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// lines is the form of the file.
var lines = fsx.Lines{Start: `{"schema":"` + SchemaV1 + `"`, Max: 64 << 10}

// Read returns the points of the record in dir, in the order in which they were written, also while
// the run goes on. The file may be missing. A torn last line is left out. An error is the last
// element.
func Read(dir string) iter.Seq2[Point, error] {
	return func(yield func(Point, error) bool) {
		path := filepath.Join(dir, File)
		file, err := fsx.Open(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield(Point{}, fmt.Errorf("%s: %w", path, fsx.Cause(err)))
			}
			return
		}
		defer file.Close()
		for line, err := range lines.Read(file) {
			var p Point
			if err == nil {
				if line.Torn {
					return
				}
				err = json.Unmarshal(line.Text, &p)
			}
			if err == nil && p.Schema != SchemaV1 {
				err = fmt.Errorf("schema is %q, want %q", p.Schema, SchemaV1)
			}
			if err != nil {
				err = fmt.Errorf("%s:%d: %w", path, line.Number, err)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}
