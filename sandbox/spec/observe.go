package spec

// Observation is the plan of what is observed during a run.
type Observation struct {
	// Network says that network attempts are counted. NetworkWhy says why they are not,
	// although this was requested.
	Network    bool   `json:"network"`
	NetworkWhy string `json:"network_why"`
	// Watch lists the watched paths; the index is the number in the role of the mount.
	// WatchWhy says why there are none, although this was requested.
	Watch    []Watch `json:"watch"`
	WatchWhy string  `json:"watch_why"`
	Required bool    `json:"required"`
}

// Watch is one watched path.
type Watch struct {
	Target string `json:"target"`
	Folder bool   `json:"folder"`
	// Decoy says that the path has readable content instead of being empty.
	Decoy bool `json:"decoy"`
	// Names says that the names of the hidden entries of its tree are shown there.
	Names bool `json:"names,omitempty"`
	// Inner says that the path is inside another watched path, which represents it in
	// results.
	Inner bool `json:"-"`
}

// Text returns the path as results name it.
func (w Watch) Text() string {
	if w.Folder {
		return w.Target + "/"
	}
	return w.Target
}

// Active reports whether there is anything to observe.
func (o *Observation) Active() bool { return o != nil && (o.Network || len(o.Watch) > 0) }

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
	// RoleWatchRoot is the role of the directory that contains the decoys below /root.
	RoleWatchRoot = RoleWatch + "-root"
)
