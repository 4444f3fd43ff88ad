package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/probe"
)

// A column is the verdicts of one engine.
type column struct {
	Engine   string          `json:"engine"`
	Verdicts []probe.Verdict `json:"verdicts"`
}

// collector gathers the verdicts of all tests.
type collector struct {
	mu  sync.Mutex
	all []probe.Verdict
}

func (c *collector) add(verdicts ...probe.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, verdicts...)
}

// save writes a column into the directory of a table, and the table of all its columns.
func (c *collector) save(dir, engine string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(column{engine, c.all})
	if err != nil {
		return err
	}
	if err := fsx.WriteFile(filepath.Join(dir, fileName(engine)), text, 0o644, false); err != nil {
		return err
	}
	return writeTable(dir)
}

// writeTable writes table.txt of all columns in a directory.
func writeTable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	columns, err := readColumns(dir)
	if err != nil {
		return err
	}
	var table strings.Builder
	err = printTable(&table, columns)
	return errors.Join(err, fsx.WriteFile(filepath.Join(dir, "table.txt"), []byte(table.String()), 0o644, false))
}

func fileName(engine string) string {
	return strings.NewReplacer(" ", "-", "/", "-").Replace(engine) + ".json"
}

// readColumns reads all columns of a directory, sorted by engine.
func readColumns(dir string) (columns []column, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var c column
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// printTable prints probes against engines: ok, DIFFERS, or a dash where a probe was not asked.
func printTable(w io.Writer, columns []column) error {
	type row struct{ group, name string }
	var rows []row
	cells := map[row]map[string]string{}
	var reasons []string
	for _, c := range columns {
		for _, v := range c.Verdicts {
			r := row{v.Group, v.Name}
			if cells[r] == nil {
				cells[r] = map[string]string{}
				rows = append(rows, r)
			}
			cells[r][c.Engine] = "ok"
			if len(v.Differs) > 0 {
				cells[r][c.Engine] = "DIFFERS"
				reasons = append(reasons, fmt.Sprintf("%s: %s/%s: %s", c.Engine, v.Group, v.Name, strings.Join(v.Differs, "; ")))
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.group, b.group) })
	var text strings.Builder
	fmt.Fprintf(&text, "%-12s %-45s", "group", "probe")
	for _, c := range columns {
		fmt.Fprintf(&text, " %-22s", c.Engine)
	}
	text.WriteString("\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "%-12s %-45s", r.group, strings.ReplaceAll(r.name, "_", " "))
		for _, c := range columns {
			cell := cells[r][c.Engine]
			if cell == "" {
				cell = "-"
			}
			fmt.Fprintf(&text, " %-22s", cell)
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "%d probes", len(rows))
	for _, c := range columns {
		ok := 0
		for _, v := range c.Verdicts {
			if len(v.Differs) == 0 {
				ok++
			}
		}
		fmt.Fprintf(&text, "; %s: %d ok, %d differ", c.Engine, ok, len(c.Verdicts)-ok)
	}
	text.WriteString("\n")
	for _, reason := range reasons {
		text.WriteString(reason + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}
