package wish

import (
	"path"
	"strings"
)

// Match reports whether a path matches a pattern of artifacts. Both are relative, with
// forward slashes. A pattern is that of [path.Match] for each segment; the segment **
// stands for any number of folders, none as well. A pattern that [Parse] took is never
// malformed.
func Match(pattern, name string) bool {
	return match(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

// match tells after each segment of the pattern which beginnings of the name it can have
// taken, so that a pattern of many ** takes no longer than the product of both lengths.
func match(pattern, name []string) bool {
	taken := make([]bool, len(name)+1)
	taken[0] = true
	for _, segment := range pattern {
		next := make([]bool, len(name)+1)
		for i := range taken {
			switch {
			case segment == "**":
				next[i] = taken[i] || i > 0 && next[i-1]
			case i > 0 && taken[i-1]:
				ok, err := path.Match(segment, name[i-1])
				next[i] = ok && err == nil
			}
		}
		taken = next
	}
	return taken[len(name)]
}
