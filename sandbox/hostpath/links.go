package hostpath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// CheckLinks refuses a path that leads through a link in a directory that a program filled: the program
// may have made the link, and would choose which directory of this machine a run reads or empties.
func (p Protected) CheckLinks(field, path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return pathProblem(field, path, err)
	}
	at, rest := string(filepath.Separator), split(abs)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		target, err := os.Readlink(filepath.Join(at, name))
		if err != nil { // no link, or nothing: that shows when it is used
			at = filepath.Join(at, name)
			continue
		}
		if dir := p.filledAbove(at); dir != "" {
			return &spec.PathError{Field: field, Path: path,
				Rule: fmt.Sprintf("leads through the link %q in %s, which a program filled; give the path of the directory that is meant", filepath.Join(at, name), dir)}
		}
		if links++; links > maxLinks {
			return &spec.PathError{Field: field, Path: path, Rule: "cannot be used", Err: errTooMany}
		}
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		rest = append(split(target), rest...)
	}
	return nil
}

func split(path string) []string { return strings.Split(path, string(filepath.Separator)) }

// filledAbove is the directory that a program filled and that a path without links is or lies in; empty
// if there is none. Programs fill directories of the state directory, too.
func (p Protected) filledAbove(dir string) string {
	state := fsx.RealPath(p.StateDir)
	for ; ; dir = filepath.Dir(dir) {
		if p.Filled != nil && p.Filled(dir) || dir == state {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
