package tree

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// gitGuard refuses changes to files in which Git looks for commands to execute. A hook, or
// a program that a configuration names, would run with the rights of the next user of the
// repository, even for `git status`.
type gitGuard struct {
	// inside says that the tree is, or lies in, a directory of Git's own files.
	inside bool
	// names are the names that the changes make, by directory, in the form of
	// [plainName].
	names map[string]map[string]bool
	// there reports whether a path exists in the tree on the host.
	there func(name string) bool
}

// gitCommands are the names beside the file HEAD of a repository that Git executes, or
// through which it finds a program to execute.
var gitCommands = []string{"config", "config.worktree", "hooks", "commondir", "gitdir"}

const (
	gitHead   = "head"
	ruleOfGit = "is of Git, which executes what it holds: apply it by hand, or say that Git's own files may be written"
)

func newGitGuard(source string, there func(string) bool, lists ...[]Entry) gitGuard {
	g := gitGuard{names: map[string]map[string]bool{}, there: there}
	for at := source; at != filepath.Dir(at) && !g.inside; at = filepath.Dir(at) {
		g.inside = isGitDir(filepath.Base(at))
		if !g.inside && slices.Contains(gitCommands, plainName(filepath.Base(at))) {
			_, err := os.Lstat(filepath.Join(filepath.Dir(at), "HEAD"))
			g.inside = err == nil
		}
	}
	for _, list := range lists {
		for _, e := range list {
			dir := path.Dir(e.Path)
			if g.names[dir] == nil {
				g.names[dir] = map[string]bool{}
			}
			g.names[dir][plainName(path.Base(e.Path))] = true
		}
	}
	return g
}

// refuse returns why a change is not applied; empty if it may be.
func (g gitGuard) refuse(e Entry) string {
	if g.inside {
		return ruleOfGit
	}
	dir := "."
	for name := range strings.SplitSeq(e.Path, "/") {
		plain := plainName(name)
		switch {
		case isGitDir(name),
			slices.Contains(gitCommands, plain) && g.has(dir, gitHead, "HEAD"),
			plain == gitHead && slices.ContainsFunc(gitCommands, func(c string) bool { return g.has(dir, c, c) }):
			return ruleOfGit
		}
		dir = path.Join(dir, name)
	}
	return ""
}

// has reports whether a directory holds a name, or will hold it after the changes.
func (g gitGuard) has(dir, plain, name string) bool {
	return g.names[dir][plain] || g.there(path.Join(dir, name))
}

// isGitDir reports whether a file system may take the name for .git.
func isGitDir(name string) bool {
	plain := plainName(name)
	return plain == ".git" || plain == "git~1"
}

// plainName returns a name in the form in which file systems compare names that ignore
// case. Some of them also ignore invisible characters, dots and blanks at the end, and a
// colon with the text after it.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	if i := strings.IndexByte(name, ':'); i > 0 {
		name = name[:i]
	}
	return strings.TrimRight(name, ". ")
}
