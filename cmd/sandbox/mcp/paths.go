package mcp

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A rootDir is the only directory of this machine whose files an agent may name.
type rootDir struct {
	// path and state are absolute, links resolved. state is the state directory, which holds the
	// records of others and may lie in the root.
	path, state string
}

func openRoot(dir, state string) (rootDir, error) {
	abs, err := filepath.Abs(dir)
	if err == nil && !fsx.IsDir(abs) {
		err = &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	if err != nil {
		return rootDir{}, &spec.PathError{Field: "root", Path: dir, Rule: "is not a directory", Err: fsx.Cause(err)}
	}
	r := rootDir{fsx.RealPath(abs), fsx.RealPath(state)}
	if r.path == filepath.Dir(r.path) || fsx.Within(r.path, r.state) {
		return rootDir{}, &spec.PathError{Field: "root", Path: dir, Rule: "is the root of a file system, or lies in the state directory"}
	}
	return r, nil
}

// holdsNone refuses files of the operator that say what an agent may do, if an agent could change them.
func (r rootDir) holdsNone(s settings.Settings) error {
	for _, f := range []struct{ flag, path string }{{"adapters", s.Adapters}, {"registry", s.ToolRegistry}, {"profiles", s.Profiles}} {
		abs, err := filepath.Abs(f.path)
		if f.path != "" && (err != nil || fsx.Within(fsx.RealPath(abs), r.path)) {
			return cli.WithHint(fmt.Errorf("--%s %s: lies in the root, where agents can change it", f.flag, f.path), "move it out of the directory of --root")
		}
	}
	return nil
}

const rootHint = "give a path below the root, relative to it; links may not lead out of it"

// resolve returns the absolute path of a file that an agent names, with links resolved. The last
// parts need not exist. A path that leads out of the root is refused.
func (r rootDir) resolve(field, asked string) (string, error) {
	shown := text.Quote(asked, 200)
	switch {
	case asked == "":
		return "", refusef(rootHint, "%s: is empty", field)
	case strings.ContainsRune(asked, 0) || !utf8.ValidString(asked):
		return "", refusef(rootHint, "%s %s: is not a path", field, shown)
	}
	abs := asked
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(r.path, asked)
	}
	real := fsx.RealPath(filepath.Clean(abs))
	if rule := r.broken(real); rule != "" {
		return "", refusef(rootHint, "%s %s: %s", field, shown, rule)
	}
	return real, nil
}

// broken is the rule that a resolved path breaks; empty for none.
func (r rootDir) broken(real string) string {
	if !fsx.Within(real, r.path) {
		return "is not below the root of this server"
	}
	if fsx.Within(real, r.state) || fsx.Within(r.state, real) {
		return "is, holds or lies in the state directory, which holds the records of others"
	}
	for at := real; at != r.path; at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "is or passes a link that leads nowhere"
		}
	}
	return ""
}

// read reads a file that was resolved. The file is opened below the root, so nothing that takes
// its place meanwhile leads out of it.
func (r rootDir) read(field, real string, limit int64) (content []byte, err error) {
	rel, err := filepath.Rel(r.path, real)
	if err == nil {
		err = fsx.InRoot(r.path, func(root *os.Root) error {
			content, err = fsx.ReadIn(root, rel, limit)
			return err
		})
	}
	if err != nil {
		return nil, refusef(rootHint, "%s %s: %v", field, text.Quote(rel, 200), fsx.Cause(err))
	}
	return content, nil
}

// places are the paths that the running calls use. Outputs of a program come to its ./final while
// another call reads what it names: so a call may not name a path in the ./final of a running one.
type places struct {
	mu   sync.Mutex
	used map[*place]bool
}

// A place is what one call uses: the files that it names, and the ./final of its program.
type place struct {
	paths []string
	final string
}

// claim takes a place until release is called.
func (p *places) claim(one *place) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.used {
		if name := clash(one, other); name != "" {
			return nil, refusef("wait for the end of the other call, or name another directory",
				"%s: is used by a call that runs, whose program writes there", text.Quote(name, 200))
		}
	}
	if p.used == nil {
		p.used = map[*place]bool{}
	}
	p.used[one] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.used, one)
	}, nil
}

// clash is a path that two calls cannot both use; empty for none.
func clash(a, b *place) string {
	for _, pair := range [][2]*place{{a, b}, {b, a}} {
		if pair[0].final == "" {
			continue
		}
		for _, path := range append(pair[1].paths, pair[1].final) {
			if path != "" && (fsx.Within(path, pair[0].final) || fsx.Within(pair[0].final, path) && path == pair[1].final) {
				return path
			}
		}
	}
	return ""
}

// A refusal is an input that a rule of this server refuses.
type refusal struct{ rule, hint string }

func (e *refusal) Error() string { return e.rule }

// Hint says what to try.
func (e *refusal) Hint() string { return e.hint }

func refusef(hint, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), hint}
}
