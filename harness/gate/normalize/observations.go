package normalize

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

const (
	// maxTouches bounds the touched paths of one gate, and maxTold the line of each.
	maxTouches = 1000
	maxTold    = 500
)

// How a path was touched, and how attempts to reach something were counted.
const (
	howOpened  = "opened"
	howRefused = "refused"

	countedKernel = "kernel"
	countedOutput = "output"
)

// observationsOf makes observations.json (RT-08): what the gates of all sets tried, those
// of the workspace first. What a gate tries only when it runs again was tried as well.
func observationsOf(ctx context.Context, root *os.Root, m evidence.RunManifest) (evidence.Observations, error) {
	all := evidence.Observations{Schema: evidence.ObservationsV1, Commands: []evidence.Observation{}}
	sets := evidence.Sets(m)
	slices.SortStableFunc(sets, func(a, b string) int { return cmp.Compare(min(1, len(a)), min(1, len(b))) })
	for _, set := range sets {
		ran, err := readAll(root, set, m)
		if err != nil {
			return all, err
		}
		n, err := New(m.Rules, contextOf(ran))
		if err != nil {
			return all, err
		}
		for _, r := range ran {
			if r == nil {
				continue
			}
			o, err := r.observation(ctx, root, m, n)
			if err != nil {
				return all, err
			}
			o.Set = set
			all.Commands = append(all.Commands, o)
		}
	}
	return all, nil
}

// observation is what one gate tried.
func (r *raw) observation(ctx context.Context, root *os.Root, m evidence.RunManifest, n *Normalizer) (evidence.Observation, error) {
	o := evidence.Observation{Index: r.gate.Index, Network: "none", Counted: countedOutput}
	if level := r.result.Network; level != nil {
		o.Network, o.Refused = level.Level, level.Refused
	}
	seen := r.result.Observed
	if seen != nil {
		o.Watched = seen.WatchWhy == "" && len(seen.Watched) > 0
		if seen.NetworkAttempts != nil {
			o.Counted = countedKernel
		}
	}
	told := told{
		protected: m.ProtectedPaths, touches: map[evidence.Touch]bool{}, n: n,
		exactly: o.Watched && o.Counted == countedKernel,
	}
	for _, name := range []string{"stdout.log", "stderr.log"} {
		s, err := r.stream(ctx, root, name)
		if err != nil {
			return o, err
		}
		if s == nil {
			continue
		}
		err = logline.Each(s, 64<<10, func(line []byte, _ bool) { told.look(line) })
		s.close()
		if err != nil {
			return o, err
		}
	}
	o.NetworkAttempts = told.network
	if o.Counted == countedKernel {
		o.NetworkAttempts = *seen.NetworkAttempts
	}
	if seen != nil {
		for _, p := range seen.Opened {
			// Whoever walks over a folder lists what is hidden in it, and learns nothing:
			// only opening a file in it is a touch.
			if !strings.HasSuffix(p, "/") {
				told.touch(evidence.Touch{Path: strings.TrimPrefix(p, evidence.Boundary+"/"), How: howOpened})
			}
		}
	}
	o.Touched = told.sorted()
	o.Changed, o.Evidence, o.Complete = changedOf(r.result, m)
	return o, nil
}
