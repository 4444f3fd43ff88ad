package tree

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// gitGuard keeps changes away from where Git looks for commands to execute: a hook, or
// a program that a configuration names, would run with the rights of the next person
// who asks for the status of the repository.
type gitGuard struct {
	// inside says that the folder of the tree is, or lies in, what is of Git.
	inside bool
	// names are those that the folder of each path holds or is to hold, in small
	// letters.
	names map[string]map[string]bool
	// there reports whether the host has a path below the folder of the tree.
	there func(name string) bool
}

// What may be executed, or leads to it, beside the file HEAD of a repository.
var gitCommands = []string{"config", "config.worktree", "hooks", "commondir", "gitdir"}

const (
	gitHead   = "head"
	ruleOfGit = "is of Git, which executes what it holds: apply it by hand, or say that Git's own files may be written"
)

func newGitGuard(source string, there func(string) bool, lists ...[]Entry) gitGuard {
	g := gitGuard{names: map[string]map[string]bool{}, there: there}
	for at := source; at != filepath.Dir(at) && !g.inside; at = filepath.Dir(at) {
		g.inside = isGitFolder(filepath.Base(at))
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

// refuse says why a change is not applied, or nothing.
func (g gitGuard) refuse(e Entry) string {
	if g.inside {
		return ruleOfGit
	}
	dir := "."
	for name := range strings.SplitSeq(e.Path, "/") {
		plain := plainName(name)
		switch {
		case isGitFolder(name),
			slices.Contains(gitCommands, plain) && g.has(dir, gitHead, "HEAD"),
			plain == gitHead && slices.ContainsFunc(gitCommands, func(c string) bool { return g.has(dir, c, c) }):
			return ruleOfGit
		}
		dir = path.Join(dir, name)
	}
	return ""
}

// has reports whether a folder holds a name, or is to hold it.
func (g gitGuard) has(dir, plain, name string) bool {
	return g.names[dir][plain] || g.there(path.Join(dir, name))
}

// isGitFolder knows the name .git in all forms that file systems take for it.
func isGitFolder(name string) bool {
	plain := plainName(name)
	return plain == ".git" || plain == "git~1"
}

// plainName is a name as file systems that do not care about case compare it: some
// also leave out characters that cannot be seen, and dots, blanks and what follows a
// colon at the end.
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
