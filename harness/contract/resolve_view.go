package contract

import (
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// A view is what a program sees of the host: host paths, sorted, none of which the
// others make superfluous.
type view struct{ reads, writes []string }

// plan decides what the level and the lists open. It is pure.
func (r *resolver) plan() view {
	var reads, writes []string
	switch r.level {
	case policy.Minimal:
		reads = append(reads, r.workDir.real)
	default:
		reads = append(reads, r.root)
		writes = append(writes, r.workDir.real)
	}
	for _, p := range r.read {
		reads = append(reads, p.real)
	}
	for _, p := range r.write {
		writes = append(writes, p.real)
	}
	writes = outermost(writes, nil)
	return view{reads: outermost(reads, writes), writes: writes}
}

// outermost are the paths that lie below no other of them, nor below one of covered.
func outermost(paths, covered []string) (kept []string) {
	paths = slices.Compact(slices.Sorted(slices.Values(paths)))
	for _, p := range paths {
		other := func(q string) bool { return q != p && fsx.Within(p, q) }
		if !slices.ContainsFunc(paths, other) && !slices.ContainsFunc(covered, func(q string) bool { return fsx.Within(p, q) }) {
			kept = append(kept, p)
		}
	}
	return kept
}

// has reports whether the program sees a host path.
func (v view) has(real string) bool {
	return slices.ContainsFunc(slices.Concat(v.reads, v.writes), func(p string) bool { return fsx.Within(real, p) })
}

// writer is the folder of those that the program writes in which a path lies.
func (v view) writer(real string) string {
	for _, p := range v.writes {
		if fsx.Within(real, p) {
			return p
		}
	}
	return ""
}

func (v view) writable() string {
	if len(v.writes) == 0 {
		return "nothing of the host"
	}
	return strings.Join(v.writes, ", ")
}

func (v view) mounts(root string) (mounts []sandbox.Mount) {
	for _, p := range v.reads {
		mounts = append(mounts, sandbox.Mount{Source: p, Target: inside(root, p)})
	}
	return mounts
}

func (v view) trees(root string) (trees []sandbox.Tree) {
	for _, p := range v.writes {
		trees = append(trees, sandbox.Tree{Source: p, Target: inside(root, p)})
	}
	return trees
}

// masks are what is hidden of what is shown. What lies in another mask is hidden by it.
// What does not exist must not be made.
func (v view) masks(root string, deny []place) (masks []string) {
	var hidden []string
	for _, d := range deny {
		if v.has(d.real) {
			hidden = append(hidden, d.real)
		}
	}
	for _, p := range outermost(hidden, nil) {
		masks = append(masks, inside(root, p))
	}
	return masks
}
