package spec

import "slices"

// Observation is the plan of what is observed during a run.
type Observation struct {
	// Network says that network attempts are counted. NetworkReason says why they are not,
	// although this was requested.
	Network       bool   `json:"network"`
	NetworkReason string `json:"network_why"`
	// Watched lists the watched paths; the index is the number in the role of the mount.
	// WatchedReason says why there are none, although this was requested.
	Watched       []WatchedPath `json:"watch"`
	WatchedReason string        `json:"watch_why"`
	Required      bool          `json:"required"`
}

// WatchedPath is a path in the container at which accesses are observed.
type WatchedPath struct {
	Target string `json:"target"`
	Dir    bool   `json:"folder"`
	// Canary says that the path has readable content instead of being empty.
	Canary bool `json:"decoy"`
	// Names says that the names of the hidden entries of its tree are shown there.
	Names bool `json:"names,omitempty"`
	// Inner says that the path is inside another watched path, which represents it in
	// results.
	Inner bool `json:"-"`
}

// Text returns the path as results name it.
func (w WatchedPath) Text() string { return Mask{Target: w.Target, Dir: w.Dir}.Text() }

// MaxWatched bounds the watched paths of a run: each is a mount.
const MaxWatched = 256

// RootDir is a directory that only root may enter in images. Other users cannot open files
// below it, and their attempts would not be seen.
const RootDir = "/root"

// RootPoints returns the paths below [RootDir] at which canaries are mounted, and whether
// they are directories. It is empty unless the container has its own directory there.
func (s Spec) RootPoints() map[string]bool {
	points := map[string]bool{}
	if slices.ContainsFunc(s.Class.Binds, func(b Bind) bool { return b.Role == RoleWatchRoot }) {
		for _, w := range s.Job.Observe.Watched {
			if Below(w.Target, RootDir) {
				points[Rel(w.Target, RootDir)] = w.Dir
			}
		}
	}
	return points
}

// Active reports whether there is anything to observe.
func (o *Observation) Active() bool { return o != nil && (o.Network || len(o.Watched) > 0) }

const (
	// HoldDir is a directory in the container of an observed run. Init opens a file in
	// it, which proves to the observer that it sees the accesses of the container.
	HoldDir = "/run/evalbox-hold"
	// WitnessFile is that file.
	WitnessFile = "witness"
	// RoleHold is the role of the mount at [HoldDir]. The roles of watched paths are
	// RoleWatch, a dash and their number.
	RoleHold  = "hold"
	RoleWatch = "watch"
	// RoleWatchRoot is the role of the directory that contains the canaries below /root.
	RoleWatchRoot = RoleWatch + "-root"
)
