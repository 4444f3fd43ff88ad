package evaluate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// maxList bounds the rows of a list.
const maxList = 1_000_000

// ListedScript is one row of a list of scripts.
type ListedScript struct {
	// Script is the path of the script; that in a file of a list is relative to the list. Name is the
	// name of the solution, by default [policy.NameOf] the file without .py.
	Script, Name string
	// Seed is the seed of the script; nil for none.
	Seed *uint32
	// Source is where the row stands, such as "list.jsonl:3".
	Source string
}

// ScriptNamed is a script without a list.
func ScriptNamed(path string) ListedScript {
	return ListedScript{Script: path, Name: nameOfFile(path), Source: path}
}

// nameOfFile is the name of the solution in a file, whatever the file is called.
func nameOfFile(path string) string {
	return policy.NameOf(strings.TrimSuffix(filepath.Base(path), ".py"))
}

// listError is one problem of a list, or of the scripts of a command line.
func listError(source string, line int, rule string, err error) error {
	e := &FileError{Path: source, Line: line, Rule: rule, Err: err}
	var knows interface{ Hint() string }
	switch {
	case errors.As(err, &knows):
		e.hint = knows.Hint()
	case line == 0:
		e.hint = `a script is called like its file, or as the member "name" of a list says`
	default:
		e.hint = `a list has one object per line: {"script": "svm.py", "name": "svm", "seed": 1}; only script is required`
	}
	return e
}

// LoadList reads a list of scripts: a file with one JSON object per line, with the members script,
// name and seed. Empty lines are left out. Everything that is wrong is reported, joined, with its
// line; rows with a problem are left out. The list may be a pipe; opening one waits for its writer.
func LoadList(path string) ([]ListedScript, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, listError(path, 0, fsx.Cause(err).Error(), err)
	}
	defer file.Close()
	return readList(file, path)
}

// readList reads an open list with the given path.
func readList(r io.Reader, path string) ([]ListedScript, error) {
	var rows []ListedScript
	var errs []error
	for line, err := range resultLines.Read(r) {
		if err != nil {
			return nil, errors.Join(append(errs, listError(path, line.Number, fsx.Cause(err).Error(), err))...)
		}
		if len(bytes.TrimSpace(line.Text)) == 0 {
			continue
		}
		row, err := parseRow(line.Text)
		if err != nil {
			errs = append(errs, listError(path, line.Number, err.Error(), err))
		} else {
			if !filepath.IsAbs(row.Script) {
				row.Script = filepath.Join(filepath.Dir(path), row.Script)
			}
			row.Source = path + ":" + strconv.Itoa(line.Number)
			rows = append(rows, row)
		}
		if len(rows) > maxList || len(errs) > maxViolations {
			return nil, errors.Join(append(errs, listError(path, 0, fmt.Sprintf("has more than %d rows or %d errors", maxList, maxViolations), nil))...)
		}
	}
	if len(rows) == 0 && len(errs) == 0 {
		errs = append(errs, listError(path, 0, "names no script", nil))
	}
	return rows, errors.Join(errs...)
}

// parseRow reads one line. Unknown and repeated members are refused.
func parseRow(line []byte) (row ListedScript, err error) {
	if !json.Valid(line) {
		return row, fmt.Errorf("is not JSON: %s", shown(strings.TrimSpace(string(line))))
	}
	decoder := json.NewDecoder(bytes.NewReader(line)) // finds no error
	if open, _ := decoder.Token(); open != json.Delim('{') {
		return row, errors.New("must be a JSON object")
	}
	for seen := map[string]bool{}; decoder.More(); {
		token, _ := decoder.Token()
		name := fmt.Sprint(token)
		var value json.RawMessage
		_ = decoder.Decode(&value)
		given := text.Short(string(value), maxShown)
		var seed *float64
		switch {
		case seen[name]:
			return row, fmt.Errorf("%s is given twice", shown(name))
		case name == "script" && (json.Unmarshal(value, &row.Script) != nil || row.Script == ""),
			name == "name" && (json.Unmarshal(value, &row.Name) != nil || row.Name == ""):
			return row, fmt.Errorf("%s %s must be a text", name, given)
		case name == "seed":
			if json.Unmarshal(value, &seed) != nil || seed == nil || *seed != math.Trunc(*seed) || *seed < 0 || *seed > math.MaxUint32 {
				return row, fmt.Errorf("seed %s must be a whole number from 0 to 4294967295", given)
			}
			row.Seed = new(uint32(*seed))
		case name != "script" && name != "name":
			return row, fmt.Errorf("%s is no member of a row", shown(name))
		}
		seen[name] = true
	}
	if row.Script == "" {
		return row, errors.New("script is missing")
	}
	row.Name = cmp.Or(row.Name, nameOfFile(row.Script))
	return row, policy.CheckName("name", row.Name)
}
