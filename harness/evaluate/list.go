package evaluate

import (
	"bufio"
	"bytes"
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
	// Script is the path of the script; that of a file of a list is relative to the
	// list. Name is the name of the solution, by default that of the file without .py.
	Script, Name string
	// Seed is the seed of the script; nil for none.
	Seed *uint32
	// Source says where the row stands, as "list.jsonl:3".
	Source string
}

// ScriptNamed is a script without a list.
func ScriptNamed(path string) ListedScript {
	return ListedScript{Script: path, Name: nameOfFile(path), Source: path}
}

func nameOfFile(path string) string { return strings.TrimSuffix(filepath.Base(path), ".py") }

// A ListError is one thing that is wrong with a list of scripts.
type ListError struct {
	// Source is the list, or a script of none; Line the line in it, or 0; Rule what is
	// wrong.
	Source string
	Line   int
	Rule   string
	// Err is the cause, if there is one.
	Err error
}

func (e *ListError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.Source, e.Line, e.Rule)
	}
	return fmt.Sprintf("%s: %s", e.Source, e.Rule)
}

func (e *ListError) Unwrap() error { return e.Err }

// Hint says what a list is, or how scripts get their names.
func (e *ListError) Hint() string {
	var knows interface{ Hint() string }
	switch {
	case errors.As(e.Err, &knows):
		return knows.Hint()
	case e.Line == 0:
		return `a script is called like its file, or as the member "name" of a list says`
	}
	return `a list has one object per line: {"script": "svm.py", "name": "svm", "seed": 1}; only script is required`
}

// LoadList reads a list of scripts: a file with one JSON object per line, with the
// members script, name and seed. Empty lines are left out. Everything that is wrong is
// reported, joined, with its line. The list may be a pipe; opening one waits for its
// writer.
func LoadList(path string) ([]ListedScript, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, &ListError{Source: path, Rule: fsx.Cause(err).Error(), Err: err}
	}
	defer file.Close()
	return parseList(file, path)
}

// ReadList is [LoadList] for a list that is open already. source is its name in messages,
// and the file that relative scripts are relative to.
func ReadList(r io.Reader, source string) ([]ListedScript, error) { return parseList(r, source) }

func parseList(r io.Reader, source string) ([]ListedScript, error) {
	var rows []ListedScript
	var errs []error
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := readLine(lines, nil)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, errors.Join(append(errs, &ListError{Source: source, Line: number, Rule: fsx.Cause(err).Error(), Err: err})...)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			row, rowErr := parseRow(line)
			if rowErr != nil {
				errs = append(errs, &ListError{Source: source, Line: number, Rule: rowErr.Error(), Err: rowErr})
			}
			if !filepath.IsAbs(row.Script) {
				row.Script = filepath.Join(filepath.Dir(source), row.Script)
			}
			row.Source = source + ":" + strconv.Itoa(number)
			rows = append(rows, row)
		}
		if len(rows) > maxList || len(errs) > maxViolations {
			return nil, errors.Join(append(errs, &ListError{Source: source, Rule: fmt.Sprintf("has more than %d rows or %d errors", maxList, maxViolations)})...)
		}
		if err != nil {
			break
		}
	}
	if len(rows) == 0 {
		errs = append(errs, &ListError{Source: source, Rule: "names no script"})
	}
	return rows, errors.Join(errs...)
}

// parseRow reads one line. Unknown and repeated members are refused.
func parseRow(line []byte) (ListedScript, error) {
	var row ListedScript
	if !json.Valid(line) {
		return row, fmt.Errorf("is not JSON: %s", shown(strings.TrimSpace(string(line))))
	}
	members, err := objectMembers(line)
	if err != nil {
		return row, errors.New("must be a JSON object")
	}
	seen := map[string]bool{}
	for _, m := range members {
		if seen[m.name] {
			return row, fmt.Errorf("%s is given twice", shown(m.name))
		}
		seen[m.name] = true
		switch m.name {
		case "script", "name":
			target := &row.Script
			if m.name == "name" {
				target = &row.Name
			}
			if json.Unmarshal(m.value, target) != nil || *target == "" {
				return row, fmt.Errorf("%s %s must be a text", m.name, text.Short(string(m.value), maxShown))
			}
		case "seed":
			n, err := wholeNumber(m.value)
			if err != nil || n < 0 || n > math.MaxUint32 {
				return row, fmt.Errorf("seed %s must be a whole number from 0 to 4294967295", text.Short(string(m.value), maxShown))
			}
			row.Seed = new(uint32(n))
		default:
			return row, fmt.Errorf("%s is no member of a row", shown(m.name))
		}
	}
	if row.Script == "" {
		return row, errors.New("script is missing")
	}
	if row.Name == "" {
		row.Name = nameOfFile(row.Script)
	}
	if err := policy.CheckName("name", row.Name); err != nil {
		return row, err
	}
	return row, nil
}
