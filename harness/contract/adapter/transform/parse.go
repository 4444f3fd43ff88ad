package transform

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxPattern bounds a pattern or a path, in bytes.
	maxPattern = 1000
	// maxColumns bounds the columns of a table.
	maxColumns = 1000
)

// compileParse compiles the reading of a text.
func compileParse(spec any, report report) func(any) (any, error) {
	words := map[string]func(string) (any, error){"json": parseJSON, "json_lines": parseJSONLines, "csv": parseCSV, "lines": parseLines}
	var parse func(string) (any, error)
	switch spec := spec.(type) {
	case string:
		var known bool
		if parse, known = words[spec]; !known {
			report("", strict.Quoted(spec), "must be one of "+text.List(sorted(words))+", or a mapping {regex: PATTERN}")
		}
	case map[string]any:
		parse = compileRegex(spec, report)
	default:
		report("", shown(spec), "must be one of "+text.List(sorted(words))+", or a mapping {regex: PATTERN}, is "+kindOf(spec))
	}
	return func(value any) (any, error) {
		whole, ok := value.(string)
		switch {
		case !ok:
			return nil, fmt.Errorf("must be text, is %s", kindOf(value))
		case len(whole) > maxText:
			return nil, fmt.Errorf("has %s; at most %s", text.Size(int64(len(whole))), text.Size(maxText))
		}
		return parse(whole)
	}
}

// parseJSON reads one document.
func parseJSON(whole string) (any, error) { return new(counter).json(whole) }

// parseJSONLines reads one document in each line. Blank lines are not documents.
func parseJSONLines(whole string) (any, error) {
	c, all := new(counter), []any{}
	n := 0
	for line := range linesOf(whole) {
		if n++; strings.TrimSpace(line) == "" {
			continue
		}
		if len(all) == maxElements {
			return nil, fmt.Errorf("line %d: %w", n, errElements)
		}
		value, err := c.json(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, value)
	}
	return all, nil
}

var errElements = fmt.Errorf("a list has more than %d elements", maxElements)

// linesOf are the lines of a text without their ends. A line end at the end of the text does
// not begin a line.
func linesOf(whole string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(whole) {
			if before, ended := strings.CutSuffix(line, "\n"); ended {
				line = strings.TrimSuffix(before, "\r")
			}
			if !yield(line) {
				return
			}
		}
	}
}

// parseLines reads a list of lines.
func parseLines(whole string) (any, error) {
	all := []any{}
	for line := range linesOf(whole) {
		if len(all) == maxElements {
			return nil, errElements
		}
		all = append(all, line)
	}
	return all, nil
}

// parseCSV reads records (RFC 4180) as objects. The first line has their keys.
func parseCSV(whole string) (any, error) {
	// Spreadsheets write a mark in front, which is not part of the first name.
	r := csv.NewReader(strings.NewReader(strings.TrimPrefix(whole, "\ufeff")))
	header, err := r.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("must have a first line with the names of the columns")
	case err != nil:
		return nil, csvError(err)
	}
	if err := checkHeader(header); err != nil {
		line, _ := r.FieldPos(0)
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	c, all := new(counter), []any{}
	for {
		record, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case errors.Is(err, csv.ErrFieldCount):
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("line %d: has %s, the first line has %d", line, text.Count(len(record), "column"), len(header))
		case err != nil:
			return nil, csvError(err)
		case len(all) == maxElements:
			return nil, errElements
		}
		object := make(map[string]any, len(header))
		for i, name := range header {
			if err := c.add(); err != nil {
				return nil, err
			}
			object[name] = record[i]
		}
		all = append(all, object)
	}
}

// checkHeader says whether each column has a name of its own.
func checkHeader(header []string) error {
	known := map[string]bool{}
	for i, name := range header {
		switch {
		case i >= maxColumns:
			return fmt.Errorf("has more than %d columns", maxColumns)
		case name == "":
			return fmt.Errorf("column %d must have a name", i+1)
		case known[name]:
			return fmt.Errorf("column %s is given twice", strict.Quoted(name))
		}
		known[name] = true
	}
	return nil
}

// csvError names the line of a mistake.
func csvError(err error) error {
	var mistake *csv.ParseError
	if errors.As(err, &mistake) {
		return fmt.Errorf("line %d: %w", mistake.Line, mistake.Err)
	}
	return err
}

// compileRegex compiles {regex: PATTERN}.
func compileRegex(spec map[string]any, report report) func(string) (any, error) {
	if value, ok := spec["regex"]; !ok || len(spec) != 1 {
		report("", "", "must have the key regex and no other; it has "+listed(sorted(spec)))
		return nil
	} else if _, ok := value.(string); !ok {
		report(".regex", shown(value), "must be text, is "+kindOf(value))
		return nil
	}
	pattern, _ := spec["regex"].(string)
	if pattern == "" || len(pattern) > maxPattern {
		report(".regex", strict.Quoted(pattern), fmt.Sprintf("must have 1 to %d bytes", maxPattern))
		return nil
	}
	r, err := regexp.Compile(pattern)
	if err != nil {
		report(".regex", strict.Quoted(pattern), "must be a regular expression (RE2): "+reason(err))
		return nil
	}
	return func(whole string) (any, error) { return parseRegex(whole, r) }
}

// parseRegex lists the matches. A named group that is not part of a match is null.
func parseRegex(whole string, r *regexp.Regexp) (any, error) {
	matches := r.FindAllStringSubmatchIndex(whole, maxElements+1)
	if len(matches) > maxElements {
		return nil, errElements
	}
	names := r.SubexpNames()
	named := slices.ContainsFunc(names, func(name string) bool { return name != "" })
	c, all := new(counter), make([]any, len(matches))
	for i, match := range matches {
		if !named {
			all[i] = whole[match[0]:match[1]]
			continue
		}
		object := map[string]any{}
		for group, name := range names {
			if name == "" {
				continue
			}
			if err := c.add(); err != nil {
				return nil, err
			}
			object[name] = nil
			if from, to := match[2*group], match[2*group+1]; from >= 0 {
				object[name] = whole[from:to]
			}
		}
		all[i] = object
	}
	return all, nil
}
