package normalize

import (
	"path"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
)

// ours are the names of evidence, relative to the boundary: no gate has any business to
// make them.
var ours = []string{evidence.Dir, evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile, evidence.WishLockFile, evidence.AttestationFile}

// changedOf finds the changes of the copy that nobody may make: to read-only and
// protected paths, and to files with the names of evidence. The lists are complete if
// nothing of that kind can be missing from what the sandbox told.
func changedOf(r result.Result, m evidence.RunManifest) (changed, made []string, complete bool) {
	c := forbidden{paths: [2][]string{append(append([]string{}, m.ReadOnlyPaths...), m.ProtectedPaths...), ours}, complete: true}
	c.found = [2]set{{}, {}}
	told := false
	for _, tree := range r.Trees {
		if tree.Target != evidence.Boundary {
			continue
		}
		told = true
		c.complete = c.complete && tree.Complete
		for _, list := range [][]result.TreeEntry{tree.Created, tree.Changed, tree.Deleted} {
			for _, entry := range list {
				c.entry(entry.Path)
			}
		}
		for _, left := range tree.Skipped {
			c.left(left)
		}
	}
	if !told && r.Status != result.StatusStartFailed {
		c.complete = false // something ran, and nobody looked at what it left
	}
	return c.found[0].without(nil), c.found[1].without(nil), c.complete
}

// forbidden collects changes of read-only paths and of evidence, in this order.
type forbidden struct {
	paths    [2][]string
	found    [2]set
	complete bool
}

// entry takes a path that was created, changed or deleted.
func (c *forbidden) entry(name string) {
	for i, paths := range c.paths {
		if within(name, paths) {
			c.found[i][name] = true
		}
	}
}

// left takes what the sandbox left out of the lists. A link, a FIFO and a file that is
// too large are there all the same, and whatever was in their place is not; of a folder,
// and of what was not looked at, nobody knows.
func (c *forbidden) left(s result.SkippedOutput) {
	switch s.Kind {
	case "directory", "other":
		at := s.Path
		if s.Kind == "other" {
			at = path.Dir(at) // nor is it known what lies beside it
		}
		for _, paths := range c.paths {
			if at == "." || within(at, paths) || above(at, paths) {
				c.complete = false
			}
		}
	default:
		for i, paths := range c.paths {
			if within(s.Path, paths) || above(s.Path, paths) {
				c.found[i][s.Path] = true
			}
		}
	}
}

// within says that a path of the boundary is one of these, or below one.
func within(name string, paths []string) bool {
	for _, p := range paths {
		if p = relative(p); p != "" && fsx.Within(name, p) {
			return true
		}
	}
	return false
}

// above says that a path is a folder on the way to one of these.
func above(name string, paths []string) bool {
	for _, p := range paths {
		if strings.HasPrefix(relative(p), name+"/") {
			return true
		}
	}
	return false
}

// relative is a path of a manifest as the sandbox tells those of a tree.
func relative(p string) string { return strings.Trim(strings.TrimPrefix(p, "./"), "/") }
