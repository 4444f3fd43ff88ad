package normalize

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
)

// observationsOf is the content of observations.json (RT-08): attempts of the gates of all sets, those
// of the workspace first. An attempt in a repeat counts like any other.
func observationsOf(ctx context.Context, root *os.Root, m evidence.RunManifest) (evidence.Observations, error) {
	all := evidence.Observations{Schema: evidence.ObservationsV1}
	sets := evidence.Passes(m)
	slices.SortStableFunc(sets, func(a, b string) int { return cmp.Compare(min(1, len(a)), min(1, len(b))) })
	for _, set := range sets {
		runs, n, err := readRuns(root, set, m)
		if err != nil {
			return all, err
		}
		for _, r := range runs {
			if r.result == nil {
				continue
			}
			o, err := r.observation(ctx, m, n)
			if err != nil {
				return all, err
			}
			all.Commands = append(all.Commands, o)
		}
	}
	return all, nil
}

// observation has the attempts of one gate.
func (r run) observation(ctx context.Context, m evidence.RunManifest, n *Normalizer) (evidence.Observation, error) {
	o := evidence.Observation{Index: r.gate.Index, Pass: r.set, Network: "none", Counted: evidence.CountedInOutput}
	if network := r.result.Network; network != nil {
		o.Network, o.Refused = network.Level, network.Refused
	}
	observed := cmp.Or(r.result.Observed, &result.Observed{})
	o.Watched = observed.WatchWhy == "" && len(observed.Watched) > 0
	counted := observed.NetworkAttempts != nil
	found := denials{
		protected: m.ProtectedPaths, allowed: compileAllowed(m.Allowed), printed: map[evidence.Touch]bool{}, n: n, observed: o.Watched && counted,
	}
	for _, name := range []string{"stdout.log", "stderr.log"} {
		s, err := r.open(ctx, name)
		if err != nil {
			return o, err
		}
		if s == nil {
			continue
		}
		err = logline.Each(s, 64<<10, func(line []byte, _ bool) { found.look(line) })
		s.Close()
		if err != nil {
			return o, err
		}
	}
	if o.NetworkAttempts, o.NetworkLine = found.network, found.first; counted {
		o.NetworkAttempts, o.Counted, o.NetworkLine = *observed.NetworkAttempts, evidence.CountedByKernel, ""
	}
	// Nothing that a program prints crowds out what the kernel saw.
	o.Touched = slices.AppendSeq(evidence.Opened(observed.Opened), maps.Keys(found.printed))
	slices.SortFunc(o.Touched, func(a, b evidence.Touch) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.How, b.How), cmp.Compare(a.Line, b.Line))
	})
	o.Touched = slices.Compact(o.Touched)
	o.Changed, o.Evidence, o.Complete = changesOf(*r.result, m)
	return o, nil
}

// evidenceNames are the names of evidence, relative to the boundary. A gate may not write
// them.
var evidenceNames = []string{evidence.Dir, evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile, evidence.WishLockFile, evidence.AttestationFile}

// changesOf returns the forbidden changes of the copy: to read-only and protected paths,
// and to names of evidence. The lists are complete if the sandbox cannot have missed any.
func changesOf(r result.Result, m evidence.RunManifest) (changed, written []string, complete bool) {
	lists := []struct {
		paths []string
		found []string
	}{{paths: slices.Concat(m.ReadOnlyPaths, m.ProtectedPaths)}, {paths: evidenceNames}}
	examined, complete := r.Status == result.StatusStartFailed, true
	for _, tree := range r.Trees {
		if tree.Target != evidence.Boundary {
			continue
		}
		examined, complete = true, complete && tree.Complete
		for i := range lists {
			l := &lists[i]
			for _, entry := range slices.Concat(tree.Created, tree.Changed, tree.Deleted) {
				if within(entry.Path, l.paths) {
					l.found = append(l.found, entry.Path)
				}
			}
			for _, s := range tree.Skipped {
				at, unknown := s.Path, s.Kind == "directory"
				if s.Kind == "other" {
					at, unknown = path.Dir(at), true // its neighbours are unknown too
				}
				switch affects := at == "." || within(at, l.paths) || above(at, l.paths); {
				case affects && unknown:
					complete = false // the content of a directory that was not read
				case affects && at != ".":
					// A link, a FIFO or a large file is there, and replaced what was there.
					l.found = append(l.found, at)
				}
			}
		}
	}
	return evidence.SortedNames(lists[0].found, nil), evidence.SortedNames(lists[1].found, nil), examined && complete
}

// within reports whether a path of the boundary is one of paths, or below one.
func within(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { p = relative(p); return p != "" && fsx.Within(name, p) })
}

// above reports whether a path is a directory on the way to one of paths.
func above(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(relative(p), name+"/") })
}

// relative is a path of a manifest in the form of a result.
func relative(p string) string { return strings.Trim(strings.TrimPrefix(p, "./"), "/") }
